// The dashboard: signs in, opens the page the address names, keeps it up to date.

import { ask, signedOut } from './api.js';
import { auditPage } from './audit.js';
import { nothing, pageHead, trouble } from './card.js';
import { deadLettersPage } from './dead_letters.js';
import { delayedPage } from './delayed.js';
import { closeDialogs } from './dialog.js';
import { fill, h } from './dom.js';
import { exchangesPage } from './exchanges.js';
import { refreshTimes } from './format.js';
import { listenToKeys } from './keys.js';
import { lettersPage } from './letters.js';
import { Live } from './live.js';
import { letterPage, messagePage } from './message.js';
import { overviewPage } from './overview.js';
import { queuePage } from './queue.js';
import { reportsPage } from './reports.js';
import { route } from './router.js';
import { Shell } from './shell.js';
import { signInPage } from './signin.js';
import { tried } from './toast.js';
import { workersPage } from './workers.js';

/** @typedef {import('./view.js').View} View */
/** @typedef {import('./view.js').Context} Context */

/** The page for an address. @param {import('./router.js').Route} at @param {Context} context @returns {View} */
function pageFor({ parts, query }, context) {
  const [first = '', second, third, fourth] = parts;
  if (first === '') return overviewPage(context);
  if (first === 'queues' && second && third === 'messages' && fourth) return messagePage(context, second, parts.slice(3).join('/'));
  if (first === 'queues' && second) return queuePage(context, second);
  if (first === 'dead-letters' && second && third) return letterPage(context, second, parts.slice(2).join('/'));
  if (first === 'dead-letters' && second) return lettersPage(context, second, query.get('group'));
  if (first === 'dead-letters') return deadLettersPage(context);
  if (first === 'delayed') return delayedPage(context);
  if (first === 'workers') return workersPage();
  if (first === 'exchanges') return exchangesPage();
  if (first === 'audit') return auditPage();
  if (first === 'reports') return reportsPage();
  const element = h('div', {}, pageHead('Nothing here'), nothing('There is no such page.', h('a', { href: '#/' }, 'To the overview')));
  return { title: 'Nothing here', element, refresh: () => undefined };
}

class App {
  constructor() {
    this._live = new Live();
    /** @type {Shell | null} */
    this._shell = null;
    /** @type {View | null} */
    this._view = null;
    /** @type {View | null} the one being brought up to date */
    this._refreshing = null;
    this._refreshedAt = 0;
    this._notice = h('div', { class: 'notice' });
    /** @type {Context} */
    this._context = { operator: false, live: this._live };
  }

  async start() {
    listenToKeys();
    setInterval(refreshTimes, 1000);
    addEventListener('hashchange', () => this._shell && this._open());
    signedOut.addEventListener('signed-out', () => this._shell && this._signIn('Your session has ended: sign in again.'));
    this._live.addEventListener('overview', () => this._looked());
    this._live.addEventListener('pulse', () => this._shell?.beat());
    await this._enter();
  }

  async _enter() {
    try {
      const session = await ask('session');
      if (session.role) this._begin(session, session.needs_token !== false);
      else if (session.needs_token === false) this._begin({ role: 'operator', name: null }, false);
      else this._signIn();
    } catch (error) {
      fill(document.body, h('main', { class: 'signin' }, trouble(error)));
      setTimeout(() => this._enter(), 2000);
    }
  }

  /** @param {string} [why] */
  _signIn(why) {
    this._live.stop();
    this._shell = null;
    this._view = null;
    document.title = 'Sign in · QueueCraft';
    const { page, focus } = signInPage((session) => this._begin(session, true), why);
    closeDialogs();
    fill(document.body, page);
    focus();
  }

  /** @param {any} session @param {boolean} leaves whether one can sign out */
  _begin(session, leaves) {
    this._context = { operator: session.role === 'operator', live: this._live };
    const out = async () => {
      if (await tried(() => ask('session', { method: 'DELETE' }))) this._signIn('You are signed out.');
    };
    this._shell = new Shell(this._live, session, leaves ? out : null);
    fill(document.body, this._shell.element);
    this._open();
    void this._live.start();
  }

  _open() {
    closeDialogs();
    const at = route(location.hash);
    const shell = /** @type {Shell} */ (this._shell);
    this._view = pageFor(at, this._context);
    this._refreshedAt = 0;
    fill(this._notice);
    fill(shell.main, this._notice, this._view.element);
    shell.opened(at.parts[0] ?? '');
    this._titled();
    scrollTo(0, 0);
    if (this._live.overview) this._view.look?.(this._live.overview);
    void this._refresh(this._view);
  }

  _looked() {
    this._shell?.update(this._live.overview);
    this._titled();
    const view = this._view;
    view?.look?.(this._live.overview);
    if (view && Date.now() - this._refreshedAt >= (view.every ?? 0)) void this._refresh(view);
  }

  _titled() {
    const word = this._live.overview?.status;
    const sign = word === 'critical' ? '● ' : word === 'warning' ? '▲ ' : '';
    document.title = `${sign}${this._view?.title ?? ''} · QueueCraft`;
  }

  /** @param {View} view */
  async _refresh(view) {
    if (this._refreshing === view) return;
    this._refreshing = view;
    this._refreshedAt = Date.now();
    try {
      await view.refresh(this._live.overview);
      if (this._view === view) fill(this._notice);
    } catch (error) {
      // That nothing answers at all is told above the page.
      if (this._view === view && error.status !== 0 && error.status !== 401) fill(this._notice, trouble(error));
    } finally {
      if (this._refreshing === view) this._refreshing = null;
    }
  }
}

void new App().start();
