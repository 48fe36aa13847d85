// Everything at a glance.

import { ask } from './api.js';
import { button, card, field, filterBox, nothing } from './card.js';
import { askForm } from './dialog.js';
import { fill, h } from './dom.js';
import { count } from './format.js';
import { GroupList } from './groups.js';
import { Happenings } from './happenings.js';
import { Numbers } from './numbers.js';
import { QueueTable } from './queues.js';
import { StatusStrip } from './status.js';
import { toast, tried } from './toast.js';

const GROUPS = 4;

/** @param {import('./view.js').Context} context @returns {import('./view.js').View} */
export function overviewPage({ operator, live }) {
  const status = new StatusStrip();
  const numbers = new Numbers();
  const happenings = new Happenings();
  const queues = new QueueTable();
  const groups = new GroupList({
    operator,
    onend: () => void live.now(),
    empty: () => nothing('No dead letters.', 'A message that fails every retry comes here, with its traceback and a button to send it back.'),
  });
  const more = h('span', { class: 'card-note' });
  const queueCount = h('span', {});
  const loading = h('p', { class: 'loading' }, h('span', { class: 'spinner' }), 'Looking at the broker …');
  const body = h(
    'div',
    { hidden: true },
    status.element,
    numbers.element,
    h(
      'div',
      { class: 'columns' },
      card('Failures', [groups.element], { tools: [more], kind: 'failures' }),
      card('Lately', [happenings.element], { kind: 'lately' }),
    ),
    card('Queues', [queues.element], {
      kind: 'queues',
      note: queueCount,
      tools: [
        filterBox('queues', (text) => void tried(() => queues.filter(text))),
        operator && button('New queue', () => newQueue(() => tried(() => queues.refresh())), { kind: 'quiet', icon: 'plus' }),
      ],
    }),
  );
  const element = h('div', { class: 'overview' }, h('h1', { class: 'hidden-title', tabIndex: -1 }, 'Overview'), loading, body);

  return {
    title: 'Overview',
    element,
    look: (overview) => {
      status.show(overview);
      numbers.show(overview.numbers);
      happenings.show(overview.happenings.slice(0, 30));
      groups.show(overview.groups.slice(0, GROUPS));
      fill(more, overview.dead > 0 && h('a', { href: '#/dead-letters' }, overview.dead === 1 ? 'The dead letter' : `All ${count(overview.dead)} dead letters`));
      queueCount.textContent = count(overview.queue_count);
      loading.hidden = true;
      body.hidden = false;
    },
    refresh: () => queues.refresh(),
  };
}

/** @param {() => void} ondone */
function newQueue(ondone) {
  const name = h('input', { type: 'text', required: true, autocomplete: 'off', spellcheck: 'false' });
  const patterns = h('input', { type: 'text', autocomplete: 'off', spellcheck: 'false', placeholder: 'order.* payment.failed' });
  askForm('New queue', {
    fields: [field('Name', name), field('Events it takes', patterns, 'Patterns with spaces between them; it can also be bound later.')],
    button: h('button', { class: 'button primary', type: 'submit' }, 'Create'),
    act: async () => {
      const wanted = patterns.value.split(/[\s,]+/).filter(Boolean);
      await ask('api/queues', { method: 'POST', body: { name: name.value.trim(), patterns: wanted } });
      toast(`The queue ${name.value.trim()} is there.`);
      ondone();
    },
  });
  name.focus();
}
