// Numbers, durations and times in words.

import { h } from './dom.js';

const THIN = '\u202f';
export const NOTHING = '–';

/** A count with thin separators. @param {number | null | undefined} value */
export function count(value) {
  if (value === null || value === undefined) return NOTHING;
  return String(Math.round(value)).replace(/\B(?=(\d{3})+(?!\d))/g, THIN);
}

/** So many of something: "1 letter", "2 letters". @param {number} n @param {string} one @param {string} [more] */
export function many(n, one, more = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : more}`;
}

/** A number a second. @param {number | null | undefined} value */
export function rate(value) {
  if (value === null || value === undefined) return NOTHING;
  if (value === 0) return '0';
  if (value < 0.01) return '<0.01';
  if (value < 1) return value.toFixed(2);
  if (value < 100) return value.toFixed(1);
  return count(value);
}

/** A share as a percentage. @param {number | null | undefined} value */
export function percent(value) {
  if (value === null || value === undefined) return NOTHING;
  const hundred = value * 100;
  if (hundred === 0) return '0';
  if (hundred < 0.1) return '<0.1';
  return hundred < 10 ? hundred.toFixed(1) : String(Math.round(hundred));
}

/** A duration. @param {number | string | null | undefined} value in seconds */
export function seconds(value) {
  if (value === null || value === undefined) return NOTHING;
  if (typeof value === 'string') return value;
  if (value === 0) return `0${THIN}s`;
  if (value < 0.001) return `<1${THIN}ms`;
  if (value < 1) return `${Math.round(value * 1000)}${THIN}ms`;
  if (value < 10) return `${trim(value)}${THIN}s`;
  if (value < 60) return `${Math.round(value)}${THIN}s`;
  return long(value);
}

/** @param {number} value */
function long(value) {
  const minutes = Math.round(value / 60);
  if (minutes < 60) return `${minutes}${THIN}min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return two(hours, 'h', minutes % 60, 'min');
  const days = Math.floor(hours / 24);
  if (days < 30) return two(days, 'd', hours % 24, 'h');
  return `${count(days)}${THIN}d`;
}

/** @param {number} a @param {string} x @param {number} b @param {string} y */
function two(a, x, b, y) {
  return b ? `${a}${THIN}${x} ${b}${THIN}${y}` : `${a}${THIN}${x}`;
}

/** @param {number} value */
function trim(value) {
  return value.toFixed(1).replace(/\.0$/, '');
}

/** A size. @param {number | null | undefined} value in bytes */
export function bytes(value) {
  if (value === null || value === undefined) return NOTHING;
  if (value < 1024) return `${count(value)}${THIN}B`;
  const units = ['KiB', 'MiB', 'GiB'];
  let size = value / 1024;
  while (size >= 1024 && units.length > 1) {
    size /= 1024;
    units.shift();
  }
  return `${size < 10 ? trim(size) : Math.round(size)}${THIN}${units[0]}`;
}

/** How long ago, or in what time. @param {Date} moment @param {number} [now] */
export function relative(moment, now = Date.now()) {
  const past = (now - moment.getTime()) / 1000;
  if (Number.isNaN(past)) return NOTHING;
  if (Math.abs(past) < 2) return 'now';
  const words = Math.abs(past) < 60 ? `${Math.round(Math.abs(past))}${THIN}s` : long(Math.abs(past));
  return past > 0 ? `${words} ago` : `in ${words}`;
}

/**
 * A time in words, with the exact one in its title; `refreshTimes` keeps it true.
 * @param {string | null | undefined} iso
 */
export function time(iso) {
  if (!iso) return h('span', { class: 'faint' }, NOTHING);
  const moment = new Date(iso);
  if (Number.isNaN(moment.getTime())) return h('span', {}, String(iso));
  return h('time', { datetime: iso, title: exact(moment), data: { at: String(moment.getTime()) } }, relative(moment));
}

/** Date and time here, and in UTC. @param {Date} moment */
export function exact(moment) {
  return `${moment.toLocaleString()} (${moment.toISOString()})`;
}

/** The time of day. @param {number} ms */
export function clock(ms) {
  return new Date(ms).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit' });
}

/** Brings all times on the page up to date. */
export function refreshTimes() {
  const now = Date.now();
  for (const element of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll('time[data-at]'))) {
    const text = relative(new Date(Number(element.dataset.at)), now);
    if (element.textContent !== text) element.textContent = text;
  }
}

/**
 * When a queue will be empty: in words, as a share of a bar (an hour is full), and how bad that is.
 * @param {{ready: number | null, drain: number | string | null, consumers: number | null, paused: string | null}} queue
 * @returns {{words: string, share: number, level: 'ok' | 'warning' | 'error' | 'none'}}
 */
export function drain(queue) {
  const waiting = queue.ready ?? 0;
  if (queue.drain === 'never') {
    if (queue.paused !== null) return { words: 'paused', share: 1, level: 'warning' };
    return { words: queue.consumers === 0 ? 'no consumer' : 'never', share: 1, level: 'error' };
  }
  if (queue.ready !== null && waiting === 0) return { words: 'empty', share: 0, level: 'none' };
  if (typeof queue.drain !== 'number') return { words: 'not known', share: 0, level: 'none' };
  const share = Math.min(1, Math.log1p(queue.drain) / Math.log1p(3600));
  const level = queue.drain > 3600 ? 'error' : queue.drain > 300 ? 'warning' : 'ok';
  return { words: seconds(queue.drain), share: Math.max(0.03, share), level };
}
