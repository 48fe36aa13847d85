// Trading a token for a session.

import { ask } from './api.js';
import { field } from './card.js';
import { sentences } from './dialog.js';
import { fill, h } from './dom.js';
import { mark } from './icons.js';

/** @param {(session: any) => void} onsession @param {string} [why] */
export function signInPage(onsession, why) {
  const token = /** @type {HTMLInputElement} */ (
    h('input', { type: 'password', autocomplete: 'current-password', required: true, spellcheck: 'false' })
  );
  const name = /** @type {HTMLInputElement} */ (
    h('input', { type: 'text', autocomplete: 'username', maxlength: 60, value: remembered() })
  );
  const problem = h('div', { class: 'form-problem', role: 'alert' });
  const enter = h('button', { class: 'button primary wide', type: 'submit' }, 'Sign in');
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    enter.disabled = true;
    fill(problem);
    try {
      const body = { token: token.value.trim(), name: name.value.trim() || undefined };
      const session = await ask('session', { method: 'POST', body });
      remember(name.value.trim());
      onsession(session);
    } catch (error) {
      fill(problem, ...(error.status === 401 ? [h('p', {}, 'This token is not known here.')] : sentences(error)));
      enter.disabled = false;
      token.select();
    }
  };
  const page = h(
    'main',
    { class: 'signin' },
    h(
      'form',
      { class: 'card form', onsubmit: submit, method: 'post' },
      h('div', { class: 'signin-brand' }, mark(), h('h1', {}, 'QueueCraft')),
      why && h('p', { class: 'signin-why', role: 'status' }, why),
      field('Token', token, 'QUEUECRAFT_TOKEN may do all, QUEUECRAFT_READ_TOKEN may look.'),
      field('Your name (optional)', name, 'Written beside what you do in the audit log.'),
      problem,
      enter,
    ),
  );
  return { page, focus: () => token.focus() };
}

function remembered() {
  try {
    return localStorage.getItem('queuecraft.name') ?? '';
  } catch {
    return '';
  }
}

/** @param {string} name */
function remember(name) {
  try {
    if (name) localStorage.setItem('queuecraft.name', name);
    else localStorage.removeItem('queuecraft.name');
  } catch {
    // Then it is typed again the next time.
  }
}
