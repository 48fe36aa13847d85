// Asking the service.

/** Where the dashboard is: it may be mounted below another site. */
export const HOME = new URL('./', document.baseURI);
const PATIENCE = 20_000;

/** An answer that says no, or none at all: what happened, and what to do. */
export class Problem extends Error {
  /** @param {string} type @param {string} message @param {string} hint @param {number} status 0 if there was no answer */
  constructor(type, message, hint, status) {
    super(message);
    this.type = type;
    this.hint = hint;
    this.status = status;
  }
}

/** Somebody who has to sign in again. */
export const signedOut = new EventTarget();

/**
 * @param {string} path such as `api/queues`
 * @param {{method?: string, body?: any, query?: Record<string, any>, exact?: boolean}} [options]
 * `exact` keeps whole numbers that JavaScript would round.
 * @returns {Promise<any>}
 */
export async function ask(path, { method = 'GET', body, query, exact = false } = {}) {
  const url = address(path, query);
  /** @type {Record<string, string>} */
  const headers = { Accept: 'application/json' };
  if (method !== 'GET') headers['X-QueueCraft'] = '1';
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  let answer;
  let text;
  try {
    answer = await fetch(url, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: 'same-origin',
      cache: 'no-store',
      signal: AbortSignal.timeout(PATIENCE),
    });
    text = await answer.text();
  } catch (error) {
    const late = error instanceof DOMException && error.name === 'TimeoutError';
    throw new Problem(
      'NoAnswer',
      late ? 'The service did not answer in time.' : 'The service cannot be reached.',
      'It is tried again by itself.',
      0,
    );
  }
  const value = parsed(text, exact);
  if (answer.ok) return value;
  const told = value?.error ?? {};
  if (answer.status === 401 && path !== 'session') signedOut.dispatchEvent(new Event('signed-out'));
  throw new Problem(
    told.type ?? 'Refused',
    told.message ?? `The service answered ${answer.status}.`,
    told.hint ?? '',
    answer.status,
  );
}

/** @param {string} path @param {Record<string, any>} [query] */
export function address(path, query = {}) {
  const url = new URL(path, HOME);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== '') url.searchParams.set(name, String(value));
  }
  return url;
}

/** A name as part of a path. @param {string} name */
export function part(name) {
  return encodeURIComponent(name);
}

/** @param {string} text @param {boolean} exact */
function parsed(text, exact) {
  if (!text) return null;
  try {
    return exact ? JSON.parse(text, whole) : JSON.parse(text);
  } catch {
    return null;
  }
}

/** @param {string} _key @param {any} value @param {{source?: string}} [context] */
function whole(_key, value, context) {
  const rounded = typeof value === 'number' && !Number.isSafeInteger(value);
  return rounded && /^-?\d+$/.test(context?.source ?? '') ? BigInt(context.source) : value;
}
