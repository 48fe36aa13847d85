// Small boxes with a number each, updated in place.

import { fill, h, say } from './dom.js';

/** @typedef {[string, string, string?]} Tile label, text, level */

export class Tiles {
  constructor() {
    this.element = h('div', { class: 'tiles' });
  }

  /** The same ones each time. @param {Tile[]} tiles */
  show(tiles) {
    if (!this.element.childElementCount) {
      fill(
        this.element,
        ...tiles.map(([label]) => h('div', { class: 'tile' }, h('span', { class: 'tile-label' }, label), h('span', { class: 'tile-value' }))),
      );
    }
    tiles.forEach(([, text, level], i) => {
      const tile = this.element.children[i];
      tile.className = `tile ${level ?? ''}`;
      say(/** @type {Element} */ (tile.lastChild), text);
    });
  }
}
