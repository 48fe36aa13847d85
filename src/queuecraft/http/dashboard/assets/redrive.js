// Sending dead letters back: counted first, a few before the rest, as fast as wanted.

import { ask, part } from './api.js';
import { field } from './card.js';
import { confirmTyped, openDialog, sentences } from './dialog.js';
import { fill, h } from './dom.js';
import { count, many } from './format.js';
import { follow, showJob } from './jobs.js';

/** @typedef {{queue: string, what: import('./dom.js').Child, meant: Record<string, any>, onend?: () => void}} Wanted
 * `meant` names the letters as the service does: `{group}`, `{ids}`, or all of the queue. */

/** @param {Wanted} wanted */
export async function openRedrive({ queue, what, meant, onend }) {
  const counted = h('p', { class: 'counted', role: 'status' }, h('span', { class: 'spinner' }), 'Counting what is meant; nothing is sent yet …');
  const canary = number('0', '1000000');
  const rate = number('0.1', '100000', 'any');
  const limit = number('1', '100000000');
  const problem = h('div', { class: 'form-problem', role: 'alert' });
  const go = h('button', { class: 'button primary', type: 'submit', disabled: true }, 'Redrive');
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    go.disabled = true;
    fill(problem);
    try {
      const body = { ...meant, ...chosen({ canary, rate, limit }) };
      const job = await ask(path(queue, 'redrive'), { method: 'POST', body });
      await showJob(job, opened, ['Sends ', what, ' back to where they failed.']);
      onend?.();
    } catch (error) {
      fill(problem, ...sentences(error));
      go.disabled = false;
    }
  };
  const form = h(
    'form',
    { class: 'form', onsubmit: submit },
    h('p', {}, 'Sends ', what, ' from ', h('code', {}, queue), ' back to where they failed, to be handled again from the start.'),
    counted,
    h(
      'div',
      { class: 'fields' },
      field('Canary', canary, 'So many go first; the rest follows only if all of them are handled. Empty: all at once.'),
      field('At most per second', rate, 'Empty: as fast as the broker takes them.'),
      field('At most', limit, 'Empty: all that are meant.'),
    ),
    problem,
    h('div', { class: 'dialog-foot' }, h('button', { class: 'button quiet', type: 'button', onclick: () => opened.close() }, 'Cancel'), go),
  );
  const opened = openDialog('Redrive', [form]);
  const open = () => opened.dialog.open;
  try {
    const asked = await ask(path(queue, 'redrive'), { method: 'POST', body: { ...meant, dry_run: true } });
    const job = await follow(asked, (each) => {
      if (each.seen > 1000) fill(counted, h('span', { class: 'spinner' }), `Counting: ${count(each.seen)} looked at …`);
    }, open);
    if (!open()) {
      await ask(`api/jobs/${part(job.id)}`, { method: 'DELETE' }).catch(() => {});
      return;
    }
    if (job.state !== 'done') throw new Error(job.errors?.[0] ?? job.stopped ?? `The dry run ended as ${job.state}.`);
    const meantCount = job.moved;
    counted.className = 'counted known';
    fill(counted, h('strong', {}, many(meantCount, 'letter')), ' would be sent back.');
    go.textContent = meantCount === 1 ? 'Redrive it' : `Redrive ${count(meantCount)}`;
    go.disabled = meantCount === 0;
    if (meantCount > 1) canary.value = String(Math.min(5, Math.ceil(meantCount / 10)));
    go.focus();
  } catch (error) {
    fill(counted);
    fill(problem, ...sentences(error));
  }
}

/**
 * Deletes letters for good, after the name of their queue was typed.
 * @param {Wanted & {title: string}} wanted
 */
export function openDelete({ queue, meant, title, what, onend }) {
  confirmTyped({
    title,
    text: `Deletes ${what} from ${queue} for good. They cannot be brought back.`,
    word: queue,
    verb: 'Delete',
    act: async () => {
      const job = await ask(path(queue, 'delete'), { method: 'POST', body: { ...meant, confirm: queue } });
      // What follows may open another page: only once the outcome was read.
      void showJob(job, openDialog(title, [], { onclose: onend }));
    },
  });
}

/** @param {string} queue @param {string} verb */
function path(queue, verb) {
  return `api/dead-letters/${part(queue)}/${verb}`;
}

/** @param {string} min @param {string} max @param {string} [step] */
function number(min, max, step = '1') {
  return h('input', { type: 'number', min, max, step, inputmode: 'decimal' });
}

/** What was filled in. @param {Record<string, HTMLInputElement>} inputs */
export function chosen(inputs) {
  const filled = Object.entries(inputs).filter(([, input]) => input.value.trim() !== '');
  const numbers = filled.map(([name, input]) => /** @type {const} */ ([name, Number(input.value)]));
  return Object.fromEntries(numbers.filter(([, value]) => value > 0));
}
