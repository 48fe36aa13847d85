// Work that goes on in the service: redrives, moves, deletions.

import { ask, part } from './api.js';
import { button } from './card.js';
import { openDialog, sentences } from './dialog.js';
import { fill, h, say } from './dom.js';
import { count, many } from './format.js';
import { tried } from './toast.js';

const EVERY = 500; // milliseconds
/** @type {Record<string, string>} */
const DONE = { redrive: 'sent back', move: 'moved', delete: 'deleted' };
/** @type {Record<string, string>} */
const TITLES = { redrive: 'Redrive', move: 'Move', delete: 'Delete' };

/** Whether it goes on. @param {any} job */
export function running(job) {
  return job.state === 'running' || job.state === 'waiting-for-canary';
}

/**
 * Looks after a job until it has ended.
 * @param {any} job
 * @param {(job: any) => void} onjob
 * @param {() => boolean} wanted whether somebody still looks
 */
export async function follow(job, onjob, wanted = () => true) {
  onjob(job);
  while (running(job) && wanted()) {
    await new Promise((resolve) => setTimeout(resolve, EVERY));
    if (!wanted()) break;
    try {
      job = await ask(`api/jobs/${part(job.id)}`);
    } catch (error) {
      if (error.status) throw error;
      continue; // not reached: the job goes on, and so does the asking
    }
    onjob(job);
  }
  return job;
}

/** Where it stands, in a sentence. @param {any} job */
export function outcome(job) {
  const done = DONE[job.kind] ?? 'done';
  const letters = (/** @type {number} */ n) => many(n, 'message');
  const was = (/** @type {number} */ n) => `${letters(n)} ${n === 1 ? 'was' : 'were'} ${done}`;
  const refused = job.refused ? ` ${letters(job.refused)} could not be, and stayed where ${job.refused === 1 ? 'it was' : 'they were'}.` : '';
  switch (job.state) {
    case 'running':
      if (!job.total) return 'It begins …';
      return job.kept
        ? `${letters(job.moved)} ${done} so far; ${count(job.seen)} of ${count(job.total)} looked at.`
        : `${count(job.moved)} of ${letters(job.total)} ${done}.`;
    case 'waiting-for-canary':
      return `${letters(job.moved)} went first. Waiting to see whether ${job.moved === 1 ? 'it is' : 'they are'} handled this time …`;
    case 'done':
      return `Done: ${was(job.moved)}.${refused}`;
    case 'stopped':
      return `Stopped: ${(job.stopped ?? 'it did not go well').replace(/[.\s]+$/, '')}. ${was(job.moved)}, the rest stayed.${refused}`;
    case 'cancelled':
      return `Cancelled: ${was(job.moved)}, the rest stayed.${refused}`;
    default:
      return `Failed after ${was(job.moved).replace(' was ', ' had been ').replace(' were ', ' had been ')}.${refused}`;
  }
}

/** @type {Record<string, string>} */
const LEVELS = { done: 'ok', stopped: 'error', failed: 'error', cancelled: 'warning' };

/** A bar, a sentence, and a button to cancel. */
export class JobProgress {
  /** @param {() => void} onclose */
  constructor(onclose) {
    this._bar = h('div', { class: 'progress-bar' });
    this._track = h(
      'div',
      { class: 'progress', role: 'progressbar', 'aria-label': 'Progress', 'aria-valuemin': 0, 'aria-valuemax': 100 },
      this._bar,
    );
    this._text = h('p', { class: 'progress-text', role: 'status' });
    this._errors = h('ul', { class: 'progress-errors' });
    this._hint = h('p', { class: 'hint' }, 'You can close this: it goes on, and the corner of the page tells how far it is.');
    this._cancel = button('Stop it', () => tried(() => ask(`api/jobs/${part(this._id)}`, { method: 'DELETE' })), { kind: 'quiet' });
    this._close = button('Close', onclose, { kind: 'primary' });
    this._id = '';
    this.element = h(
      'div',
      { class: 'job' },
      this._track,
      this._text,
      this._errors,
      this._hint,
      h('div', { class: 'dialog-foot' }, this._cancel, this._close),
    );
  }

  /** @param {any} job */
  show(job) {
    this._id = job.id;
    const on = running(job);
    const share = job.state === 'done' ? 1 : job.total ? Math.min(1, job.seen / job.total) : 0;
    this._bar.style.width = `${Math.round(share * 100)}%`;
    this._track.className = `progress ${LEVELS[job.state] ?? ''} ${on && !job.total ? 'unknown' : ''} ${job.state}`;
    this._track.setAttribute('aria-valuenow', String(Math.round(share * 100)));
    say(this._text, outcome(job));
    this._text.className = `progress-text ${LEVELS[job.state] ?? ''}`;
    fill(this._errors, ...(job.errors ?? []).map((/** @type {string} */ each) => h('li', {}, each)));
    this._cancel.hidden = !on;
    this._hint.hidden = !on;
  }
}

/**
 * Watches a job in a window.
 * @param {any} job
 * @param {{content: HTMLElement, close: () => void, dialog: HTMLDialogElement}} [opened] to use this one
 * @param {import('./dom.js').Child} [what] what it does, in better words than its own
 */
export async function showJob(job, opened, what = job.what) {
  const place = opened ?? openDialog(title(job), []);
  const progress = new JobProgress(place.close);
  fill(place.content, h('p', { class: 'soft' }, what), progress.element);
  try {
    return await follow(job, (each) => progress.show(each), () => place.dialog.open);
  } catch (error) {
    fill(place.content, ...sentences(error));
    return job;
  }
}

/** @param {any} job */
function title(job) {
  return TITLES[job.kind] ?? 'Work';
}

/** Those that run, in the corner of the page. */
export class JobPills {
  constructor() {
    this.element = h('div', { class: 'pills' });
  }

  /** @param {any[]} jobs */
  show(jobs) {
    const shown = jobs.filter((job) => running(job) && !job.dry_run);
    fill(
      this.element,
      ...shown.map((job) =>
        h(
          'button',
          { class: 'pill', type: 'button', onclick: () => showJob(job) },
          h('span', { class: 'spinner' }),
          `${title(job)} ${job.queue}: ${job.state === 'waiting-for-canary' ? 'canary' : job.total ? `${Math.round((job.seen / job.total) * 100)} %` : count(job.moved)}`,
        ),
      ),
    );
  }
}
