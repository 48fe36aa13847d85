// One queue: what is in it, who works on it, and what can be done about it.

import { ask, part } from './api.js';
import { badge, button, card, field, nothing, pageHead, trouble } from './card.js';
import { askForm, confirmTyped } from './dialog.js';
import { fill, h } from './dom.js';
import { bytes, count, drain, many, rate, seconds, time } from './format.js';
import { GroupList } from './groups.js';
import { showJob } from './jobs.js';
import { Plot } from './plot.js';
import { chosen } from './redrive.js';
import { link } from './router.js';
import { Table } from './table.js';
import { Tiles } from './tiles.js';
import { toast, tried } from './toast.js';
import { WORKER_COLUMNS } from './workers.js';

/** @param {import('./view.js').Context} context @param {string} name @returns {import('./view.js').View} */
export function queuePage({ operator, live }, name) {
  const path = `api/queues/${part(name)}`;
  const badges = h('span', { class: 'badges' });
  const tools = h('div', { class: 'page-tools' });
  const tiles = new Tiles();
  const plot = new Plot(`Messages in ${name}, and how many are handled a second, over time`);
  const groups = new GroupList({ operator, onend: again, empty: () => nothing('None failed for good.') });
  const bindings = new Table({
    label: 'Bindings',
    columns: bindingColumns(operator, unbind),
    key: (row) => JSON.stringify(row),
    empty: () => nothing('Nothing is bound to it.', 'It takes only what is sent to it by its name.'),
  });
  const workers = new Table({
    label: 'Workers of this queue',
    columns: WORKER_COLUMNS.filter((each) => each.label !== 'Queue'),
    key: (row) => `${row.process} ${row.queue}`,
    mood: (row) => (row.state === 'silent' ? 'odd' : ''),
    empty: () => nothing('No worker has told that it is alive.', ['Start one: ', h('code', {}, 'queuecraft run shop:qc'), '.']),
  });
  const messages = new Messages(name, operator);
  const workersCard = card('Workers', [workers.element]);
  const groupsCard = card('Failures', [groups.element]);
  let actions = '';

  const element = h(
    'div',
    {},
    pageHead(name, { back: ['#/', 'Overview'], under: badges, tools: [tools] }),
    tiles.element,
    card('The last minutes', [plot.element]),
    groupsCard,
    workersCard,
    card('Bindings', [bindings.element], { tools: [operator && button('Bind', bind, { kind: 'quiet small', icon: 'plus' })] }),
    messages.element,
  );

  async function again() {
    await live.now();
    await tried(() => view.refresh());
  }

  function bind() {
    const patterns = input('order.* payment.failed');
    const exchange = input('');
    askForm(`Bind ${name}`, {
      fields: [field('Events it takes', patterns, 'Patterns with spaces between them.'), field('Exchange', exchange, 'Empty: the one for events.')],
      button: h('button', { class: 'button primary', type: 'submit' }, 'Bind'),
      act: async () => {
        const body = { patterns: patterns.value.split(/[\s,]+/).filter(Boolean), exchange: exchange.value.trim() || undefined };
        await ask(`${path}/bindings`, { method: 'POST', body });
        await again();
      },
    });
    patterns.focus();
  }

  /** @param {any} binding */
  function unbind(binding) {
    confirmTyped({
      title: 'Remove the binding',
      text: `Events that match ${binding.pattern || 'it'} no longer reach this queue.`,
      word: name,
      verb: 'Remove',
      act: async () => {
        const body = { patterns: [binding.pattern], exchange: binding.exchange, headers: binding.headers ?? undefined };
        await ask(`${path}/bindings`, { method: 'DELETE', body });
        await again();
      },
    });
  }

  function pause() {
    const reason = input('the bank is down');
    askForm(`Pause ${name}`, {
      fields: [h('p', {}, 'Its workers finish what they hold and take no more, in every process, until somebody resumes it.'), field('Why', reason, 'Everybody who looks sees it.')],
      button: h('button', { class: 'button primary', type: 'submit' }, 'Pause'),
      act: async () => {
        await ask(`${path}/pause`, { method: 'POST', body: { reason: reason.value.trim() } });
        toast(`${name} is paused.`);
        await again();
      },
    });
    reason.focus();
  }

  function resume() {
    return tried(async () => {
      await ask(`${path}/resume`, { method: 'POST' });
      await again();
    }, `${name} goes on.`);
  }

  function purge() {
    confirmTyped({
      title: `Purge ${name}`,
      text: 'Throws away all messages that wait in it. They cannot be brought back.',
      word: name,
      verb: 'Purge',
      act: async () => {
        const { purged } = await ask(`${path}/purge`, { method: 'POST', body: { confirm: name } });
        toast(`${many(purged, 'message')} thrown away.`);
        await again();
      },
    });
  }

  function remove() {
    confirmTyped({
      title: `Delete ${name}`,
      text: 'Deletes the queue, its bindings and all messages in it.',
      word: name,
      verb: 'Delete',
      act: async () => {
        await ask(path, { method: 'DELETE', query: { confirm: name } });
        toast(`${name} is deleted.`);
        location.hash = '#/';
      },
    });
  }

  function move() {
    const to = input('another-queue');
    to.required = true;
    const limit = h('input', { type: 'number', min: 1 });
    const speed = h('input', { type: 'number', min: 0.1, step: 'any' });
    askForm(`Move messages of ${name}`, {
      fields: [field('To the queue', to), field('At most', limit, 'Empty: all that are there.'), field('At most per second', speed)],
      button: h('button', { class: 'button primary', type: 'submit' }, 'Move'),
      act: async () => {
        const body = { to: to.value.trim(), ...chosen({ limit, rate: speed }) };
        const job = await ask(`${path}/move`, { method: 'POST', body });
        void showJob(job).then(again);
      },
    });
    to.focus();
  }

  /** @param {any} queue */
  function offer(queue) {
    const paused = queue.paused !== null;
    if (!operator || actions === String(paused)) return;
    actions = String(paused);
    fill(
      tools,
      paused ? button('Resume', resume, { kind: 'primary', icon: 'play' }) : button('Pause', pause, { icon: 'pause' }),
      button('Move', move, { kind: 'quiet', icon: 'move' }),
      button('Purge', purge, { kind: 'quiet', icon: 'purge' }),
      button('Delete', remove, { kind: 'quiet danger-text', icon: 'close' }),
    );
  }

  const view = {
    title: name,
    element,
    every: 3500,
    refresh: async () => {
      const answer = await ask(path);
      const queue = answer.queue;
      const deadQueue = queue.holds_dead_letters ? name : answer.dead_letter_queue;
      offer(queue);
      fill(
        badges,
        queue.paused !== null ? badge(queue.paused || 'paused', 'odd') : null,
        queue.holds_dead_letters ? badge('holds dead letters', 'plain') : null,
        deadQueue && h('a', { href: link(['dead-letters', deadQueue]) }, `Dead letters in ${deadQueue}`),
      );
      tiles.show(tilesOf(queue));
      plot.update([
        { name: 'Waiting', kind: 'depth', format: count, points: answer.history?.ready ?? [] },
        { name: 'Handled a second', kind: 'pace', format: rate, points: answer.history?.handled_per_second ?? [] },
      ]);
      groups.show(answer.groups);
      groupsCard.hidden = answer.groups.length === 0;
      workers.show(answer.workers ?? []);
      workersCard.hidden = answer.workers === null || queue.holds_dead_letters;
      bindings.show(answer.bindings);
    },
  };
  return view;
}

