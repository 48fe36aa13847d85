// Reports of the pipeline, to open.

import { address, ask, part } from './api.js';
import { card, nothing, pageHead } from './card.js';
import { h } from './dom.js';
import { bytes, time } from './format.js';
import { icon } from './icons.js';
import { Table } from './table.js';

/** @returns {import('./view.js').View} */
export function reportsPage() {
  const table = new Table({
    label: 'Reports',
    columns: [
      {
        label: 'Report',
        main: true,
        value: (row) => row.name,
        cell: (row) => h('a', { href: String(address(`reports/${part(row.name)}`)), target: '_blank', rel: 'noopener', data: { open: '' } }, row.name, ' ', icon('open')),
      },
      { label: 'Written', value: (row) => row.modified_at, cell: (row) => time(row.modified_at) },
      { label: 'Size', number: true, value: (row) => bytes(row.size) },
    ],
    key: (row) => row.name,
    empty: () =>
      nothing(
        'No report yet.',
        ['The pipeline writes them: ', h('code', {}, 'queuecraft report ./lake --html reports/today.html'), '.'],
        ['The service shows those of a folder: ', h('code', {}, 'queuecraft serve --reports reports'), '.'],
      ),
  });
  return {
    title: 'Reports',
    element: h('div', {}, pageHead('Reports', { under: 'What the pipeline made of the journal.' }), card('All', [table.element], { kind: 'bare' })),
    every: 10_000,
    refresh: async () => {
      table.show((await ask('api/reports')).reports);
    },
  };
}
