// Who did what.

import { ask } from './api.js';
import { badge, card, filterBox, nothing, pageHead } from './card.js';
import { h } from './dom.js';
import { time } from './format.js';
import { Table } from './table.js';

/** @type {Record<string, string>} */
const LEVELS = { done: 'ok', refused: 'bad', failed: 'bad', stopped: 'odd', cancelled: 'odd' };

/** @returns {import('./view.js').View} */
export function auditPage() {
  let filter = '';
  /** @type {any[]} */
  let found = [];
  const table = new Table({
    label: 'Audit log',
    columns: [
      { label: 'What', main: true, value: (row) => row.action, cell: (row) => h('span', { class: 'name' }, row.action) },
      { label: 'On', value: (row) => row.target ?? '–' },
      { label: 'Detail', kind: 'wide', value: (row) => detail(row.detail), cell: (row) => h('span', { class: 'soft' }, detail(row.detail)) },
      { label: 'Outcome', value: (row) => row.outcome, cell: outcome },
      { label: 'By', value: (row) => row.by, cell: (row) => h('span', { title: row.by?.address }, row.by?.name || row.by?.role || '–', ' ', h('span', { class: 'faint' }, row.by?.address)) },
      { label: 'When', value: (row) => row.at, cell: (row) => time(row.at) },
    ],
    key: (row) => JSON.stringify([row.at, row.action, row.target, row.outcome]),
    empty: () => nothing(filter ? `Nothing has “${filter}” in it.` : 'Nobody has changed anything.', 'Every pause, purge, redrive and deletion is written here, with who did it. It is kept in memory: start the service with --audit FILE to keep it for good.'),
  });
  const show = () => {
    const text = filter.toLowerCase();
    table.show(found.filter((each) => JSON.stringify(each).toLowerCase().includes(text)));
  };
  const box = filterBox('entries', (text) => {
    filter = text;
    show();
  });
  return {
    title: 'Audit log',
    element: h('div', {}, pageHead('Audit log', { under: 'Who changed what, newest first.', tools: [box] }), card('Entries', [table.element], { kind: 'bare' })),
    refresh: async () => {
      found = (await ask('api/audit', { query: { limit: 500 } })).entries;
      show();
    },
  };
}

/** One word, and what more there is to tell. @param {any} row */
function outcome(row) {
  const [word, more = ''] = String(row.outcome).split(/:\s*(.*)/s);
  return [badge(word, LEVELS[word] ?? 'plain'), more && h('span', { class: 'soft outcome' }, more)];
}

/** @param {any} value */
function detail(value) {
  if (value === null || value === undefined) return '–';
  if (typeof value !== 'object') return String(value) || '–';
  const parts = Object.entries(value).filter(([, each]) => each !== null && each !== undefined);
  return parts.map(([name, each]) => `${name}: ${typeof each === 'object' ? JSON.stringify(each) : each}`).join(', ') || '–';
}
