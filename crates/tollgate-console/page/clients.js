// Clients and requests: what is known of them. Nothing is taken by looking.
import { count, foreign, get, h, many, post, span, table } from './dom.js';
import { ask, change } from './rules.js';

const failed = (error) => h('p', { class: 'wrong', role: 'alert' }, error.message.slice(0, 2000));
const left = (it) => it.remaining === null ? 'not known' : count(it.remaining);
const outcome = (it) => h('span', { class: it.allowed ? '' : 'high' }, it.outcome, it.level && ` at level ${it.level} for ${span(it.blocked_for)}`, it.retry !== null && `, may retry in ${span(it.retry)}`);

function submits(form, ...handlers) {
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    handlers.forEach((handler) => handler());
  });
}

export const keys = (() => {
  let built = false, topped = 0, top, state;

  async function showTop() {
    if (Date.now() - topped < 5000) return;
    topped = Date.now();
    const known = await get('top').catch(() => null);
    if (!known) return;
    const rows = (list) => list.map((it) => [it.label ? foreign(it.label) : h('code', {}, it.key), it.rule, count(it.requests), count(it.denials), count(it.cost)]);
    const columns = ['Client', 'Rule', '#Requests', '#Denied', '#Units'];
    const one = (title, list, none) => list.length ? table(title, columns, rows(list)) : h('p', { class: 'muted' }, none);
    top.replaceChildren(h('h2', {}, 'Most denied'), one('In the last two and a half to five minutes, in this process', known.denied, known.keeping ? 'No client was denied.' : 'No rule of this service keeps its top keys: say so with top_keys.'),
      h('h2', {}, 'Highest cost'), one('The same by the units that they asked for', known.cost, 'No client was seen.'));
  }

  function build(main) {
    const found = h('div', { 'aria-live': 'polite' });
    const text = h('textarea', { name: 'client', rows: 2, required: true, spellcheck: false, autocomplete: 'off' });
    const form = h('form', { class: 'form' }, h('label', {}, 'Client ', text,
      h('small', {}, 'A header as x-api-key: acme, an address, or the key as an override has it, one part a line. It is hashed to look, and neither kept nor logged.')), h('button', { class: 'primary' }, 'Look up'));
    const look = async () => {
      const client = text.value;
      try {
        const { rules } = await post('client', { client });
        found.replaceChildren(table('What each rule has of this client', ['Rule', 'Limit', '#Left', 'One more request', '#Whole again in', 'In the log', ''], rules.map((it) => [
          it.rule, [it.limit, it.plan && h('small', {}, foreign(it.plan))], left(it), [outcome(it), it.shadow && h('small', {}, 'a shadow denies nothing')], it.reset ? span(it.reset) : '–', h('code', {}, it.key),
          h('span', { class: 'buttons' }, state.scope !== 'none' && h('button', { 'aria-label': `Limit or block under ${it.rule}`, onclick: () => change({ name: it.rule }, state, look, client.replace(/^[\w-]+: /gm, '')) }, 'Limit…'),
            h('button', { 'aria-label': `Reset under ${it.rule}`, onclick: () => ask(`Reset this client under ${it.rule}`, 'It starts anew, as if it had used nothing. Where the state is in Redis, in all processes.', [], () => ({ action: 'reset', rule: it.rule, client }), null, look) }, 'Reset…'))])));
      } catch (error) {
        found.replaceChildren(failed(error));
      }
    };
    submits(form, look);
    top = h('div');
    main.replaceChildren(h('h1', {}, 'Keys'), form, found, top);
  }

  return {
    show(main, next) { state = next; if (!built) build(main); built = true; showTop(); },
    tick: showTop,
  };
})();

export const explain = (() => {
  let built = false;

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
    const found = h('div', { 'aria-live': 'polite' });
    const form = h('form', { class: 'form' },
      h('div', { class: 'pair' }, h('label', { class: 'short' }, 'Method ', h('input', { name: 'method', value: 'GET', required: true })), h('label', {}, 'Path ', h('input', { name: 'path', value: '/', required: true, spellcheck: false }))),
      h('label', {}, 'Headers, one a line ', h('textarea', { name: 'headers', rows: 3, spellcheck: false, placeholder: 'x-api-key: acme' })),
      h('label', {}, 'Address of the client ', h('input', { name: 'client_ip', placeholder: '192.0.2.7', spellcheck: false })),
      h('button', { class: 'primary' }, 'Explain'));
    submits(form, async () => {
      const field = (name) => form.elements[name].value;
      try {
        const { layers } = await post('explain', { method: field('method'), path: field('path'), headers: field('headers'), client_ip: field('client_ip') });
        found.replaceChildren(...layers.map((it) => layer(it, layers.length > 1)));
      } catch (error) {
        found.replaceChildren(failed(error));
      }
    });
    main.replaceChildren(h('h1', {}, 'Explain'), h('p', { class: 'muted' }, 'What the rules would do with a request. It takes nothing.'), form, found);
  }

  return { show(main) { if (!built) build(main); built = true; } };
})();
