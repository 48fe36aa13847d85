// All failures, in groups.

import { ask } from './api.js';
import { card, filterBox, nothing, pageHead } from './card.js';
import { fill, h } from './dom.js';
import { count, many } from './format.js';
import { GroupList } from './groups.js';
import { link } from './router.js';

/** @param {import('./view.js').Context} context @returns {import('./view.js').View} */
export function deadLettersPage({ operator, live }) {
  let filter = '';
  /** @type {any[]} */
  let found = [];
  const under = h('span', {});
  const queues = h('div', { class: 'queue-links' });
  const list = new GroupList({
    operator,
    onend: () => void live.now(),
    empty: () => nothing('No dead letters.', 'A message that fails every retry is kept here with its traceback, until it is sent back or deleted.'),
  });
  const show = () => {
    const text = filter.toLowerCase();
    const shown = found.filter((each) => `${each.queue} ${each.error_type} ${each.error} ${each.event} ${each.reason}`.toLowerCase().includes(text));
    list.show(shown);
  };
  const box = filterBox('failures', (text) => {
    filter = text;
    show();
  });
  const element = h(
    'div',
    {},
    pageHead('Dead letters', { under, tools: [box] }),
    card('By queue', [queues]),
    card('By failure', [list.element], { kind: 'failures' }),
  );
  return {
    title: 'Dead letters',
    element,
    every: 4000,
    refresh: async () => {
      const answer = await ask('api/dead-letters/groups');
      found = answer.groups;
      under.textContent = answer.looked_at < answer.total
        ? `${many(answer.total, 'letter')}; the groups are made of the ${count(answer.looked_at)} that were looked at.`
        : `${many(answer.total, 'letter')} in ${many(found.length, 'group')}.`;
      show();
      showQueues(queues, found);
    },
  };
}

/** @param {HTMLElement} place @param {any[]} groups */
function showQueues(place, groups) {
  const counts = new Map();
  for (const each of groups) counts.set(each.queue, (counts.get(each.queue) ?? 0) + each.count);
  /** @type {HTMLElement} */ (place.parentElement).hidden = counts.size < 2;
  const sign = JSON.stringify([...counts]);
  if (place.dataset.shown === sign) return;
  place.dataset.shown = sign;
  fill(
    place,
    ...[...counts].map(([queue, n]) => h('a', { class: 'queue-link', href: link(['dead-letters', queue]) }, queue, h('strong', {}, count(n)))),
  );
}