/** @param {string} placeholder */
function input(placeholder) {
  return h('input', { type: 'text', placeholder, autocomplete: 'off', spellcheck: 'false' });
}

/** @param {any} queue @returns {import('./tiles.js').Tile[]} */
function tilesOf(queue) {
  const draining = drain(queue);
  return [
    ['Waiting', count(queue.ready)],
    ['In flight', count(queue.in_flight)],
    ['Delayed', count(queue.delayed)],
    ['Dead', count(queue.dead), queue.dead ? 'error' : ''],
    ['Consumers', count(queue.consumers), queue.consumers === 0 && queue.ready ? 'error' : ''],
    ['Empty in', draining.level === 'error' ? 'never' : draining.words, draining.level],
    ['Oldest', seconds(queue.oldest_age)],
    ['In/s', rate(queue.in_per_second)],
    ['Handled/s', rate(queue.handled_per_second)],
    ['Failed/s', rate(queue.failed_per_second), queue.failed_per_second ? 'error' : ''],
    ['p95', seconds(queue.p95)],
  ];
}

/** @param {boolean} operator @param {(binding: any) => void} onremove @returns {import('./table.js').Column<any>[]} */
function bindingColumns(operator, onremove) {
  /** @type {import('./table.js').Column<any>[]} */
  const columns = [
    { label: 'Events', main: true, value: (row) => row.pattern, cell: (row) => h('code', {}, row.pattern || 'all') },
    { label: 'Exchange', value: (row) => [row.exchange, row.type], cell: (row) => [h('span', {}, row.exchange || 'the default one'), row.type ? badge(row.type, 'plain') : null] },
    { label: 'Headers', value: (row) => row.headers, cell: (row) => (row.headers && Object.keys(row.headers).length ? h('code', {}, JSON.stringify(row.headers)) : '–') },
  ];
  if (operator) {
    columns.push({
      label: '',
      kind: 'actions',
      value: () => '',
      cell: (row) => button('Remove', () => onremove(row), { kind: 'quiet small', label: `Remove the binding ${row.pattern}` }),
    });
  }
  return columns;
}

