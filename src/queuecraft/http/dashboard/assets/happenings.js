// What happened lately, newest first.

import { h, keyed } from './dom.js';
import { time } from './format.js';
import { link } from './router.js';

export class Happenings {
  constructor() {
    this._list = h('ol', { class: 'happenings' });
    this._empty = h('p', { class: 'empty-line' }, 'Nothing has happened since the service began to look: workers that come and go, lost connections and new dead letters are told here.');
    this.element = h('div', {}, this._list, this._empty);
  }

  /** @param {any[]} happenings */
  show(happenings) {
    this._empty.hidden = happenings.length > 0;
    keyed(
      this._list,
      happenings,
      (each) => `${each.at} ${each.kind} ${each.text}`,
      (each) => ({
        element: h(
          'li',
          { class: `happening ${each.level}` },
          h('span', { class: 'dot' }),
          h('span', { class: 'happening-text' }, each.queue ? h('a', { href: link(['queues', each.queue]) }, each.text) : each.text),
          time(each.at),
        ),
        update: () => undefined,
      }),
    );
  }
}
