// Where events go: exchanges, and the queues bound to them.

import { ask } from './api.js';
import { badge, card, filterBox, nothing, pageHead } from './card.js';
import { fill, h } from './dom.js';
import { many } from './format.js';
import { link } from './router.js';
import { Table } from './table.js';

/** @returns {import('./view.js').View} */
export function exchangesPage() {
  let filter = '';
  let sign = '';
  /** @type {any[]} */
  let found = [];
  const list = h('div', {});
  const show = () => {
    const text = filter.toLowerCase();
    const matching = found
      .map((each) => ({ ...each, bindings: each.bindings.filter((/** @type {any} */ one) => `${each.name} ${one.queue} ${one.pattern}`.toLowerCase().includes(text)) }))
      .filter((each) => !text || each.bindings.length || each.name.toLowerCase().includes(text));
    fill(list, ...(matching.length ? matching.map(exchange) : [nothing(filter ? `Nothing has “${filter}” in it.` : 'No exchange yet.', 'They come to be with the first publisher or worker.')]));
  };
  const box = filterBox('bindings', (text) => {
    filter = text;
    show();
  });
  return {
    title: 'Exchanges',
    element: h('div', {}, pageHead('Exchanges', { under: 'Which events reach which queues.', tools: [box] }), list),
    every: 10_000,
    refresh: async () => {
      found = await ask('api/exchanges');
      const next = JSON.stringify(found);
      if (next === sign) return;
      sign = next;
      show();
    },
  };
}

/** @param {any} each */
function exchange(each) {
  const table = new Table({
    label: `Bindings of ${each.name}`,
    columns: [
      { label: 'Events', main: true, value: (row) => row.pattern, cell: (row) => h('code', {}, row.pattern || 'all') },
      { label: 'Queue', value: (row) => row.queue, cell: (row) => h('a', { href: link(['queues', row.queue]) }, row.queue) },
      { label: 'Headers', value: (row) => row.headers, cell: (row) => (row.headers && Object.keys(row.headers).length ? h('code', {}, JSON.stringify(row.headers)) : '–') },
    ],
    key: (row) => JSON.stringify(row),
    empty: () => nothing('No queue is bound to it.', 'What is published there reaches nobody.'),
  });
  table.show(each.bindings);
  return card(each.name || 'The default one', [table.element], { note: [badge(each.type, 'plain'), ' ', many(each.bindings.length, 'binding')] });
}
