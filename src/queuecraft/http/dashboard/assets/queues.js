// The table of queues: what will not be empty soon comes first.

import { ask } from './api.js';
import { badge, nothing } from './card.js';
import { h } from './dom.js';
import { count, drain, rate, seconds } from './format.js';
import { link } from './router.js';
import { Table } from './table.js';
import { tried } from './toast.js';

/** Orders whose natural beginning is not the largest. */
const ASCENDING = new Set(['name']);

export class QueueTable {
  constructor() {
    this._filter = '';
    this._sort = 'drain';
    /** @type {'asc' | 'desc'} */
    this._order = 'desc';
    this._table = new Table({
      label: 'Queues',
      columns: COLUMNS,
      key: (row) => row.name,
      href: (row) => link(['queues', row.name]),
      mood: (row) => (drain(row).level === 'error' ? 'bad' : row.paused !== null ? 'odd' : ''),
      empty: () => this._nothing(),
      onsort: (sort) => this._sortBy(sort),
      onmore: () => void tried(() => this.refresh()),
    });
    this._table.sorted(this._sort, this._order);
    this.element = this._table.element;
    this.total = 0;
  }

  /** @param {string} text */
  filter(text) {
    this._filter = text;
    return this.refresh();
  }

  async refresh() {
    const query = { filter: this._filter, sort: this._sort, order: this._order, limit: this._table.limit };
    const asked = JSON.stringify(query);
    this._asked = asked;
    const answer = await ask('api/queues', { query });
    if (this._asked !== asked) return; // another was asked for meanwhile
    this.total = answer.total;
    this._table.show(answer.queues, answer.total);
  }

  /** @param {string} sort */
  _sortBy(sort) {
    const natural = ASCENDING.has(sort) ? 'asc' : 'desc';
    this._order = sort === this._sort ? (this._order === 'asc' ? 'desc' : 'asc') : natural;
    this._sort = sort;
    this._table.sorted(sort, this._order);
    // The rows are meant to move now, wherever the pointer is.
    this._table.release();
    void tried(() => this.refresh());
  }

  _nothing() {
    if (this._filter) return nothing(`No queue has “${this._filter}” in its name.`);
    return nothing(
      'No queue yet.',
      ['A queue comes to be when a worker starts: ', h('code', {}, 'queuecraft run shop:qc'), '.'],
      ['To see one now: ', h('code', {}, 'queuecraft demo --serve'), '.'],
    );
  }
}

/** @param {any} row */
function drainCell(row) {
  const { words, share, level } = drain(row);
  const bar = h('span', { class: 'drain-bar' });
  bar.style.width = `${Math.round(share * 100)}%`;
  const why = { never: 'It grows, or stands still: at this pace it is never empty.', paused: row.paused }[words];
  return h('span', { class: `drain ${level}`, title: why }, h('span', { class: 'drain-track' }, bar), h('span', { class: 'drain-words' }, words));
}

/** @param {string} name */
const number = (name) => (/** @type {any} */ row) => row[name];

/** A number that stands out when it is not zero. @param {string} name @param {string} kind */
const counted = (name, kind = '') => (/** @type {any} */ row) =>
  h('span', { class: row[name] ? kind : 'zero' }, count(row[name]));

/** @type {import('./table.js').Column<any>[]} */
const COLUMNS = [
  {
    label: 'Queue',
    main: true,
    sort: 'name',
    value: (row) => [row.name, row.paused, row.holds_dead_letters, drain(row).words],
    cell: (row) => [
      h('span', { class: 'name' }, row.name),
      row.paused !== null && drain(row).words !== 'paused' ? badge('paused', 'odd', row.paused) : null,
      row.holds_dead_letters ? badge('dead letters', 'plain') : null,
    ],
  },
  { label: 'Time to drain', kind: 'wide', sort: 'drain', value: (row) => [drain(row), row.paused], cell: drainCell },
  { label: 'Ready', number: true, sort: 'ready', value: number('ready'), cell: counted('ready', 'strong') },
  { label: 'In flight', number: true, kind: 'minor', value: number('in_flight'), cell: counted('in_flight') },
  { label: 'Delayed', number: true, kind: 'minor', value: number('delayed'), cell: counted('delayed') },
  { label: 'Dead', number: true, sort: 'dead', value: number('dead'), cell: counted('dead', 'dead') },
  {
    label: 'Consumers',
    number: true,
    value: (row) => [row.consumers, row.ready],
    cell: (row) => h('span', { class: row.consumers === 0 && row.ready ? 'dead' : row.consumers ? '' : 'zero' }, count(row.consumers)),
  },
  { label: 'Oldest', number: true, kind: 'minor', sort: 'oldest_age', value: (row) => seconds(row.oldest_age) },
  { label: 'In/s', number: true, kind: 'minor', value: (row) => rate(row.in_per_second) },
  { label: 'Handled/s', number: true, sort: 'handled_per_second', value: (row) => rate(row.handled_per_second) },
  {
    label: 'Failed/s',
    number: true,
    value: (row) => rate(row.failed_per_second),
    cell: (row) => h('span', { class: row.failed_per_second ? 'dead' : 'zero' }, rate(row.failed_per_second)),
  },
  { label: 'p95', number: true, kind: 'minor', value: (row) => seconds(row.p95) },
];
