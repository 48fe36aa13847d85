// Rows that are updated in place, of which a hundred are shown; on a phone each is a card.

import { fill, h, keyed, keysIn } from './dom.js';
import { count, many, NOTHING } from './format.js';

/**
 * @template T
 * @typedef {object} Column
 * @property {string} label
 * @property {(row: T) => any} value what decides how the cell looks
 * @property {(row: T) => import('./dom.js').Child} [cell] how it looks; the value as text if not given
 * @property {boolean} [number]
 * @property {boolean} [main] the one that names the row, and opens it
 * @property {string} [sort] what the service calls an order by this column
 * @property {string} [kind] a class for its cells
 */

const PAGE = 100;
const BLANK = new Set(['', '0', NOTHING]);

/** @template T */
export class Table {
  /**
   * @param {object} options
   * @param {string} options.label
   * @param {Column<T>[]} options.columns
   * @param {(row: T) => string} options.key
   * @param {(row: T) => string} [options.href] where a row leads
   * @param {(row: T) => string} [options.mood] a class for the row
   * @param {() => import('./dom.js').Child} [options.empty] what is told when there is none
   * @param {(sort: string) => void} [options.onsort]
   * @param {(limit: number) => void} [options.onmore] if the rest has to be asked for
   */
  constructor(options) {
    this._options = options;
    this._limit = PAGE;
    /** @type {T[]} */
    this._rows = [];
    this._total = 0;
    this._released = false;
    this._body = h('tbody', { role: 'rowgroup' });
    this._heads = options.columns.map((column) => this._head(column));
    this._table = h(
      'table',
      { role: 'table', 'aria-label': options.label },
      h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' }, ...this._heads)),
      this._body,
    );
    this._more = h('button', { class: 'button quiet', type: 'button', onclick: () => this._showMore() });
    this._foot = h('div', { class: 'table-foot', hidden: true }, this._more);
    this._empty = h('div', { class: 'empty', hidden: true });
    this.element = h('div', { class: 'table' }, this._table, this._empty, this._foot);
  }

  /** How many rows are wanted. */
  get limit() {
    return this._limit;
  }

  /** @param {T[]} rows @param {number} [total] if there are more than these */
  show(rows, total = rows.length) {
    this._rows = rows;
    this._total = total;
    this._draw();
  }

  /** Marks the column the rows are ordered by. @param {string} sort @param {'asc' | 'desc'} order */
  sorted(sort, order) {
    this._options.columns.forEach((column, i) => {
      if (!column.sort) return;
      const direction = column.sort !== sort ? 'none' : order === 'asc' ? 'ascending' : 'descending';
      this._heads[i].setAttribute('aria-sort', direction);
    });
  }

  /** Lets the rows move once, whoever points at them: another order was asked for. */
  release() {
    this._released = true;
  }

  _draw() {
    const { key, empty } = this._options;
    let rows = this._rows.slice(0, this._limit);
    if (this._held() && !this._released) rows = this._inPlace(rows);
    this._released = false;
    keyed(this._body, rows, key, (row) => this._row(row));
    const none = rows.length === 0;
    this._table.hidden = none;
    // Not made anew each time: somebody may have a button in it in focus.
    if (none && this._empty.hidden) fill(this._empty, empty?.() ?? 'Nothing here.');
    this._empty.hidden = !none;
    const left = this._total - rows.length;
    this._foot.hidden = left <= 0;
    if (left > 0) this._more.textContent = `Show ${count(Math.min(PAGE, left))} more of ${many(this._total, 'row')}`;
  }

  _showMore() {
    this._limit += PAGE;
    if (this._options.onmore) this._options.onmore(this._limit);
    else this._draw();
  }

  /** Whether somebody points at it: rows must not jump away under a finger. */
  _held() {
    const hovered = matchMedia('(hover: hover)').matches && this._body.matches(':hover');
    return hovered || this._body.contains(document.activeElement);
  }

  /** @param {T[]} rows */
  _inPlace(rows) {
    const { key } = this._options;
    const places = new Map(keysIn(this._body).map((id, i) => [id, i]));
    const place = (/** @type {T} */ row) => places.get(key(row)) ?? Infinity;
    return rows
      .map((row, i) => ({ row, i }))
      .sort((a, b) => (place(a.row) === place(b.row) ? a.i - b.i : place(a.row) - place(b.row)))
      .map(({ row }) => row);
  }

  /** @param {Column<T>} column */
  _head(column) {
    const kind = [column.number && 'number', column.kind].filter(Boolean).join(' ');
    const props = { role: 'columnheader', scope: 'col', class: kind || null };
    if (!column.sort) return h('th', props, column.label);
    const press = () => this._options.onsort?.(column.sort ?? '');
    return h(
      'th',
      { ...props, 'aria-sort': 'none' },
      h('button', { type: 'button', class: 'sort', onclick: press }, column.label),
    );
  }

  /** @param {T} first */
  _row(first) {
    const { columns, href, mood } = this._options;
    let current = first;
    const cells = columns.map((column) => {
      const kind = [column.number && 'number', column.main && 'main', column.kind].filter(Boolean).join(' ');
      return h('td', { role: 'cell', class: kind || null, data: { label: column.label } });
    });
    const seen = columns.map(() => /** @type {string | null} */ (null));
    const element = h('tr', { role: 'row', data: href ? { row: '' } : {} }, ...cells);
    if (href) element.addEventListener('click', (event) => open(event, href(current)));
    const update = (/** @type {T} */ row) => {
      current = row;
      element.className = mood?.(row) ?? '';
      columns.forEach((column, i) => {
        const value = column.value(row);
        const sign = JSON.stringify(value) ?? 'undefined';
        if (sign === seen[i]) return;
        seen[i] = sign;
        const content = column.cell ? column.cell(row) : value === null || value === undefined ? NOTHING : String(value);
        const focused = cells[i].contains(document.activeElement);
        fill(
          cells[i],
          column.main && href ? h('a', { href: href(row), data: { open: '' } }, content) : content,
        );
        // A phone has no room for what says nothing.
        if (!column.main && BLANK.has(cells[i].textContent ?? '')) cells[i].dataset.blank = '';
        else delete cells[i].dataset.blank;
        if (focused) /** @type {HTMLElement | null} */ (cells[i].querySelector('a, button'))?.focus({ preventScroll: true });
      });
    };
    return { element, update };
  }
}

/** @param {MouseEvent} event @param {string} href */
function open(event, href) {
  const target = /** @type {Element} */ (event.target);
  if (target.closest('a, button, input, label') || String(getSelection())) return;
  location.hash = href;
}
