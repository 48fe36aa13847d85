// Messages that wait for their time.

import { ask, part } from './api.js';
import { badge, button, card, nothing, pageHead } from './card.js';
import { fill, h } from './dom.js';
import { bytes, count, rate, time } from './format.js';
import { Plot } from './plot.js';
import { link } from './router.js';
import { Table } from './table.js';
import { Tiles } from './tiles.js';
import { tried } from './toast.js';

const PAGE = 100;

/** @param {import('./view.js').Context} context @returns {import('./view.js').View} */
export function delayedPage({ operator }) {
  const tiles = new Tiles();
  const plot = new Plot('How many wait, over time');
  const place = h('div', {});
  let wanted = PAGE;
  const table = new Table({
    label: 'Delayed messages',
    columns: columns(operator, cancel),
    key: (row) => row.id,
    mood: (row) => (new Date(row.due_at).getTime() < Date.now() - 5000 ? 'odd' : ''),
    empty: () => nothing(
      'Nothing waits for its time.',
      ['Have one wait here: ', h('code', {}, 'await qc.delayed.add(reminded, "pay by Friday", delay=3600)'), '.'],
      'What publish(delay=) hands to the broker is counted with its queue, and cannot be called off.',
    ),
    onmore: (limit) => {
      wanted = limit;
      void tried(() => view.refresh());
    },
  });
  const body = h('div', {}, tiles.element, card('How many wait', [plot.element]), card('Next due first', [table.element]));
  const element = h('div', {}, pageHead('Delayed messages', { under: 'Kept for later, delivered when they are due, and until then to be called off.' }), place, body);

  /** @param {any} row */
  function cancel(row) {
    void tried(async () => {
      await ask(`delayed/${part(row.id)}`, { method: 'DELETE' });
      await view.refresh();
    }, 'It will not be delivered.');
  }

  const view = {
    title: 'Delayed messages',
    element,
    every: 4000,
    refresh: async () => {
      try {
        const [page, stats] = await Promise.all([ask('delayed', { query: { limit: Math.min(1000, wanted) } }), ask('delayed/stats')]);
        table.show(page.messages, page.next ? Math.max(stats.size, page.messages.length + 1) : page.messages.length);
        tiles.show(tilesOf(stats));
        const points = stats.history.map((/** @type {[string, number]} */ [at, size]) => [new Date(at).getTime() / 1000, size]);
        plot.update([{ name: 'Waiting', kind: 'depth', format: count, points: [...points, [Date.now() / 1000, stats.size]] }]);
        body.hidden = false;
        fill(place);
      } catch (error) {
        if (error.status !== 501) throw error;
        body.hidden = true;
        fill(place, nothing('Nothing can be delayed here.', error.message, error.hint));
      }
    },
  };
  return view;
}

/** @param {any} stats @returns {import('./tiles.js').Tile[]} */
function tilesOf(stats) {
  return [
    ['Waiting', count(stats.size)],
    ['Limit', count(stats.limit), stats.status === 'healthy' ? '' : stats.status === 'warning' ? 'warning' : 'error'],
    ['Most so far', count(stats.max_size)],
    ['Overdue', count(stats.overdue), stats.overdue ? 'warning' : ''],
    ['More a minute', rate(Math.max(0, stats.growth_per_minute)), stats.abnormal_growth ? 'warning' : ''],
    ['Cleaned up', count(stats.cleanup.cleaned_total)],
  ];
}

/** @param {boolean} operator @param {(row: any) => void} oncancel @returns {import('./table.js').Column<any>[]} */
function columns(operator, oncancel) {
  /** @type {import('./table.js').Column<any>[]} */
  const all = [
    {
      label: 'For',
      main: true,
      value: (row) => [row.target, row.kind],
      cell: (row) => [row.kind === 'queue' ? h('a', { href: link(['queues', row.target]) }, row.target) : h('span', { class: 'name' }, row.target), badge(row.kind, 'plain')],
    },
    { label: 'Due', value: (row) => row.due_at, cell: (row) => time(row.due_at) },
    { label: 'Payload', kind: 'wide preview', value: (row) => row.preview, cell: (row) => h('code', {}, row.preview ?? '–') },
    { label: 'Added', value: (row) => row.added_at, cell: (row) => time(row.added_at) },
    { label: 'Failures', number: true, value: (row) => count(row.failures) },
    { label: 'Size', number: true, value: (row) => bytes(row.size) },
  ];
  if (operator) {
    all.push({
      label: '',
      kind: 'actions',
      value: () => '',
      cell: (row) => button('Cancel', () => oncancel(row), { kind: 'quiet small', label: `Cancel the message for ${row.target}` }),
    });
  }
  return all;
}
