// Elements are made by calls and never from text, so that what a message holds stays text.

const SVG = 'http://www.w3.org/2000/svg';
const PROPERTIES = new Set(['value', 'checked', 'disabled', 'hidden', 'htmlFor', 'open', 'tabIndex']);

/** @typedef {Node | string | number | bigint | null | undefined | false | any[]} Child */

/**
 * An element. `on…` props are listeners, `data` is its dataset, the rest attributes.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, any> | null} [props]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, props, ...children) {
  /** @type {any} */
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'data') Object.assign(element.dataset, value);
    else if (PROPERTIES.has(name)) element[name] = value;
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  append(element, children);
  return element;
}

/**
 * An element of a drawing.
 * @param {string} tag
 * @param {Record<string, string | number>} [attributes]
 * @param {...Child} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  append(element, children);
  return element;
}

/**
 * Puts these in the place of what is inside.
 * @template {Element} E
 * @param {E} parent
 * @param {...Child} children
 * @returns {E}
 */
export function fill(parent, ...children) {
  parent.replaceChildren();
  append(parent, children);
  return parent;
}

/** Sets the text of an element, if it is another. @param {Element} element @param {string} text */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** @param {Element} parent @param {Child[]} children */
function append(parent, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(parent, child);
    else parent.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** @type {WeakMap<Element, Map<string, any>>} */
const keptIn = new WeakMap();

/** The keys of what is kept in an element, in its order. @param {Element} parent */
export function keysIn(parent) {
  return [...(keptIn.get(parent)?.keys() ?? [])];
}

/**
 * Keeps one element for each item: made once, updated in place, so that focus and scroll stay.
 * @template T
 * @param {Element} parent
 * @param {T[]} items
 * @param {(item: T) => string} key
 * @param {(item: T) => {element: Element, update: (item: T) => void}} make
 */
export function keyed(parent, items, key, make) {
  /** @type {Map<string, any>} */
  const kept = keptIn.get(parent) ?? new Map();
  /** @type {Map<string, any>} */
  const next = new Map();
  const focused = document.activeElement;
  for (const item of items) {
    const id = key(item);
    if (next.has(id)) continue;
    const part = kept.get(id) ?? make(item);
    part.update(item);
    next.set(id, part);
  }
  for (const [id, part] of kept) if (!next.has(id)) part.element.remove();
  let place = parent.firstElementChild;
  for (const part of next.values()) {
    if (part.element === place) place = place.nextElementSibling;
    else parent.insertBefore(part.element, place);
  }
  keptIn.set(parent, next);
  // An element that is moved loses the focus.
  if (focused instanceof HTMLElement && focused !== document.activeElement && parent.contains(focused)) {
    focused.focus({ preventScroll: true });
  }
}
