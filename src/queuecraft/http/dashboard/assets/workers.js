// Who works, seen by signs of life.

import { ask } from './api.js';
import { badge, card, filterBox, nothing, pageHead } from './card.js';
import { h } from './dom.js';
import { count, many, rate, seconds, time } from './format.js';
import { link } from './router.js';
import { Table } from './table.js';

/** @type {Record<string, string>} */
const LEVELS = { running: 'ok', paused: 'odd', reconnecting: 'odd', silent: 'bad' };

/** @type {import('./table.js').Column<any>[]} */
export const WORKER_COLUMNS = [
  {
    label: 'Process',
    main: true,
    value: (row) => [row.host, row.pid, row.version],
    cell: (row) => h('span', { class: 'name', title: row.version ? `QueueCraft ${row.version}` : null }, `${row.host} · ${row.pid}`),
  },
  { label: 'Queue', value: (row) => row.queue, cell: (row) => h('a', { href: link(['queues', row.queue]) }, row.queue) },
  {
    label: 'State',
    value: (row) => [row.state, row.paused, row.blocked, row.last_error],
    cell: (row) => badge(row.state, LEVELS[row.state] ?? 'plain', row.paused ?? row.blocked ?? row.last_error ?? ''),
  },
  { label: 'At once', number: true, kind: 'minor', value: (row) => [row.in_flight, row.concurrency], cell: (row) => `${count(row.in_flight)} of ${count(row.concurrency)}` },
  { label: 'Handled', number: true, value: (row) => count(row.handled) },
  { label: 'Failed', number: true, value: (row) => row.failed, cell: (row) => h('span', { class: row.failed ? 'dead' : 'zero' }, count(row.failed)) },
  { label: 'Handled/s', number: true, value: (row) => rate(row.handled_per_second) },
  { label: 'p95', number: true, kind: 'minor', value: (row) => seconds(row.p95) },
  { label: 'Started', kind: 'minor', value: (row) => row.started_at, cell: (row) => time(row.started_at) },
  { label: 'Seen', value: (row) => row.seen_at, cell: (row) => time(row.seen_at) },
];

/** @returns {import('./view.js').View} */
export function workersPage() {
  let filter = '';
  /** @type {any[] | null} */
  let found = [];
  const under = h('span', {});
  const table = new Table({
    label: 'Workers',
    columns: WORKER_COLUMNS,
    key: (row) => `${row.process} ${row.queue}`,
    href: (row) => link(['queues', row.queue]),
    mood: (row) => (row.state === 'silent' ? 'bad' : row.state === 'running' ? '' : 'odd'),
    empty: () =>
      found === null
        ? nothing('Workers are not seen on this broker.', 'It has no place where they could leave signs of life; consumers of a queue are told on its page.')
        : nothing(filter ? `No worker has “${filter}” in it.` : 'No worker is alive.', ['Start one: ', h('code', {}, 'queuecraft run shop:qc'), '.']),
  });
  const circuits = new Table({
    label: 'Circuit breakers',
    columns: [
      { label: 'Breaker', main: true, value: (row) => row.name },
      { label: 'Process', value: (row) => row.host },
      { label: 'State', value: (row) => row.state, cell: (row) => badge(row.state, row.state === 'closed' ? 'ok' : 'bad') },
    ],
    key: (row) => `${row.process} ${row.name}`,
    empty: () => nothing('No circuit breaker is in use.'),
  });
  const show = () => {
    const text = filter.toLowerCase();
    table.show((found ?? []).filter((each) => `${each.host} ${each.pid} ${each.queue} ${each.state}`.toLowerCase().includes(text)));
  };
  const box = filterBox('workers', (text) => {
    filter = text;
    show();
  });
  const circuitCard = card('Circuit breakers', [circuits.element]);
  return {
    title: 'Workers',
    element: h('div', {}, pageHead('Workers', { under, tools: [box] }), card('Alive or lately so', [table.element]), circuitCard),
    refresh: async () => {
      const answer = await ask('api/workers');
      found = answer.workers;
      const silent = (found ?? []).filter((each) => each.state === 'silent').length;
      under.textContent = found === null ? '' : `${many(found.length, 'worker')}${silent ? `, ${count(silent)} silent` : ''}`;
      show();
      circuits.show(answer.circuits);
      circuitCard.hidden = answer.circuits.length === 0;
    },
  };
}
