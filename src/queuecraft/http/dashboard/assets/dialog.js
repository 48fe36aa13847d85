// Windows over the page: a question, a form, the keys.

import { fill, h } from './dom.js';
import { icon } from './icons.js';

/**
 * @param {string} title
 * @param {import('./dom.js').Child[]} body
 * @param {{onclose?: () => void, kind?: string}} [options]
 */
export function openDialog(title, body, { onclose, kind = '' } = {}) {
  const back = document.activeElement;
  const close = () => dialog.close();
  const content = h('div', { class: 'dialog-body' }, ...body);
  const dialog = /** @type {HTMLDialogElement} */ (
    h(
      'dialog',
      { class: `dialog ${kind}`, 'aria-label': title },
      h(
        'header',
        { class: 'dialog-head' },
        h('h2', {}, title),
        h('button', { class: 'button icon-only', type: 'button', 'aria-label': 'Close', onclick: close }, icon('close')),
      ),
      content,
    )
  );
  dialog.addEventListener('click', (event) => {
    if (event.target === dialog) close();
  });
  dialog.addEventListener('close', () => {
    dialog.remove();
    onclose?.();
    if (back instanceof HTMLElement && back.isConnected) back.focus({ preventScroll: true });
  });
  document.body.append(dialog);
  dialog.showModal();
  return { dialog, content, close };
}

/** They belong to the page they were opened on. */
export function closeDialogs() {
  for (const dialog of document.querySelectorAll('dialog')) dialog.close();
}

/** Whether one is open. */
export function dialogIsOpen() {
  return document.querySelector('dialog[open]') !== null;
}

/**
 * Asks before something is done that cannot be undone; the name has to be typed.
 * @param {object} question
 * @param {string} question.title
 * @param {string} question.text
 * @param {string} question.word what has to be typed
 * @param {string} question.verb what the button says
 * @param {() => Promise<any>} question.act
 */
export function confirmTyped({ title, text, word, verb, act }) {
  const input = /** @type {HTMLInputElement} */ (
    h('input', { type: 'text', id: 'confirm-word', autocomplete: 'off', spellcheck: 'false', autocapitalize: 'off' })
  );
  const button = h('button', { class: 'button danger', type: 'submit', disabled: true }, verb);
  input.addEventListener('input', () => {
    button.disabled = input.value !== word;
  });
  askForm(title, {
    fields: [
      h('p', {}, text),
      h('label', { htmlFor: 'confirm-word' }, 'Type ', h('code', {}, word), ' to confirm'),
      input,
    ],
    button,
    act,
  });
  input.focus();
}

/**
 * A form in a window; it stays open, and says why, when what it asks for is refused.
 * @param {string} title
 * @param {{fields: import('./dom.js').Child[], button: HTMLButtonElement, act: () => Promise<any>}} form
 */
export function askForm(title, { fields, button, act }) {
  const problem = h('div', { class: 'form-problem', role: 'alert' });
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    button.disabled = true;
    fill(problem);
    try {
      await act();
      opened.close();
    } catch (error) {
      fill(problem, ...sentences(error));
      button.disabled = false;
    }
  };
  const opened = openDialog(title, [
    h(
      'form',
      { onsubmit: submit, class: 'form' },
      ...fields,
      problem,
      h(
        'div',
        { class: 'dialog-foot' },
        h('button', { class: 'button quiet', type: 'button', onclick: () => opened.close() }, 'Cancel'),
        button,
      ),
    ),
  ]);
  return opened;
}

/** What an error says, and what to do about it. @param {any} error */
export function sentences(error) {
  const hint = error?.hint ? h('p', { class: 'hint' }, error.hint) : null;
  return [h('p', {}, error?.message ?? String(error)), hint];
}
