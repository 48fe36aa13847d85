// Numbers over time with axes, and the values under the pointer.

import { fill, h, svg } from './dom.js';
import { clock } from './format.js';
import { line, pieces } from './sparkline.js';

/** @typedef {import('./sparkline.js').Point} Point */
/** @typedef {{name: string, kind: string, format: (value: number | null) => string, points: Point[]}} Series */

const HEIGHT = 180;
const LEFT = 48;
const BOTTOM = 22;

/** Each series has a scale of its own: depth and pace have no common unit. The first has the axis. */
export class Plot {
  /** @param {string} label */
  constructor(label) {
    this._canvas = svg('svg', { class: 'plot-canvas', role: 'img', 'aria-label': label, height: HEIGHT });
    this._legend = h('div', { class: 'legend' });
    this.element = h('div', { class: 'plot' }, this._legend, this._canvas);
    /** @type {Series[]} */
    this._series = [];
    this._pointed = /** @type {number | null} */ (null);
    this._canvas.addEventListener('pointermove', (event) => this._point(event.offsetX));
    this._canvas.addEventListener('pointerleave', () => this._point(null));
    new ResizeObserver(() => this._draw()).observe(this.element);
  }

  /** @param {Series[]} series */
  update(series) {
    this._series = series;
    this._draw();
  }

  /** @param {number | null} x */
  _point(x) {
    this._pointed = x;
    this._draw();
  }

  _draw() {
    const width = this.element.clientWidth;
    const times = this._series.flatMap((each) => each.points.map(([at]) => at));
    if (!width) return;
    if (times.length < 2) {
      fill(this._legend, h('span', { class: 'faint' }, 'The past is drawn as soon as there is some: a few seconds.'));
      this._canvas.replaceChildren();
      return;
    }
    const from = Math.min(...times);
    const to = Math.max(...times);
    const x = (/** @type {number} */ at) => LEFT + ((at - from) / (to - from || 1)) * (width - LEFT - 4);
    this._canvas.setAttribute('viewBox', `0 0 ${width} ${HEIGHT}`);
    this._canvas.setAttribute('width', String(width));
    const marks = this._series.flatMap((each, i) => this._drawn(each, i === 0, x, width));
    const ends = [
      svg('text', { x: LEFT, y: HEIGHT - 5, class: 'plot-text' }, clock(from * 1000)),
      svg('text', { x: width - 4, y: HEIGHT - 5, class: 'plot-text', 'text-anchor': 'end' }, clock(to * 1000)),
    ];
    let at = to;
    if (this._pointed !== null) {
      const wanted = from + ((this._pointed - LEFT) / (width - LEFT - 4)) * (to - from);
      at = times.reduce((best, each) => (Math.abs(each - wanted) < Math.abs(best - wanted) ? each : best));
      ends.push(svg('line', { x1: x(at), x2: x(at), y1: 6, y2: HEIGHT - BOTTOM, class: 'plot-pointed' }));
    }
    fill(this._canvas, ...marks, ...ends);
    fill(
      this._legend,
      ...this._series.map((each) =>
        h(
          'span',
          { class: `legend-item ${each.kind}` },
          h('span', { class: 'swatch' }),
          each.name,
          h('strong', {}, each.format(each.points.findLast(([when]) => when <= at)?.[1] ?? null)),
        ),
      ),
      h('span', { class: 'faint legend-at' }, this._pointed === null ? 'now' : clock(at * 1000)),
    );
  }

  /** @param {Series} series @param {boolean} axis @param {(at: number) => number} x @param {number} width */
  _drawn(series, axis, x, width) {
    const top = round(Math.max(4, ...series.points.map(([, value]) => value ?? 0)));
    const y = (/** @type {number} */ value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - 10);
    const marks = [];
    for (const share of axis ? [0, 0.5, 1] : []) {
      marks.push(
        svg('line', { x1: LEFT, x2: width - 4, y1: y(top * share), y2: y(top * share), class: 'plot-grid' }),
        svg(
          'text',
          { x: LEFT - 8, y: y(top * share) + 4, class: 'plot-text', 'text-anchor': 'end' },
          series.format(top * share),
        ),
      );
    }
    const d = pieces(series.points).map((run) => line(run.map(([at, value]) => [x(at), y(value)]))).join('');
    marks.push(svg('path', { d, class: `plot-line ${series.kind}` }));
    return marks;
  }
}

/** The next number that reads well. @param {number} value */
function round(value) {
  const unit = 10 ** Math.floor(Math.log10(value));
  return unit * ([1, 2, 4, 5, 8, 10].find((step) => step * unit >= value) ?? 10);
}
