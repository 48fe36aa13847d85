// Which page the address names: `#/queues/billing?group=1f`.

import { part } from './api.js';

/** @typedef {{parts: string[], query: URLSearchParams}} Route */

/** @param {string} hash @returns {Route} */
export function route(hash) {
  const [path, query = ''] = hash.replace(/^#\/?/, '').split(/\?(.*)/s);
  const parts = path.split('/').filter(Boolean).map(decoded);
  return { parts, query: new URLSearchParams(query) };
}

/** The address of a page. @param {string[]} parts @param {Record<string, string>} [query] */
export function link(parts, query = {}) {
  const asked = new URLSearchParams(query).toString();
  return `#/${parts.map(part).join('/')}${asked ? `?${asked}` : ''}`;
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
