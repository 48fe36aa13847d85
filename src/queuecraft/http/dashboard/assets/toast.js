// A sentence that comes and goes.

import { h } from './dom.js';

const STAYS = 6000;
const place = h('div', { class: 'toasts', role: 'status', 'aria-live': 'polite' });

/** @param {string} text @param {'ok' | 'error'} [level] */
export function toast(text, level = 'ok') {
  if (!place.isConnected) document.body.append(place);
  const element = h('div', { class: `toast ${level}` }, text);
  place.append(element);
  setTimeout(() => element.remove(), STAYS);
}

/** Does it, and says when it did not go well. @param {() => Promise<any>} act @param {string} [done] */
export async function tried(act, done) {
  try {
    await act();
    if (done) toast(done);
    return true;
  } catch (error) {
    toast([error.message, error.hint].filter(Boolean).join(' '), 'error');
    return false;
  }
}
