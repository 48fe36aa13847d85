// The past of a number as a small drawing.

import { svg } from './dom.js';

/** @typedef {[number, number | null]} Point a moment in seconds since 1970, and what was measured */

const WIDTH = 120;
const HEIGHT = 34;

/** A line and the ground below it; `update` draws it again. */
export class Sparkline {
  /** @param {string} label */
  constructor(label) {
    this._area = svg('path', { class: 'spark-area' });
    this._line = svg('path', { class: 'spark-line', 'vector-effect': 'non-scaling-stroke' });
    this.element = svg(
      'svg',
      {
        viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
        preserveAspectRatio: 'none',
        class: 'spark',
        role: 'img',
        'aria-label': label,
      },
      this._area,
      this._line,
    );
  }

  /** @param {Point[]} points oldest first */
  update(points) {
    const known = points.filter(([, value]) => value !== null);
    if (known.length < 2) {
      this._line.setAttribute('d', '');
      this._area.setAttribute('d', '');
      return;
    }
    const from = points[0][0];
    const span = points[points.length - 1][0] - from || 1;
    const top = Math.max(...known.map(([, value]) => Number(value))) || 1;
    const runs = pieces(points).map((run) =>
      run.map(([at, value]) => [((at - from) / span) * WIDTH, HEIGHT - 2 - (value / top) * (HEIGHT - 5)]),
    );
    this._line.setAttribute('d', runs.map(line).join(''));
    this._area.setAttribute('d', runs.map(area).join(''));
  }
}

/** Runs of points that were measured; what could not be is a gap. @param {Point[]} points */
export function pieces(points) {
  /** @type {[number, number][][]} */
  const runs = [[]];
  for (const [at, value] of points) {
    if (value === null) runs.push([]);
    else runs[runs.length - 1].push([at, value]);
  }
  return runs.filter((run) => run.length > 1);
}

/** @param {number[][]} run */
export function line(run) {
  return run.map(([x, y], i) => `${i ? 'L' : 'M'}${x.toFixed(1)} ${y.toFixed(1)}`).join('');
}

/** @param {number[][]} run */
function area(run) {
  const last = run[run.length - 1];
  return `${line(run)}L${last[0].toFixed(1)} ${HEIGHT}L${run[0][0].toFixed(1)} ${HEIGHT}Z`;
}
