import { clock, count, decided, denied, foreign, h, isReported, many, percent, post, rate, table } from './dom.js';

const SCOPES = {
  process: 'A change made here is in force in this process alone, and ends with it. What all processes are to have belongs in the file.',
  fleet: 'A change made here is in force in all processes within seconds, until its end.',
  none: 'The rules of this service are in its code. Here they can be tried as a preview, and are changed there.',
};
const ORDERS = {
  'most denied': (one, other) => isReported(one) - isReported(other) || denied(other, other.hour) - denied(one, one.hour) || decided(other, other.hour) - decided(one, one.hour),
  'most checks': (one, other) => decided(other, other.hour) - decided(one, one.hour),
  name: (one, other) => one.name.localeCompare(other.name),
};

let state, refresh, parts, rows = [];

export function show(main, next, again) {
  [state, refresh] = [next, again];
  if (!parts) build(main);
  parts.scope.textContent = SCOPES[state.scope];
  parts.actions.hidden = state.scope === 'none';
  parts.entries.replaceChildren(...entries(state.entries));
  list();
}

// Overrides and switches, wherever they come from.
function entries(known) {
  const rows = known.map((it) => [it.rules, it.is_override ? `for one client${it.client ? `, ${it.client}…` : ''}` : 'switched',
    [it.limit, it.problem && h('small', { class: 'high' }, `not in force: ${it.problem}`)], it.until ? new Date(it.until).toLocaleString('en', { dateStyle: 'medium', timeStyle: 'short', hour12: false }) : 'no end',
    [it.by && foreign(it.by), it.because && h('small', {}, foreign(it.because))], it.origin,
    it.id !== null && h('button', { 'aria-label': `End number ${it.id}`, onclick: () => ask(`End what ${it.by} set for ${it.rules}`, 'What was in force before is in force again.', [], () => ({ action: 'end', id: it.id, is_local: it.is_local })) }, 'End…')]);
  return known.length ? [h('h2', {}, 'Overrides and switches'), table(many(known.length, 'entry').replace('entrys', 'entries'), ['Rule', 'What', 'Limit', 'Until', 'By', 'In force in', ''], rows)] : [];
}

function build(main) {
  parts = {
    scope: h('p', { class: 'muted' }), list: h('div'), previews: h('div'),
    filter: h('input', { type: 'search', 'aria-label': 'Filter', placeholder: 'Part of a name', oninput: list }),
    order: h('select', { 'aria-label': 'Order', onchange: list }, Object.keys(ORDERS).map((name) => h('option', {}, name))),
    actions: h('span', { class: 'buttons' },
      h('button', { onclick: () => change({ name: '*', every: true }, state, refresh) }, 'Switch all rules…')), entries: h('div'),
  };
  main.replaceChildren(h('h1', {}, 'Rules'), parts.scope, parts.previews,
    h('div', { class: 'bar' }, h('label', {}, 'Filter ', parts.filter), h('label', {}, 'Order ', parts.order), parts.actions), parts.list, parts.entries);
}

