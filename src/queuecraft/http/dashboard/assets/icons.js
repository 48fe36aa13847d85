// Small drawings, 20 by 20, in the colour of the text beside them.

import { svg } from './dom.js';

/** @type {Record<string, string>} */
const PATHS = {
  overview: 'M3 10h3l2-6 4 12 2-6h3',
  dead: 'M4 5h12v8H4zM4 9h3.5l1 2h3l1-2H16M7 16h6',
  delayed: 'M10 3a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM10 6v4l3 2',
  workers: 'M6.5 9a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM2 16c0-3 2-4.5 4.5-4.5S11 13 11 16M13.5 9.5a2 2 0 1 0 0-4M13.5 12c2.4 0 4.5 1.2 4.5 4',
  exchanges: 'M4 5h5v4H4zM11 11h5v4h-5zM6.5 9v4H11M9 7h4.5v4',
  audit: 'M5 3h10v14H5zM8 7h4M8 10h4M8 13h2',
  reports: 'M4 16V9M8 16V4M12 16v-5M16 16V7',
  sun: 'M10 6.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7zM10 2v1.5M10 16.5V18M2 10h1.5M16.5 10H18M4.3 4.3l1.1 1.1M14.6 14.6l1.1 1.1M15.7 4.3l-1.1 1.1M5.4 14.6l-1.1 1.1',
  moon: 'M16 11.5A6.5 6.5 0 0 1 8.5 4a6.5 6.5 0 1 0 7.5 7.5z',
  help: 'M7.5 7.5a2.5 2.5 0 1 1 3.6 2.2c-.8.4-1.1.9-1.1 1.8M10 14.5v.1',
  out: 'M8 4H4v12h4M12 6.5 15.5 10 12 13.5M15 10H7.5',
  more: 'M4.5 10h.1M10 10h.1M15.5 10h.1',
  redrive: 'M15.5 8A6 6 0 1 0 16 11M16 4v4h-4',
  pause: 'M7 5v10M13 5v10',
  play: 'M7 4.5v11l8-5.5z',
  move: 'M3 10h12M11 6l4 4-4 4',
  purge: 'M4 6h12M8 6V4h4v2M6 6l1 11h6l1-11',
  close: 'M5 5l10 10M15 5L5 15',
  back: 'M12 4l-6 6 6 6',
  search: 'M9 4a5 5 0 1 0 0 10A5 5 0 0 0 9 4zM13 13l4 4',
  copy: 'M7 7h9v9H7zM4 13V4h9',
  check: 'M4 10.5l4 4 8-9',
  warning: 'M10 3.5 18 16.5H2zM10 8.5v3.5M10 14.2v.1',
  error: 'M10 2.5a7.5 7.5 0 1 0 0 15 7.5 7.5 0 0 0 0-15zM10 6v5M10 13.5v.1',
  plus: 'M10 4v12M4 10h12',
  open: 'M8 4H4v12h12v-4M11 4h5v5M16 4l-7 7',
  eye: 'M2 10s3-5.5 8-5.5S18 10 18 10s-3 5.5-8 5.5S2 10 2 10zM10 7.7a2.3 2.3 0 1 0 0 4.6 2.3 2.3 0 0 0 0-4.6z',
};

/** @param {string} name */
export function icon(name) {
  return svg(
    'svg',
    { viewBox: '0 0 20 20', class: `icon icon-${name}`, 'aria-hidden': 'true', focusable: 'false' },
    svg('path', { d: PATHS[name] ?? '' }),
  );
}

/** The mark of QueueCraft: a queue that gets shorter. */
export function mark() {
  const bar = (/** @type {number} */ y, /** @type {number} */ width, /** @type {number} */ opacity) =>
    svg('rect', { x: 7, y, width, height: 4, rx: 2, 'fill-opacity': opacity, class: 'mark-bar' });
  return svg(
    'svg',
    { viewBox: '0 0 32 32', class: 'mark', 'aria-hidden': 'true' },
    svg('rect', { width: 32, height: 32, rx: 8, class: 'mark-ground' }),
    bar(8, 18, 1),
    bar(14, 13, 0.75),
    bar(20, 8, 0.5),
  );
}
