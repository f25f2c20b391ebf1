// Clients and requests: what is known of them. Nothing is taken by looking.
import { count, foreign, get, h, many, post, span, stamp, submits, table } from './dom.js';
import { ask, change } from './rules.js';

const failed = (error) => h('p', { class: 'wrong', role: 'alert' }, error.message.slice(0, 2000));
const left = (it) => it.remaining === null ? 'not known' : count(it.remaining);
const outcome = (it) => h('span', { class: it.allowed ? '' : 'high' }, it.outcome, it.level && ` at level ${it.level} for ${span(it.blocked_for)}`, it.retry !== null && `, may retry in ${span(it.retry)}`);

export const keys = (() => {
  let topped = 0, parts, state;

  async function showTop() {
    if (Date.now() - topped < 5000) return;
    topped = Date.now();
    const known = await get('top').catch(() => null);
    if (!known) return;
    const rows = (list) => list.map((it) => [it.label ? foreign(it.label) : h('code', {}, it.key), it.rule, count(it.requests), count(it.denials), count(it.cost)]);
    const columns = ['Client', 'Rule', '#Requests', '#Denied', '#Units'];
    const one = (title, list, none) => list.length ? table(title, columns, rows(list)) : h('p', { class: 'muted' }, none);
    parts.top.replaceChildren(h('h2', {}, 'Most denied'), one('In the last two and a half to five minutes, in this process', known.denied, known.keeping ? 'No client was denied.' : 'No rule of this service keeps its top keys: say so with top_keys.'),
      h('h2', {}, 'Highest cost'), one('The same by the units that they asked for', known.cost, 'No client was seen.'));
  }

  function build(main) {
    parts = stamp(main, 'keys');
    const { form, found } = parts;
    const look = async () => {
      const client = form.elements.client.value;
      try {
        const { rules } = await post('client', { client });
        found.replaceChildren(table('What each rule has of this client', ['Rule', 'Limit', '#Left', 'One more request', '#Whole again in', 'In the log', ''], rules.map((it) => [
          it.rule, [it.limit, it.plan && h('small', {}, foreign(it.plan))], left(it), [outcome(it), it.shadow && h('small', {}, 'a shadow denies nothing')], it.reset ? span(it.reset) : '–', h('code', {}, it.key),
          h('span', { class: 'buttons' }, state.scope !== 'none' && h('button', { 'aria-label': `Limit or block under ${it.rule}`, onclick: () => change({ name: it.rule }, state, look, client.replace(/^[\w-]+: /gm, '')) }, 'Limit…'),
            h('button', { 'aria-label': `Reset under ${it.rule}`, onclick: () => ask(`Reset this client under ${it.rule}`, 'It starts anew, as if it had used nothing. Where the state is in Redis, in all processes.', '', () => ({ action: 'reset', rule: it.rule, client }), null, look) }, 'Reset…'))])));
      } catch (error) {
        found.replaceChildren(failed(error));
      }
    };
    submits(form, look);
  }

  return {
    show(main, next) { state = next; if (!parts) build(main); showTop(); },
    tick: showTop,
  };
})();

export const explain = (() => {
  let parts;

  function layer(it, several) {
    const counting = it.rules.filter((rule) => rule.counts);
    const others = it.rules.filter((rule) => !rule.counts);
    const notes = (rule) => rule.notes?.map((note) => h('small', {}, foreign(note)));
    return h('section', {}, several && h('h2', {}, it.layer), h('p', { class: 'outcome' }, it.outcome),
      counting.length > 0 && table('Rules that count it', ['Rule', 'Limit', '#Units', '#Left after it', 'Would say', 'In the log'], counting.map((rule) => [
        [rule.rule, h('small', {}, rule.why === 'counts' ? '' : rule.why)], [rule.limit, notes(rule)], count(rule.units), rule.verdict ? left(rule.verdict) : '–', rule.verdict ? outcome(rule.verdict) : '–', h('code', {}, rule.key)])),
      others.length > 0 && h('details', { open: counting.length === 0 }, h('summary', {}, `${many(others.length, 'rule')} not counting it`),
        table('Rules that do not count it', ['Rule', 'Why'], others.map((rule) => [rule.rule, [rule.why, notes(rule)]]))));
  }

  function build(main) {
    parts = stamp(main, 'explain');
    const { form, found } = parts;
    submits(form, async () => {
      try {
        const { layers } = await post('explain', Object.fromEntries(new FormData(form)));
        found.replaceChildren(...layers.map((it) => layer(it, layers.length > 1)));
      } catch (error) {
        found.replaceChildren(failed(error));
      }
    });
  }

  return { show(main) { if (!parts) build(main); } };
})();
