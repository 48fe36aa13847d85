// One message: its payload, its headers and, if it is dead, why.

import { ask, part } from './api.js';
import { badge, button, card, facts, nothing, pageHead, trouble } from './card.js';
import { plain, pretty, traceback } from './code.js';
import { fill, h } from './dom.js';
import { bytes, count, many, time } from './format.js';
import { because } from './groups.js';
import { openDelete, openRedrive } from './redrive.js';
import { link } from './router.js';
import { toast } from './toast.js';

const FURTHEST = 10_000; // letters that the service looks through for one

/** A message that waits. @param {import('./view.js').Context} context @param {string} queue @param {string} id @returns {import('./view.js').View} */
export function messagePage({ operator }, queue, id) {
  return page(id, `api/queues/${part(queue)}/messages/${part(id)}`, [link(['queues', queue]), queue], (message) => [payload(message, operator), headers(message)], null);
}

/** A dead letter. @param {import('./view.js').Context} context @param {string} queue @param {string} id @returns {import('./view.js').View} */
export function letterPage({ operator, live }, queue, id) {
  const meant = { ids: [id] };
  const end = () => {
    void live.now();
    location.hash = link(['dead-letters', queue]);
  };
  const tools = operator
    ? [
        button('Redrive', () => openRedrive({ queue, what: 'this letter', meant, onend: () => void live.now() }), { kind: 'primary', icon: 'redrive', data: { redrive: '' } }),
        button('Delete', () => openDelete({ queue, title: 'Delete this letter', what: 'this letter', meant, onend: end }), { kind: 'quiet danger-text', icon: 'purge' }),
      ]
    : [];
  const parts = (/** @type {any} */ message) => [story(message.story ?? {}), payload(message, operator), headers(message)];
  return page(id, `api/dead-letters/${part(queue)}/${part(id)}`, [link(['dead-letters', queue]), queue], parts, tools);
}

/**
 * @param {string} id @param {string} path @param {[string, string]} back
 * @param {(message: any) => Element[]} parts @param {import('./dom.js').Child[] | null} tools
 * @returns {import('./view.js').View}
 */
function page(id, path, back, parts, tools) {
  const title = h('span', { class: 'mono' }, id);
  const under = h('div', {});
  const body = h('div', {}, looking());
  let shown = false;
  const further = () => {
    fill(body, looking());
    void show({ look: FURTHEST });
  };
  /** @param {Record<string, any>} query */
  async function show(query) {
    shown = true;
    try {
      const message = await ask(path, { exact: true, query });
      title.textContent = message.event || message.id;
      fill(under, about(message));
      fill(body, ...parts(message));
    } catch (error) {
      shown = error.status === 404;
      if (error.type === 'NotAmongTheFirst') fill(body, nothing(`${error.message.replace(/^it/, 'It')}.`, query.look ? error.hint : button('Look further', further, { kind: 'primary' })));
      else if (shown) fill(body, nothing('It is not here any more.', 'It was handled, sent back or deleted meanwhile.', h('a', { href: back[0] }, `To ${back[1]}`)));
      else fill(body, trouble(error));
    }
  }
  return {
    title: id,
    element: h('div', { class: 'message' }, pageHead(title, { back, under, tools: tools ?? [] }), body),
    refresh: async () => {
      if (!shown) await show({}); // a message does not change
    },
  };
}

function looking() {
  return h('p', { class: 'loading' }, h('span', { class: 'spinner' }), 'Looking for it …');
}

/** @param {any} message */
function about(message) {
  return facts([
    ['Id', h('code', {}, message.id)],
    ['Published', time(message.timestamp)],
    ['Key', message.key ?? '–'],
    ['Attempt', count(message.attempt)],
    ['Redelivered', count(message.redeliveries)],
    ['Size', bytes(message.size)],
    ['Type', [message.content_type ?? '–', message.content_encoding ? `, ${message.content_encoding}` : '']],
  ]);
}

/** @param {any} told */
function story(told) {
  const attempts = told.attempts ?? [];
  return card(
    h('span', { class: 'mono' }, told.error_type || because(told.reason)),
    [
      h('p', { class: 'error-text' }, told.error || 'It left no message.'),
      facts([
        ['Because', because(told.reason)],
        ['Failed', time(told.failed_at)],
        ['Attempts that failed', count(told.failures)],
        ['In the queue', told.original_queue ? h('a', { href: link(['queues', told.original_queue]) }, told.original_queue) : '–'],
      ]),
      attempts.length ? h('ol', { class: 'attempts' }, ...attempts.map(attempt)) : null,
      told.traceback ? [copyable('Traceback', told.traceback), traceback(told.traceback)] : h('p', { class: 'hint' }, 'It left no traceback.'),
    ],
    { kind: 'story' },
  );
}

/** @param {any} each */
function attempt(each) {
  return h('li', {}, h('span', { class: 'dot' }), h('span', { class: 'attempt-number' }, `Attempt ${each.attempt ?? '?'}`), h('span', { class: 'soft clip' }, each.error ?? ''), time(each.at));
}

/** @param {any} message @param {boolean} operator */
function payload(message, operator) {
  const body = [];
  if (message.payload_error) {
    body.push(h('p', { class: 'hint' }, message.payload_error));
    if (message.body_base64) body.push(h('pre', { class: 'code', tabIndex: 0, 'aria-label': 'Body in base64' }, message.body_base64));
  } else {
    body.push(pretty(message.payload));
  }
  if (!operator) body.push(h('p', { class: 'hint' }, 'Whoever may only look sees of a payload what types its values have.'));
  if (message.truncated) body.push(h('p', { class: 'hint' }, 'It is longer than what is shown.'));
  const copy = message.payload_error ? null : copyButton('payload', () => plain(message.payload));
  return card('Payload', body, { tools: [copy] });
}

/** @param {any} message */
function headers(message) {
  const all = Object.entries(message.headers ?? {});
  if (!all.length) return card('Headers', [nothing('It has none.')]);
  const rows = all.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, typeof value === 'string' ? value : plain(value))));
  return card('Headers', [h('dl', { class: 'headers' }, ...rows)], { note: badge(many(all.length, 'header'), 'plain') });
}

/** @param {string} name @param {string} text */
function copyable(name, text) {
  return h('div', { class: 'code-head' }, h('h3', {}, name), copyButton(name.toLowerCase(), () => text));
}

/** @param {string} what @param {() => string} text */
function copyButton(what, text) {
  if (!navigator.clipboard) return null; // only where the connection is trusted
  const copy = () => navigator.clipboard.writeText(text()).then(() => toast('Copied.'), () => toast('The browser did not allow it.', 'error'));
  return button('Copy', copy, { kind: 'quiet small', icon: 'copy', label: `Copy the ${what}` });
}
