// The four numbers, each with its past.

import { h, say } from './dom.js';
import { percent, rate, seconds } from './format.js';
import { Sparkline } from './sparkline.js';

/** @type {[string, string, string, (value: number | null) => string, (value: number | null) => string][]} */
const NUMBERS = [
  ['in_per_second', 'Coming in', 'a second', rate, () => ''],
  ['handled_per_second', 'Handled', 'a second', rate, () => ''],
  ['failure_ratio', 'Failing', '%', percent, (value) => (value === null ? '' : value > 0.05 ? 'bad' : '')],
  ['oldest_age', 'Oldest message', 'waiting', seconds, () => ''],
];

export class Numbers {
  constructor() {
    this._parts = NUMBERS.map(([name, label, unit, format, level]) => {
      const value = h('span', { class: 'gauge-value' }, '–');
      const most = h('span', { class: 'gauge-most' });
      const spark = new Sparkline(`${label}, its past`);
      const element = h(
        'div',
        { class: `gauge gauge-${name.replaceAll('_', '-')}` },
        h('div', { class: 'gauge-head' }, h('span', { class: 'gauge-label' }, label), most),
        h('div', { class: 'gauge-row' }, value, h('span', { class: 'gauge-unit' }, unit)),
        spark.element,
      );
      return { name, format, level, value, most, spark, element };
    });
    this.element = h('section', { class: 'gauges', 'aria-label': 'Now' }, ...this._parts.map((each) => each.element));
  }

  /** @param {any} numbers */
  show(numbers) {
    for (const { name, format, level, value, most, spark, element } of this._parts) {
      const { now = null, history = [] } = numbers?.[name] ?? {};
      say(value, format(now));
      const known = history.map((/** @type {any} */ each) => each[1]).filter((/** @type {any} */ each) => each !== null);
      say(most, known.length > 1 ? `peak ${format(Math.max(...known))}` : '');
      element.classList.toggle('bad', level(now) === 'bad');
      spark.update(history);
    }
  }
}
