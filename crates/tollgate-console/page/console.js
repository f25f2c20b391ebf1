import { get, h, post } from './dom.js';
import * as overview from './overview.js';
import * as rules from './rules.js';
import { explain, keys } from './clients.js';

const name = location.pathname.split('/').pop();
const page = { overview, rules, keys, explain }[name];
const main = document.getElementById('main');
const link = document.getElementById('link');

// `sampledAt`: of the last sample that the page has.
let state, source, heardAt, sampledAt = 0, asking = false;

// The state is asked for again when the rules have changed, and after each action.
async function refresh() {
  if (asking) return;
  asking = true;
  try {
    state = await get('state');
    sampledAt = state.seconds.at(-1)?.[0] ?? 0;
    page.show(main, state, refresh);
  } catch (error) {
    // Not again and again: where a token changes, one process shows the page and another one asks for a log-in.
    const before = Number(sessionStorage.getItem('tollgate-reload'));
    if (error.status === 401 && Math.abs(Date.now() - before) > 10000) {
      sessionStorage.setItem('tollgate-reload', Date.now());
      location.reload();
    }
  } finally {
    asking = false;
  }
}

function connect() {
  if (source && source.readyState !== EventSource.CLOSED) return;
  source = new EventSource('events');
  source.onmessage = (event) => {
    const sample = JSON.parse(event.data);
    heardAt = Date.now();
    // Between two streams a sample may be missed.
    const misses = sample.at - sample.since > sampledAt + 100;
    if (!state || sample.version !== state.version || misses) refresh();
    else if (sample.at > sampledAt) {
      sampledAt = sample.at;
      page.tick?.(sample, state);
    }
    tell();
  };
}

// A stream ends every few seconds and begins again: only silence is a fault.
function tell() {
  const silent = Math.floor((Date.now() - heardAt) / 1000);
  const lost = silent >= 5;
  const text = lost ? `No answer from the service for ${silent - silent % 5} s; trying again` : 'Live';
  if (link.textContent !== text) link.textContent = text;
  link.classList.toggle('lost', lost);
  document.body.classList.toggle('stale', lost);
}

setInterval(() => {
  if (document.hidden) return;
  tell();
  if (Date.now() - heardAt >= 5000) {
    // Asked for too, so that a log-in that has ended shows.
    refresh();
    connect();
  }
}, 1000);

// A tab that nobody sees costs nothing.
document.addEventListener('visibilitychange', () => {
  if (document.hidden) source?.close();
  else { heardAt = Date.now(); refresh(); connect(); }
});

for (const anchor of document.querySelectorAll('nav a')) {
  if (anchor.getAttribute('href') === name) anchor.setAttribute('aria-current', 'page');
}
document.title = `${name[0].toUpperCase()}${name.slice(1)} · tollgate`;
heardAt = Date.now();
await refresh();
connect();
if (state?.logs_in) {
  const leave = async () => { await post('logout', {}); location.reload(); };
  document.querySelector('header').append(h('button', { class: 'quiet', onclick: leave }, 'Log out'));
}
