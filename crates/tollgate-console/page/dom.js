// Elements from texts: nothing that comes from elsewhere is ever read as HTML.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'class') element.className = value;
    else if (name in element && typeof value !== 'string') element[name] = value;
    else if (value !== undefined && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Fills a place from the template with this name. Returns its elements that have an id.
export function stamp(place, name) {
  place.replaceChildren(document.getElementById(name).content.cloneNode(true));
  return Object.fromEntries([...place.querySelectorAll('[id]')].map((it) => [it.id, it]));
}

export const submits = (form, handler) => form.addEventListener('submit', (event) => {
  event.preventDefault();
  handler();
});

// Text of a client or an operator, which may run from right to left, and may be long.
export const foreign = (text, attributes = {}) => h('bdi', { class: 'foreign', title: text.length > 80 ? text.slice(0, 2000) : undefined, ...attributes },
  text.length > 400 ? `${text.slice(0, 400)}…` : text);

export function table(caption, columns, rows) {
  const head = columns.map((column) => h('th', { scope: 'col', class: column.startsWith('#') ? 'number' : '' }, column.replace('#', '')));
  const body = rows.map((row) => row instanceof Element ? row : h('tr', {}, row.map((cell, index) =>
    h(index ? 'td' : 'th', index ? { class: columns[index].startsWith('#') ? 'number' : '' } : { scope: 'row' }, cell))));
  return h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption },
    h('table', {}, h('caption', {}, caption), h('thead', {}, h('tr', {}, head)), h('tbody', {}, body)));
}

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat('en', { minimumFractionDigits: 1, maximumFractionDigits: 1 });
export const count = (number) => whole.format(number);
export const many = (number, what) => `${count(number)} ${what}${number === 1 ? '' : 's'}`;
export const rate = (number) => (number > 0 && number < 100 ? tenth : whole).format(number);
export const percent = (part, all) => all ? `${part && part * 100 < all ? '<1' : whole.format(part * 100 / all)} %` : '–';
export const millis = (number) => number === null || number === undefined ? '–'
  : number < 1 ? `${Number(number.toPrecision(2))} ms` : `${tenth.format(number)} ms`;
export const clock = (at) => new Date(at).toLocaleTimeString('en', { hour12: false });

export function span(seconds) {
  if (seconds < 1) return `${tenth.format(seconds)} s`;
  if (seconds < 120) return `${whole.format(Math.ceil(seconds))} s`;
  return seconds < 7200 ? `${whole.format(seconds / 60)} min` : seconds < 172800 ? `${whole.format(seconds / 3600)} h` : `${whole.format(seconds / 86400)} days`;
}

async function call(path, options) {
  const response = await fetch(path, { ...options, cache: 'no-store' });
  const body = await response.json().catch(() => ({}));
  if (response.ok) return body;
  throw Object.assign(new Error(body.error ?? `the service answers ${response.status}`), { status: response.status });
}
export const get = (path) => call(path);
export const post = (path, body) => call(path, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });

// The counts of a rule, in the order of the service.
export const [ALLOWED, DENIED, BLOCKED, DEGRADED, WITHHELD, SHADOW_ALLOWED, SHADOW_DENIED] = [0, 1, 2, 3, 4, 5, 6];
export const isReported = (rule) => rule.mode !== 'enforced' && rule.mode !== 'off';
export const denied = (rule, counts) => isReported(rule) ? counts[SHADOW_DENIED] : counts[DENIED] + counts[BLOCKED];
export const decided = (rule, counts) => isReported(rule) ? counts[SHADOW_DENIED] + counts[SHADOW_ALLOWED]
  : counts[ALLOWED] + counts[DENIED] + counts[BLOCKED] + counts[DEGRADED] + counts[WITHHELD];
