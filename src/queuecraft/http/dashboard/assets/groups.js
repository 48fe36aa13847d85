// Failures of one kind, the most recent first, each with its redrive.

import { badge, button } from './card.js';
import { fill, h, keyed } from './dom.js';
import { count, time } from './format.js';
import { openRedrive } from './redrive.js';
import { link } from './router.js';

const REASONS = new Map([
  ['handler-error', 'its handler failed'],
  ['nack', 'its handler gave it up'],
  ['requeue', 'it was put back too often'],
  ['ack-timeout', 'it was not settled in time'],
  ['crash-loop', 'its worker died each time'],
  ['no-handler', 'no handler takes it'],
  ['invalid-payload', 'its payload is not valid'],
  ['expired', 'it expired'],
]);

/** Why a letter is dead, in words. @param {string} reason as its header says, which may be anything */
export function because(reason) {
  return REASONS.get(reason) ?? (reason || 'it does not tell');
}

/** @param {any} group */
export function groupHref(group) {
  return link(['dead-letters', group.queue], { group: group.fingerprint });
}

/** What a group is called in a sentence. @param {any} group */
export function groupName(group) {
  return h('span', {}, 'the letters that failed with ', h('code', {}, group.error_type || because(group.reason)));
}

/** A list of them. */
export class GroupList {
  /** @param {{operator: boolean, onend: () => void, empty: () => import('./dom.js').Child}} options */
  constructor(options) {
    this._options = options;
    this._list = h('ul', { class: 'groups' });
    this._empty = h('div', { hidden: true }, options.empty());
    this.element = h('div', {}, this._list, this._empty);
  }

  /** @param {any[]} groups */
  show(groups) {
    keyed(this._list, groups, (group) => `${group.queue}\n${group.fingerprint}`, (group) => this._item(group));
    this._list.hidden = groups.length === 0;
    this._empty.hidden = groups.length > 0;
  }

  /** @param {any} group */
  _item(group) {
    const number = h('span', { class: 'group-count' });
    const when = h('span', { class: 'group-when' });
    const redrive = () =>
      openRedrive({ queue: group.queue, what: groupName(group), meant: { group: group.fingerprint }, onend: this._options.onend });
    const href = groupHref(group);
    const element = h(
      'li',
      { class: 'group', data: { row: '' } },
      number,
      h(
        'div',
        { class: 'group-text' },
        h('a', { class: 'group-title', href, data: { open: '' } }, group.error_type || because(group.reason)),
        h('p', { class: 'group-error' }, group.error || 'It left no message.'),
        h(
          'p',
          { class: 'group-where' },
          badge(group.queue, 'plain'),
          group.event && h('span', {}, group.event),
          when,
        ),
      ),
      this._options.operator &&
        button('Redrive', redrive, { kind: 'small', icon: 'redrive', data: { redrive: '' }, label: `Redrive ${group.error_type} in ${group.queue}` }),
    );
    element.addEventListener('click', (event) => {
      const target = /** @type {Element} */ (event.target);
      if (!target.closest('a, button') && !String(getSelection())) location.hash = href;
    });
    const update = (/** @type {any} */ latest) => {
      const text = count(latest.count);
      if (number.textContent !== text) number.textContent = text;
      if (when.dataset.last !== String(latest.last)) {
        when.dataset.last = String(latest.last);
        fill(when, latest.last ? ['last ', time(latest.last)] : null);
      }
    };
    return { element, update };
  }
}
