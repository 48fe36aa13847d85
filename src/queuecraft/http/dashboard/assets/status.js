// The strip at the top of the overview: is all well, and if not, why.

import { fill, h } from './dom.js';
import { count, many, seconds } from './format.js';
import { icon } from './icons.js';

/** @type {Record<string, string>} */
const WORDS = { healthy: 'All is well', warning: 'Worth a look', critical: 'Something is wrong' };
/** @type {Record<string, string>} */
const ICONS = { healthy: 'check', warning: 'warning', critical: 'error' };

export class StatusStrip {
  constructor() {
    this.element = h('section', { class: 'status', 'aria-label': 'Status' });
    this._shown = '';
  }

  /** @param {any} overview */
  show(overview) {
    const chips = [broker(overview), ...workers(overview), circuits(overview), blocked(overview)];
    // How long the broker took changes each time, and is no reason to draw it again.
    const sign = JSON.stringify([overview.status, overview.reasons, overview.dead, overview.lacking, chips.map((each) => each.slice(0, 3))]);
    if (sign === this._shown) return;
    this._shown = sign;
    this.element.className = `status ${overview.status}`;
    fill(
      this.element,
      h('div', { class: 'status-sign' }, icon(ICONS[overview.status] ?? 'warning')),
      h(
        'div',
        { class: 'status-words' },
        h('p', { class: 'status-word', role: 'status' }, WORDS[overview.status] ?? overview.status),
        overview.reasons.length
          ? h('ul', { class: 'reasons' }, ...overview.reasons.slice(0, 6).map((/** @type {string} */ each) => h('li', {}, sentence(each))), overview.reasons.length > 6 && h('li', {}, `… and ${many(overview.reasons.length - 6, 'more thing')}.`))
          : h('p', { class: 'status-calm' }, calm(overview.dead)),
        overview.lacking && h('p', { class: 'status-calm' }, sentence(`There may be queues that are not shown: ${overview.lacking}`)),
      ),
      h(
        'dl',
        { class: 'chips' },
        ...chips.map(([name, value, level, title]) =>
          h('div', { class: `chip ${level}`, title }, h('dt', {}, name), h('dd', {}, h('span', { class: 'dot' }), value)),
        ),
      ),
    );
  }
}

/** @param {number} dead */
function calm(dead) {
  return dead ? `Nothing is failing now; ${many(dead, 'old dead letter')} ${dead === 1 ? 'is' : 'are'} kept.` : 'Nothing waits for you.';
}

/** @typedef {[string, string, string, string?]} Chip name, value, level, title */

/** @param {any} overview @returns {Chip} */
function broker(overview) {
  const level = overview.state === 'connected' ? 'ok' : 'error';
  const took = overview.asked_in === null || overview.asked_in === undefined ? '' : `, answers in ${seconds(overview.asked_in)}`;
  return ['Broker', `${overview.broker} ${overview.state}`, level, overview.last_error ?? `${overview.url}${took}`];
}

/** @param {any} overview @returns {Chip[]} */
function workers(overview) {
  if (overview.workers === null) return [['Workers', 'not told here', 'none']];
  const of = (/** @type {string} */ state) => overview.workers.filter((/** @type {any} */ each) => each.state === state).length;
  const [silent, paused, away] = [of('silent'), of('paused'), of('reconnecting')];
  const alive = overview.workers.length - silent;
  const parts = [`${count(alive)} alive`];
  if (silent) parts.push(`${count(silent)} silent`);
  if (paused) parts.push(`${count(paused)} paused`);
  if (away) parts.push(`${count(away)} reconnecting`);
  const level = silent || away ? 'warning' : paused ? 'warning' : alive ? 'ok' : 'none';
  return [['Workers', parts.join(' · '), level]];
}

/** @param {any} overview @returns {Chip} */
function circuits(overview) {
  const open = (overview.circuits ?? []).filter((/** @type {any} */ each) => each.state !== 'closed');
  const names = open.map((/** @type {any} */ each) => `${each.name} on ${each.host}`).join(', ');
  return ['Breakers', open.length ? `${count(open.length)} open` : 'none open', open.length ? 'warning' : 'ok', names];
}

/** @param {any} overview @returns {Chip} */
function blocked(overview) {
  const blocking = overview.blocked ?? overview.workers?.find((/** @type {any} */ each) => each.blocked)?.blocked;
  return ['Publishing', blocking ? 'blocked' : 'open', blocking ? 'error' : 'ok', blocking ?? ''];
}

/** Not begun with a capital: the first word may be the name of a queue. @param {string} text */
function sentence(text) {
  const trimmed = text.trim();
  return /[.!?…]$/.test(trimmed) ? trimmed : `${trimmed}.`;
}
