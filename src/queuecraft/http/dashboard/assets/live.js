// The overview as it changes: pushed by the service, asked for where that fails.

import { address, ask } from './api.js';

const LATE = 7000; // milliseconds without news after which it is asked for
const GONE = 15000; // after which nothing is heard any more
const AGAIN = 20000; // until the stream is tried again

/** @typedef {'live' | 'late' | 'offline'} Pulse */

/** `overview` after each one; `pulse` when how it is heard has changed. */
export class Live extends EventTarget {
  constructor() {
    super();
    /** @type {any} */
    this.overview = null;
    this.heardAt = 0;
    this.failed = false;
    this._source = /** @type {EventSource | null} */ (null);
    this._streamAt = 0;
    this._asking = false;
    this._timer = 0;
    this._seen = () => this._visible();
  }

  start() {
    this.stop();
    this.failed = false;
    document.addEventListener('visibilitychange', this._seen);
    this._timer = setInterval(() => this._watch(), 1000);
    this._stream();
    return this.now();
  }

  stop() {
    clearInterval(this._timer);
    document.removeEventListener('visibilitychange', this._seen);
    this._source?.close();
    this._source = null;
    this.overview = null;
    this.heardAt = 0;
  }

  /** @returns {Pulse} */
  get pulse() {
    const silent = Date.now() - this.heardAt;
    if (this.failed || silent > GONE) return 'offline';
    return silent > LATE ? 'late' : 'live';
  }

  /** Asks for it at once: something was changed. */
  async now() {
    if (this._asking) return;
    this._asking = true;
    try {
      this._heard(await ask('api/overview'));
    } catch (error) {
      this.failed = error.status !== 401;
      this.dispatchEvent(new Event('pulse'));
    } finally {
      this._asking = false;
    }
  }

  _stream() {
    this._source?.close();
    this._streamAt = Date.now();
    const source = new EventSource(address('api/live'));
    source.addEventListener('overview', (event) => this._heard(JSON.parse(event.data)));
    // It tries again by itself unless it was refused; `_watch` asks meanwhile.
    source.addEventListener('error', () => {
      if (this._source !== source) return;
      if (source.readyState === EventSource.CLOSED) this._source = null;
      void this.now();
    });
    this._source = source;
  }

  _watch() {
    if (document.hidden) return;
    const silent = Date.now() - Math.max(this.heardAt, 0);
    if (this._source === null && Date.now() - this._streamAt > AGAIN) this._stream();
    const wait = this._source === null || this.failed ? 2000 : LATE;
    if (silent > wait) void this.now();
    this.dispatchEvent(new Event('pulse'));
  }

  /** Nobody looks: the service need not look either. */
  _visible() {
    if (document.hidden) {
      this._source?.close();
      this._source = null;
    } else {
      this._stream();
      void this.now();
    }
  }

  /** @param {any} overview */
  _heard(overview) {
    this.overview = overview;
    this.heardAt = Date.now();
    this.failed = false;
    this.dispatchEvent(new Event('overview'));
    this.dispatchEvent(new Event('pulse'));
  }
}
