// The dead letters of a queue, or of one failure in it.

import { ask, part } from './api.js';
import { badge, button, card, facts, filterBox, nothing, pageHead } from './card.js';
import { traceback } from './code.js';
import { fill, h } from './dom.js';
import { count, many, time } from './format.js';
import { because, groupName } from './groups.js';
import { openDelete, openRedrive } from './redrive.js';
import { link } from './router.js';
import { Table } from './table.js';
import { tried } from './toast.js';

/** @param {import('./view.js').Context} context @param {string} queue @param {string | null} group @returns {import('./view.js').View} */
export function lettersPage({ operator, live }, queue, group) {
  let filter = '';
  let total = 0;
  /** @type {any} */
  let answer = null;
  /** @type {any} */
  let known = null;
  let shownExample = '';
  let seen = '';
  const meant = group ? { group } : {};
  const title = h('span', {}, group ? 'Failure' : queue);
  const under = h('span', {});
  const story = h('div', {});
  const tools = h('div', { class: 'page-tools' });
  const note = h('span', {});
  const table = new Table({
    label: 'Dead letters',
    columns: group ? COLUMNS.filter((each) => each.label !== 'Error') : COLUMNS,
    key: (row) => row.id,
    href: (row) => link(['dead-letters', queue, row.id]),
    onmore: () => void tried(() => view.refresh(live.overview)),
    empty: () => nothing(filter ? `None has “${filter}” in it.` : 'None is left.', [h('a', { href: '#/dead-letters' }, 'All dead letters')]),
  });
  const show = () => {
    const text = filter.toLowerCase();
    const letters = answer?.letters ?? [];
    const shown = text ? letters.filter((/** @type {any} */ each) => `${each.id} ${each.event} ${each.key} ${each.preview} ${each.error} ${each.error_type}`.toLowerCase().includes(text)) : letters;
    table.show(shown, text ? shown.length : Math.min(1000, total));
  };
  const element = h(
    'div',
    {},
    pageHead(title, { back: ['#/dead-letters', 'Dead letters'], under, tools: [tools] }),
    story,
    card('Letters', [table.element], {
      note,
      tools: [filterBox('letters', (text) => { filter = text; show(); })],
    }),
  );

  async function again() {
    await live.now();
    seen = '';
    await tried(() => view.refresh(live.overview));
  }

  if (operator) {
    const what = () => (group ? groupName(known ?? { error_type: '' }) : 'all letters');
    const redrive = () => openRedrive({ queue, what: what(), meant, onend: again });
    const remove = () => openDelete({ queue, title: group ? 'Delete these letters' : 'Delete all letters', what: group ? 'the letters of this failure' : 'all letters', meant, onend: again });
    fill(
      tools,
      button(group ? 'Redrive' : 'Redrive all', redrive, { kind: 'primary', icon: 'redrive', data: { redrive: '' } }),
      button('Delete', remove, { kind: 'quiet danger-text', icon: 'purge' }),
    );
  }

  /** @param {any} found */
  async function showGroup(found) {
    known = found;
    title.textContent = found.error_type || because(found.reason);
    if (found.example === shownExample) return;
    shownExample = found.example;
    const letter = await ask(`api/dead-letters/${part(queue)}/${part(found.example)}`, { exact: true }).catch(() => /** @type {any} */ (null));
    const text = letter?.story?.traceback;
    fill(
      story,
      card(
        h('span', {}, 'What happened'),
        [
          h('p', { class: 'error-text' }, found.error || 'It left no message.'),
          facts([
            ['Event', found.event || '–'],
            ['Because', because(found.reason)],
            ['First', time(found.first)],
            ['Last', time(found.last)],
          ]),
          text ? traceback(text) : h('p', { class: 'hint' }, 'It left no traceback.'),
        ],
        { kind: 'story', tools: [h('a', { href: link(['dead-letters', queue, found.example]) }, 'The last one')] },
      ),
    );
  }

  const view = {
    title: 'Dead letters',
    element,
    every: 4000,
    refresh: async (/** @type {any} */ overview) => {
      // Looking into a queue costs the broker something: only when its dead letters have changed.
      const now = JSON.stringify([overview?.dead, table.limit, overview?.groups.filter((/** @type {any} */ each) => each.queue === queue)]);
      if (now === seen) return;
      const [letters, groups] = await Promise.all([
        ask('api/dead-letters', { query: { queue, group, limit: Math.min(1000, table.limit) } }),
        group ? ask('api/dead-letters/groups', { query: { queue } }) : null,
      ]);
      answer = letters;
      seen = overview ? now : '';
      const found = groups?.groups.find((/** @type {any} */ each) => each.fingerprint === group);
      total = group ? Math.max(found?.count ?? 0, letters.letters.length) : letters.total;
      fill(under, badge(queue, 'plain'), ` ${many(total, 'letter')}`);
      const cut = letters.letters.length < total;
      note.textContent = cut ? `the first ${count(letters.letters.length)}` : '';
      show();
      if (found) await showGroup(found);
    },
  };
  return view;
}

/** @type {import('./table.js').Column<any>[]} */
const COLUMNS = [
  { label: 'Event', main: true, value: (row) => row.event, cell: (row) => h('span', { class: 'name' }, row.event || '(no event)') },
  { label: 'Error', kind: 'wide', value: (row) => [row.error_type, row.error], cell: (row) => [h('strong', { class: 'mono' }, row.error_type || because(row.reason)), ' ', h('span', { class: 'soft clip' }, row.error)] },
  { label: 'Key', value: (row) => row.key },
  { label: 'Payload', kind: 'preview', value: (row) => row.preview, cell: (row) => h('code', {}, row.preview ?? '–') },
  { label: 'Failures', number: true, value: (row) => count(row.failures) },
  { label: 'Failed', value: (row) => row.failed_at, cell: (row) => time(row.failed_at) },
];