/** The first messages, looked at when somebody asks: on some brokers that leaves a mark. */
class Messages {
  /** @param {string} queue @param {boolean} operator */
  constructor(queue, operator) {
    this._queue = queue;
    this._operator = operator;
    this._place = h('div', {}, nothing('Not looked at yet.', 'The first 50 are shown without taking them out.'));
    this._button = button('Look', () => this.look(false), { kind: 'small', icon: 'eye', label: 'Look at messages' });
    this.element = card('Messages', [this._place], { tools: [this._button] });
  }

  /** @param {boolean} force */
  async look(force) {
    try {
      const { messages } = await ask(`api/queues/${part(this._queue)}/messages`, { query: { limit: 50, force } });
      const table = new Table({
        label: 'Messages',
        columns: MESSAGE_COLUMNS,
        key: (row) => row.id,
        href: (row) => link(['queues', this._queue, 'messages', row.id]),
        empty: () => nothing('No message waits.'),
      });
      table.show(messages);
      fill(this._place, table.element);
      this._button.lastChild.textContent = 'Look again';
    } catch (error) {
      const marks = error.type === 'UnsupportedFeature' && this._operator && !force;
      fill(this._place, trouble(error), marks && button('Look anyway', () => this.look(true), { kind: 'quiet small' }));
    }
  }
}

/** @type {import('./table.js').Column<any>[]} */
export const MESSAGE_COLUMNS = [
  { label: 'Event', main: true, value: (row) => row.event, cell: (row) => h('span', { class: 'name' }, row.event || '(no event)') },
  { label: 'Payload', kind: 'wide preview', value: (row) => row.preview, cell: (row) => h('code', {}, row.preview ?? '–') },
  { label: 'Published', value: (row) => row.timestamp, cell: (row) => time(row.timestamp) },
  { label: 'Attempt', number: true, value: (row) => count(row.attempt) },
  { label: 'Size', number: true, value: (row) => bytes(row.size) },
];
