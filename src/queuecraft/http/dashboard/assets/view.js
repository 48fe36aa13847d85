// What every page is: built once, brought up to date with each look.

/**
 * @typedef {object} View
 * @property {string} title
 * @property {Element} element
 * @property {(overview: any) => void} [look] shows what an overview tells, at once
 * @property {(overview: any) => void | Promise<void>} refresh asks for the rest, after it was opened and with each overview
 * @property {number} [every] milliseconds between two refreshes at least
 */

/**
 * @typedef {object} Context what a page may use
 * @property {boolean} operator whether buttons that change things are shown
 * @property {import('./live.js').Live} live
 */

export {};
