// Payloads and tracebacks with colours.

import { h } from './dom.js';
import { many } from './format.js';

const MOST = 4000; // values that are drawn; what is larger is cut, and says so
const DEEPEST = 100;
const MASK = '•••';

/** A value as indented JSON. @param {any} value */
export function pretty(value) {
  let left = MOST;
  const token = (/** @type {string} */ kind, /** @type {string} */ text) => h('span', { class: `t-${kind}` }, text);

  /** @param {any} each @param {number} depth @returns {import('./dom.js').Child[]} */
  const drawn = (each, depth) => {
    left -= 1;
    if (each === null) return [token('null', 'null')];
    if (typeof each === 'string') return [token(each === MASK ? 'mask' : 'string', JSON.stringify(each))];
    if (typeof each !== 'object') return [token(typeof each === 'boolean' ? 'null' : 'number', String(each))];
    const list = Array.isArray(each);
    const [open, close] = list ? '[]' : '{}';
    const names = list ? null : Object.keys(each);
    const size = list ? each.length : names.length;
    if (!size) return [token('mark', open + close)];
    if (depth >= DEEPEST) return [token('cut', `${open} … ${close}`)];
    /** @type {import('./dom.js').Child[]} */
    const parts = [token('mark', open), '\n'];
    for (let i = 0; i < size; i += 1) {
      if (left <= 0) {
        parts.push(pad(depth + 1), token('cut', `… ${many(size - i, 'more')}`.replace(/mores$/, 'more')), '\n');
        break;
      }
      parts.push(pad(depth + 1));
      if (names) parts.push(token('key', JSON.stringify(names[i])), token('mark', ': '));
      parts.push(...drawn(list ? each[i] : each[names[i]], depth + 1));
      parts.push(i < size - 1 ? token('mark', ',') : null, '\n');
    }
    parts.push(pad(depth), token('mark', close));
    return parts;
  };

  return h('pre', { class: 'code', tabIndex: 0, 'aria-label': 'Payload' }, ...drawn(value, 0));
}

/** @param {number} depth */
function pad(depth) {
  return '  '.repeat(depth);
}

/** The value as text, for the clipboard. @param {any} value */
export function plain(value) {
  const text = JSON.stringify(value, (_key, each) => (typeof each === 'bigint' ? `\u0000${each}\u0000` : each), 2);
  return (text ?? '').replace(/"\\u0000(-?\d+)\\u0000"/g, '$1');
}

const FRAME = /^(\s*File ")(.*)(", line )(\d+)(, in )(.*)$/;
const LIBRARY = /(site-packages|dist-packages|\/lib\/python3|<frozen)/;

/** A traceback: where it happened stands out, frames of libraries stand back. @param {string} text */
export function traceback(text) {
  const lines = text.replace(/\s+$/, '').split('\n');
  let library = false;
  const parts = lines.flatMap((line, i) => {
    const end = i < lines.length - 1 ? '\n' : '';
    const frame = FRAME.exec(line);
    if (frame) {
      library = LIBRARY.test(frame[2]);
      return [
        h(
          'span',
          { class: library ? 'frame library' : 'frame' },
          frame[1],
          h('span', { class: 't-file' }, frame[2]),
          frame[3],
          h('span', { class: 't-number' }, frame[4]),
          frame[5],
          h('span', { class: 't-key' }, frame[6]),
        ),
        end,
      ];
    }
    if (/^\S/.test(line) && !line.startsWith('Traceback') && !line.startsWith('The above') && !line.startsWith('During')) {
      library = false;
      return [h('span', { class: 't-error' }, line), end];
    }
    const kind = /^\s/.test(line) ? (library ? 'source library' : 'source') : 't-mark';
    return [h('span', { class: kind }, line), end];
  });
  return h('pre', { class: 'code traceback', tabIndex: 0, 'aria-label': 'Traceback' }, ...parts);
}
