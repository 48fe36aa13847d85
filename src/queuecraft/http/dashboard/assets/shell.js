// What is around every page: where one can go, whether what is shown is fresh, who is signed in.

import { button } from './card.js';
import { fill, h, say } from './dom.js';
import { clock, count } from './format.js';
import { icon, mark } from './icons.js';
import { JobPills } from './jobs.js';
import { showKeys } from './keys.js';
import { theme, toggleTheme } from './theme.js';

const PLACES = [
  ['', 'overview', 'Overview'],
  ['dead-letters', 'dead', 'Dead letters'],
  ['delayed', 'delayed', 'Delayed'],
  ['workers', 'workers', 'Workers'],
  ['exchanges', 'exchanges', 'Exchanges'],
  ['audit', 'audit', 'Audit log'],
  ['reports', 'reports', 'Reports'],
];
const FIRST = 4; // that fit on a phone; the others are under "More"

export class Shell {
  /**
   * @param {import('./live.js').Live} live
   * @param {{role: string, name?: string | null}} session
   * @param {(() => void) | null} onsignout
   */
  constructor(live, session, onsignout) {
    this._live = live;
    this._pills = new JobPills();
    this._pulse = h('span', { class: 'pulse', role: 'status' }, h('span', { class: 'pulse-dot' }), h('span', { class: 'pulse-text' }, 'connecting'));
    this._banner = h('div', { class: 'banner', role: 'alert', hidden: true });
    this._deadCounts = [h('span', { class: 'nav-count', hidden: true }), h('span', { class: 'nav-count', hidden: true })];
    this._links = /** @type {[string, HTMLElement][]} */ ([]);
    this.main = h('main', { class: 'page', id: 'page' });
    const themeButton = h('button', { class: 'button icon-only', type: 'button', onclick: () => this._turn() });
    this._themeButton = themeButton;
    const who = h(
      'div',
      { class: 'who' },
      h('span', { class: 'who-name', title: session.name ?? '' }, session.name || (session.role === 'reader' ? 'Reader' : 'Operator')),
      h('span', { class: 'who-role' }, session.role === 'reader' ? 'may look' : 'may do all'),
    );
    const out = () =>
      onsignout && h('button', { class: 'button icon-only', type: 'button', 'aria-label': 'Sign out', title: 'Sign out', onclick: onsignout }, icon('out'));
    const side = h(
      'aside',
      { class: 'side' },
      h('a', { class: 'brand', href: '#/' }, mark(), 'QueueCraft'),
      h('nav', { class: 'nav', 'aria-label': 'Pages' }, ...PLACES.map((place, i) => this._link(place, i === 1 ? this._deadCounts[0] : null))),
      h(
        'div',
        { class: 'side-foot' },
        who,
        h(
          'div',
          { class: 'side-tools' },
          themeButton,
          h('button', { class: 'button icon-only', type: 'button', 'aria-label': 'Keys', title: 'Keys (?)', onclick: showKeys }, icon('help')),
          out(),
        ),
      ),
    );
    this._sheet = h(
      'div',
      { class: 'sheet', hidden: true, id: 'sheet' },
      ...PLACES.slice(FIRST).map((place) => this._link(place, null)),
      button('Light or dark', () => this._turn(), { kind: 'quiet', icon: 'moon' }),
      onsignout && button('Sign out', onsignout, { kind: 'quiet', icon: 'out' }),
    );
    this._more = h(
      'button',
      { class: 'tab', type: 'button', 'aria-expanded': 'false', 'aria-controls': 'sheet', onclick: () => this._toggleSheet() },
      icon('more'),
      'More',
    );
    const tabs = h(
      'nav',
      { class: 'tabs', 'aria-label': 'Pages' },
      ...PLACES.slice(0, FIRST).map((place, i) => this._link(i === 1 ? [place[0], place[1], 'Dead'] : place, i === 1 ? this._deadCounts[1] : null, 'tab')),
      this._more,
    );
    const top = h('div', { class: 'top' }, h('a', { class: 'brand', href: '#/' }, mark(), 'QueueCraft'), h('span', { class: 'top-broker' }), this._pulse);
    this._broker = /** @type {HTMLElement} */ (top.querySelector('.top-broker'));
    this.element = h(
      'div',
      { class: 'shell' },
      h('a', { class: 'skip', href: '#page', onclick: (/** @type {Event} */ event) => this._skip(event) }, 'To the content'),
      side,
      h('div', { class: 'body' }, top, this._banner, this.main),
      this._pills.element,
      this._sheet,
      tabs,
    );
    this._named();
  }

  /** @param {[string, string, string] | string[]} place @param {HTMLElement | null} extra @param {string} [kind] */
  _link([path, name, text], extra, kind = 'nav-link') {
    const element = h('a', { class: kind, href: `#/${path}` }, icon(name), h('span', {}, text), extra);
    this._links.push([path, element]);
    return element;
  }

  /** The page that is shown. @param {string} first */
  opened(first) {
    const at = first === 'queues' ? '' : first;
    for (const [path, element] of this._links) {
      if (path === at) element.setAttribute('aria-current', 'page');
      else element.removeAttribute('aria-current');
    }
    if (!this._sheet.hidden) this._toggleSheet();
  }

  /** @param {any} overview */
  update(overview) {
    const dead = overview.dead ?? 0;
    for (const element of this._deadCounts) {
      say(element, dead > 9999 ? `${count(Math.round(dead / 1000))}k` : count(dead));
      element.hidden = !dead;
    }
    const latency = overview.asked_in === null || overview.asked_in === undefined ? '' : ` answered in ${Math.max(1, Math.round(overview.asked_in * 1000))} ms`;
    say(this._broker, overview.url || overview.broker);
    this._broker.title = `${overview.broker}${latency}`;
    this._pills.show(overview.jobs ?? []);
    document.documentElement.dataset.status = overview.status;
  }

  /** Whether what is shown is fresh. */
  beat() {
    const { pulse, heardAt } = this._live;
    const silent = Math.round((Date.now() - heardAt) / 1000);
    this._pulse.className = `pulse ${pulse}`;
    const words = { live: 'live', late: `${silent} s ago`, offline: 'offline' };
    say(/** @type {Element} */ (this._pulse.lastChild), heardAt || pulse === 'offline' ? words[pulse] : 'connecting');
    const lost = pulse === 'offline' && (heardAt > 0 || this._live.failed);
    if (lost === this._banner.hidden) {
      const since = heardAt ? `What you see is from ${clock(heardAt)}. ` : '';
      fill(this._banner, icon('warning'), h('span', {}, h('strong', {}, 'The service does not answer. '), since, 'It is tried again every two seconds.'));
      this._banner.hidden = !lost;
    }
  }

  _turn() {
    toggleTheme();
    this._named();
  }

  _named() {
    const other = theme() === 'dark' ? 'light' : 'dark';
    fill(this._themeButton, icon(other === 'dark' ? 'moon' : 'sun'));
    this._themeButton.setAttribute('aria-label', `Show it ${other}`);
    this._themeButton.title = `Show it ${other}`;
  }

  _toggleSheet() {
    this._sheet.hidden = !this._sheet.hidden;
    this._more.setAttribute('aria-expanded', String(!this._sheet.hidden));
  }

  /** The address is the page's; this only moves the focus. @param {Event} event */
  _skip(event) {
    event.preventDefault();
    this.main.querySelector('h1')?.focus();
  }
}