function list() {
  const wanted = parts.filter.value.toLowerCase();
  const several = new Set(state.rules.map((rule) => rule.layer)).size > 1;
  const numbered = state.rules.map((rule, number) => ({ ...rule, number })).filter((rule) => rule.name.toLowerCase().includes(wanted));
  numbered.sort(ORDERS[parts.order.value]);
  rows = [];
  const shown = numbered.map((rule) => {
    const [now, share, near] = [h('td', { class: 'number' }), h('td', { class: 'number' }), h('td', { class: 'number' })];
    const [hour, deniedHour, shareHour] = [h('td', { class: 'number' }), h('td', { class: 'number' }), h('td', { class: 'number' })];
    rows[rule.number] = { rule, now, share, near, hour, deniedHour, shareHour, sum: rule.hour };
    fill(rows[rule.number]);
    const details = [rule.by?.length && `by ${rule.by.join(', ')}`, several && `in ${rule.layer_name}`].filter(Boolean).join(', ');
    const plans = rule.plans.length > 0 && h('details', {}, h('summary', {}, many(rule.plans.length, 'plan')), rule.plans.slice(0, 50).map((plan) => h('div', {}, foreign(plan.name), ` ${plan.limit}`)));
    return h('tr', {}, h('th', { scope: 'row' }, rule.name, h('small', {}, details)), h('td', {}, rule.limit, plans),
      h('td', {}, h('span', { class: rule.mode === 'enforced' ? '' : 'badge' }, rule.mode)), now, share, hour, deniedHour, shareHour, near,
      h('td', {}, !rule.mode.startsWith('threshold') && h('button', { 'aria-label': `Change ${rule.name}`, onclick: () => change(rule, state, refresh) }, 'Change…')));
  });
  const columns = ['Rule', 'Limit', 'Mode', '#Checks a second', '#Denied now', '#Checks, 1 h', '#Denied, 1 h', '#Share', '#Near limit, 10 s', ''];
  parts.list.replaceChildren(shown.length ? table(`${many(shown.length, 'rule')}. What a shadow denies is what it would deny.`, columns, shown)
    : h('p', { class: 'muted' }, state.rules.length ? 'No rule has such a name.' : 'The console was given no layer.'));
}

function fill(row) {
  const [all, no] = [decided(row.rule, row.sum), denied(row.rule, row.sum)];
  const texts = [[row.hour, count(all)], [row.deniedHour, count(no)], [row.shareHour, percent(no, all)]];
  for (const [cell, text] of texts) if (cell.textContent !== text) cell.textContent = text;
  row.shareHour.classList.toggle('high', !isReported(row.rule) && all > 0 && no * 20 >= all);
}

let moving = new Set();
export function tick(sample) {
  const seconds = Math.max(sample.since, 1) / 1000;
  const used = new Set();
  for (const [number, counts] of sample.rules) {
    const row = rows[number];
    if (!row) continue;
    used.add(number);
    row.sum = row.sum.map((sum, index) => sum + counts[index]);
    row.now.textContent = rate(decided(row.rule, counts) / seconds);
    row.share.textContent = percent(denied(row.rule, counts), decided(row.rule, counts));
    fill(row);
  }
  for (const number of moving) if (!used.has(number) && rows[number]) rows[number].now.textContent = rows[number].share.textContent = '';
  moving = used;
  for (const row of rows) if (row) row.near.textContent = sample.near[row.rule.name] ? count(sample.near[row.rule.name]) : '';
  previews(sample.previews);
}

function previews(running) {
  const text = (it) => `Preview of ${it.rule} at ${it.limit}, since ${clock(it.since)}: would deny ${count(it.denied)} of ${count(it.decided)} checks (${percent(it.denied, it.decided)}). `;
  const known = [...parts.previews.children];
  if (known.length === running.length && running.every((it, index) => known[index].dataset.of === `${it.layer} ${it.rule} ${it.limit}`)) {
    running.forEach((it, index) => { known[index].firstChild.textContent = text(it); });
    return;
  }
  parts.previews.replaceChildren(...running.map((it) => h('p', { class: 'preview', 'data-of': `${it.layer} ${it.rule} ${it.limit}` }, h('span', {}, text(it)),
    h('button', { onclick: () => ask(`End the preview of ${it.rule}`, 'Its shadow goes, and with it what it has counted.', [], () => ({ action: 'end-preview', layer: it.layer, rule: it.rule })) }, 'End…'))));
}

