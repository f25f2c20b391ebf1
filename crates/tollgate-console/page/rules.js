import { clock, count, decided, denied, foreign, h, isReported, many, percent, post, rate, stamp, submits, table } from './dom.js';

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
    it.id !== null && h('button', { 'aria-label': `End number ${it.id}`, onclick: () => ask(`End what ${it.by} set for ${it.rules}`, 'What was in force before is in force again.', '', () => ({ action: 'end', id: it.id, is_local: it.is_local })) }, 'End…')]);
  return known.length ? [h('h2', {}, 'Overrides and switches'), table(many(known.length, 'entry').replace('entrys', 'entries'), ['Rule', 'What', 'Limit', 'Until', 'By', 'In force in', ''], rows)] : [];
}

function build(main) {
  parts = stamp(main, 'rules');
  parts.filter.addEventListener('input', list);
  parts.order.addEventListener('change', list);
  parts.all.addEventListener('click', () => change({ name: '*', every: true }, state, refresh));
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
      h('td', {}, !/^(threshold|preview)/.test(rule.mode) && h('button', { 'aria-label': `Change ${rule.name}`, onclick: () => change(rule, state, refresh) }, 'Change…')));
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
  // A rule may be called as what every object has.
  for (const row of rows) if (row) row.near.textContent = Object.hasOwn(sample.near, row.rule.name) ? count(sample.near[row.rule.name]) : '';
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
    h('button', { onclick: () => ask(`End the preview of ${it.rule}`, 'Its shadow goes, and with it what it has counted.', '', () => ({ action: 'end-preview', layer: it.layer, rule: it.rule })) }, 'End…'))));
}

const local = (date) => new Date(date.getTime() - date.getTimezoneOffset() * 60000).toISOString().slice(0, 16);

// Also of one client, whom another page has looked up.
export function change(rule, known, after, who) {
  const fields = document.getElementById('change').content.cloneNode(true);
  const [kind, client, number, end, hint] = ['kind', 'client', 'number', 'end', 'hint'].map((id) => fields.getElementById(id));
  const [key, limit, until] = [client, number, end].map((it) => it.querySelector('textarea, input'));
  const offered = rule.every ? ['switch'] : who ? ['override', 'block'] : known.scope === 'none' ? ['preview'] : ['switch', 'override', 'block', 'preview'];
  [...kind.options].filter((it) => !offered.includes(it.value)).forEach((it) => it.remove());
  key.value = who ?? '';
  until.value = local(new Date(Date.now() + 3600000));
  const fit = () => {
    hint.textContent = kind.selectedOptions[0].dataset.hint;
    client.hidden = !['override', 'block'].includes(kind.value);
    number.hidden = kind.value === 'block';
    limit.required = !number.hidden;
    key.required = !client.hidden;
    end.hidden = kind.value === 'preview';
  };
  kind.addEventListener('change', fit);
  fit();
  const notes = { preview: 'A shadow with this limit runs in this process until you end it, or until the rules change.' };
  ask(rule.every ? 'Switch all rules' : `Change ${rule.name}`, () => notes[kind.value] ?? SCOPES[known.scope], fields, () => {
    const ordered = { rule: rule.name, limit: limit.value.trim() };
    if (kind.value === 'preview') return { action: 'preview', layer: rule.layer, ...ordered };
    ordered.until = until.value ? new Date(until.value).getTime() : null;
    if (kind.value === 'switch') return { action: 'switch', ...ordered };
    return { action: 'override', ...ordered, client: key.value, limit: kind.value === 'block' ? 'none' : ordered.limit };
  }, kind, after);
}

// Asks who does it and why, then does it. Used by the other pages too.
export function ask(title, note, fields, order, redraw, after = refresh) {
  const dialog = document.getElementById('dialog');
  const { told, asked: form, wrong, cancel, 'dialog-title': heading } = stamp(dialog, 'ask');
  heading.textContent = title;
  told.after(fields);
  const tell = () => { told.textContent = typeof note === 'function' ? note() : note; };
  redraw?.addEventListener('change', tell);
  tell();
  const { because, who } = form.elements;
  who.value = localStorage.getItem('tollgate-who') ?? '';
  cancel.addEventListener('click', () => dialog.close());
  submits(form, async () => {
    localStorage.setItem('tollgate-who', who.value);
    try {
      const { done } = await post('act', { ...order(), because: because.value, who: who.value });
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
  dialog.showModal();
}
