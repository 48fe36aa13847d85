// The parts pages are made of.

import { h } from './dom.js';
import { icon } from './icons.js';

/** @typedef {import('./dom.js').Child} Child */

/** The top of a page. @param {Child} title @param {{back?: [string, string], under?: Child, tools?: Child[]}} [more] */
export function pageHead(title, { back, under, tools = [] } = {}) {
  return h(
    'header',
    { class: 'page-head' },
    h(
      'div',
      { class: 'page-title' },
      back && h('a', { class: 'back', href: back[0] }, icon('back'), back[1]),
      h('h1', { tabIndex: -1 }, title),
      under && h('div', { class: 'page-under' }, under),
    ),
    h('div', { class: 'page-tools' }, ...tools),
  );
}

/** A box with a title. @param {Child} title @param {Child[]} body @param {{tools?: Child[], kind?: string, note?: Child}} [more] */
export function card(title, body, { tools = [], kind = '', note } = {}) {
  return h(
    'section',
    { class: `card ${kind}` },
    h('header', { class: 'card-head' }, h('h2', {}, title), note && h('span', { class: 'card-note' }, note), h('div', { class: 'card-tools' }, ...tools)),
    ...body,
  );
}

/** The box to filter by. @param {string} what @param {(text: string) => void} onfilter */
export function filterBox(what, onfilter) {
  let timer = 0;
  const input = /** @type {HTMLInputElement} */ (
    h('input', {
      type: 'search',
      placeholder: `Filter ${what}`,
      'aria-label': `Filter ${what}`,
      autocomplete: 'off',
      spellcheck: 'false',
      data: { filter: '' },
      oninput: () => {
        clearTimeout(timer);
        timer = setTimeout(() => onfilter(input.value.trim()), 120);
      },
    })
  );
  return h('label', { class: 'filter' }, icon('search'), input, h('kbd', { 'aria-hidden': 'true' }, '/'));
}

/** A button. @param {string} text @param {() => any} onclick @param {{kind?: string, icon?: string, data?: Record<string, string>, label?: string}} [more] */
export function button(text, onclick, { kind = '', icon: name, data, label } = {}) {
  return h('button', { class: `button ${kind}`, type: 'button', onclick, data, 'aria-label': label }, name && icon(name), text);
}

/** A word in a small box. @param {string} text @param {string} [kind] @param {string} [title] */
export function badge(text, kind = '', title) {
  return h('span', { class: `badge ${kind}`, title }, text);
}

/** What to tell where there is nothing. @param {string} title @param {...Child} more */
export function nothing(title, ...more) {
  return h('div', { class: 'nothing' }, h('p', { class: 'nothing-title' }, title), ...more.map((each) => h('p', {}, each)));
}

/** What went wrong, in the place of what should be there. @param {any} error */
export function trouble(error) {
  return h(
    'div',
    { class: 'trouble', role: 'alert' },
    icon('warning'),
    h('div', {}, h('p', {}, error?.message ?? String(error)), error?.hint ? h('p', { class: 'hint' }, error.hint) : null),
  );
}

/** Names and what they are. @param {[string, Child][]} pairs */
export function facts(pairs) {
  return h(
    'dl',
    { class: 'facts' },
    ...pairs.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value ?? '–'))),
  );
}

/** A field of a form. @param {string} label @param {HTMLElement} input @param {string} [hint] */
export function field(label, input, hint) {
  return h('label', { class: 'field' }, h('span', { class: 'field-label' }, label), input, hint && h('span', { class: 'hint' }, hint));
}