const local = (date) => new Date(date.getTime() - date.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
const until = (form) => form.elements.until?.value ? new Date(form.elements.until.value).getTime() : null;

// Also of one client, whom another page has looked up.
export function change(rule, known, after, who) {
  const limit = h('input', { name: 'limit', autocomplete: 'off', spellcheck: false });
  const number = h('label', {}, 'Limit ', limit);
  const hint = h('small', {});
  const client = h('label', {}, 'Client ', h('textarea', { name: 'client', rows: 2, spellcheck: false, autocomplete: 'off' }, who ?? ''), h('small', {}, 'The key as an override has it; one part a line where a rule counts by several.'));
  const end = h('label', {}, 'Until ', h('input', { name: 'until', type: 'datetime-local', value: local(new Date(Date.now() + 3600000)) }), h('small', {}, 'By the clock of this browser. Empty: until it is ended.'));
  const kinds = { switch: ['Switch it: off, shadow, or a part of its limits', 'off, shadow, or a part, as 50%'], override: ['Give one client a limit of its own', 'As 100/min burst 20, 200% or unlimited'], block: ['Block one client', ''], preview: ['Preview another limit as a shadow', 'As 100/min burst 20. It is counted from now on and denies nothing.'] };
  const offered = rule.every ? ['switch'] : who ? ['override', 'block'] : known.scope === 'none' ? ['preview'] : ['switch', 'override', 'block', 'preview'];
  const kind = h('select', { name: 'kind', onchange: fit }, offered.map((name) => h('option', { value: name }, kinds[name][0])));
  function fit() {
    hint.textContent = kinds[kind.value][1];
    client.hidden = !['override', 'block'].includes(kind.value);
    number.hidden = kind.value === 'block';
    limit.required = !number.hidden;
    client.querySelector('textarea').required = !client.hidden;
    end.hidden = kind.value === 'preview';
  }
  fit();
  const fields = [h('label', {}, 'What ', kind), client, number, end];
  number.append(hint);
  const notes = { preview: 'A shadow with this limit runs in this process until you end it, or until the rules change.' };
  ask(rule.every ? 'Switch all rules' : `Change ${rule.name}`, () => notes[kind.value] ?? SCOPES[known.scope], fields, (form) => {
    const [of, value] = [rule.name, limit.value.trim()];
    if (kind.value === 'switch') return { action: 'switch', rule: of, limit: value, until: until(form) };
    if (kind.value !== 'preview') return { action: 'override', rule: of, client: form.elements.client.value, limit: kind.value === 'block' ? 'none' : value, until: until(form) };
    return { action: 'preview', layer: rule.layer, rule: of, limit: value };
  }, kind, after);
}

// Asks who does it and why, then does it. Used by the other pages too.
export function ask(title, note, fields, order, redraw, after = refresh) {
  const dialog = document.getElementById('dialog');
  const wrong = h('p', { class: 'wrong', role: 'alert', hidden: true });
  const told = h('p', { class: 'muted' });
  const tell = () => { told.textContent = typeof note === 'function' ? note() : note; };
  redraw?.addEventListener('change', tell);
  tell();
  const form = h('form', { class: 'form', method: 'dialog' }, h('h2', { id: 'dialog-title' }, title), told, fields,
    h('label', {}, 'Why ', h('input', { name: 'because', required: true, maxlength: '400', autocomplete: 'off' })),
    h('label', {}, 'Who you are ', h('input', { name: 'who', required: true, maxlength: '100', autocomplete: 'off', value: localStorage.getItem('tollgate-who') ?? '' })),
    h('small', {}, 'Both go into the audit.'), wrong,
    h('div', { class: 'buttons' }, h('button', { class: 'primary' }, 'Do it'), h('button', { type: 'button', onclick: () => dialog.close() }, 'Cancel')));
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    const { because, who } = form.elements;
    localStorage.setItem('tollgate-who', who.value);
    try {
      const { done } = await post('act', { ...order(form), because: because.value, who: who.value });
      dialog.close();
      const notice = document.getElementById('notice');
      notice.hidden = false;
      notice.textContent = `Done: ${done}.`;
      await after?.();
    } catch (error) {
      wrong.hidden = false;
      wrong.textContent = error.message.slice(0, 2000);
    }
  });
  dialog.replaceChildren(form);
  dialog.showModal();
}
