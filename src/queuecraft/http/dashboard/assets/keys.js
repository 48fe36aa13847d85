// What the keyboard does.

import { dialogIsOpen, openDialog } from './dialog.js';
import { h } from './dom.js';

/** @type {Record<string, [string, string]>} */
const PLACES = {
  o: ['#/', 'overview'],
  d: ['#/dead-letters', 'dead letters'],
  l: ['#/delayed', 'delayed messages'],
  w: ['#/workers', 'workers'],
  e: ['#/exchanges', 'exchanges'],
  a: ['#/audit', 'audit log'],
  r: ['#/reports', 'reports'],
};
const PATIENCE = 1200; // milliseconds between `g` and what follows

export function listenToKeys() {
  let going = 0;
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.key === 'Escape' && target.matches('[data-filter]')) {
      target.blur();
      return;
    }
    if (dialogIsOpen() || target.closest('input, textarea, select')) return;
    const soon = Date.now() - going < PATIENCE;
    going = 0;
    if (soon && PLACES[event.key]) location.hash = PLACES[event.key][0];
    else if (event.key === 'g') going = Date.now();
    else if (event.key === 'j' || event.key === 'k') step(event.key === 'j' ? 1 : -1);
    else if (event.key === 'r') press('[data-redrive]');
    else if (event.key === '/') focus('[data-filter]');
    else if (event.key === '?') showKeys();
    else return;
    event.preventDefault();
  });
}

/** To the next row that can be opened, or the one before. @param {number} by */
function step(by) {
  const all = [...document.querySelectorAll('main [data-open]')].filter(visible);
  if (!all.length) return;
  const row = document.activeElement?.closest('[data-row]');
  const at = row ? all.findIndex((each) => row.contains(each)) : -1;
  const next = at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.max(0, Math.min(all.length - 1, at + by));
  /** @type {HTMLElement} */ (all[next]).focus();
  all[next].scrollIntoView({ block: 'nearest' });
}

/** The button of the row in focus, else the first there is. @param {string} selector */
function press(selector) {
  const row = document.activeElement?.closest('[data-row]');
  const found = row?.querySelector(selector) ?? document.querySelector(`main ${selector}`);
  if (found instanceof HTMLElement) found.click();
}

/** @param {string} selector */
function focus(selector) {
  const found = [...document.querySelectorAll(`main ${selector}`)].find(visible);
  if (found instanceof HTMLInputElement) {
    found.focus();
    found.select();
  }
}

/** @param {Element} element */
function visible(element) {
  return element.getClientRects().length > 0;
}

/** The list of them. */
export function showKeys() {
  const key = (/** @type {string[]} */ keys, /** @type {string} */ does) => [
    h('dt', {}, ...keys.map((each) => h('kbd', {}, each))),
    h('dd', {}, does),
  ];
  openDialog('Keys', [
    h(
      'dl',
      { class: 'keys' },
      ...key(['j', 'k'], 'next row, row before'),
      ...key(['Enter'], 'open it'),
      ...key(['/'], 'filter'),
      ...key(['r'], 'redrive the failure group'),
      ...key(['Esc'], 'close, leave the filter'),
      ...Object.entries(PLACES).flatMap(([letter, [, name]]) => key(['g', letter], `go to ${name}`)),
      ...key(['?'], 'this list'),
    ),
  ]);
}
