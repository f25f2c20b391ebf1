import { ALLOWED, BLOCKED, DEGRADED, DENIED, clock, count, h, many, millis, rate, stamp } from './dom.js';

const SERIES = [['Allowed', ALLOWED, '--allowed'], ['Denied', DENIED, '--denied'], ['Blocked', BLOCKED, '--blocked'], ['Degraded', DEGRADED, '--degraded']];
const CHARTS = { seconds: 'Last two minutes', minutes: 'Last hour' };
const LEVELS = { bad: 'Problem', warn: 'Watch', note: 'Note' };

let parts, charts = [], seconds = [], minutes = [];

export function show(main, state) {
  seconds = state.seconds.slice(1).map(([at, sum], index) => [at / 1000, per(sum, (at - state.seconds[index][0]) / 1000)]);
  minutes = wholeMinutes(state.minutes);
  if (!parts) build(main);
  draw();
}

function build(main) {
  parts = stamp(main, 'overview');
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  new ResizeObserver(draw).observe(parts.seconds);
}

export function tick(sample, state) {
  const now = per(sample.sum, Math.max(sample.since, 1) / 1000);
  if (sample.since) seconds.push([sample.at / 1000, now]);
  seconds = seconds.slice(-120);
  const minute = Math.floor(sample.at / 60000) * 60;
  if (minutes.at(-1)[0] !== minute) minutes = [...minutes.slice(1), [minute, sample.sum.map(() => 0)]];
  minutes.at(-1)[1] = minutes.at(-1)[1].map((sum, index) => sum + sample.sum[index]);
  SERIES.forEach(([, index], place) => {
    const [speed, hour] = parts.tiles.children[place].querySelectorAll('.now, .hour');
    speed.textContent = rate(now[index]);
    hour.textContent = `${count(minutes.reduce((sum, [, of]) => sum + of[index], 0))} in the last hour`;
  });
  problems(sample.problems);
  parts.facts.replaceChildren(...status(state.status), ...meters(sample.meters));
  update();
}

const per = (sum, secs) => sum.map((it) => it / Math.max(secs, 0.001));

// Sixty minutes, of which the service names those with traffic.
function wholeMinutes(known) {
  const of = new Map(known);
  const last = Math.floor(Date.now() / 60000) * 60;
  return Array.from({ length: 60 }, (_, index) => last - (59 - index) * 60).map((at) => [at, of.get(at) ?? [0, 0, 0, 0, 0, 0, 0, 0]]);
}

function problems(found) {
  const real = found.filter((it) => it.level !== 'note').length;
  const title = real === 0 ? 'Nothing is wrong' : real === 1 ? 'One thing to look at' : `${real} things to look at`;
  if (parts.title.textContent !== title) parts.title.textContent = parts.count.textContent = title;
  parts.title.className = real ? (found.some((it) => it.level === 'bad') ? 'bad' : 'warn') : 'good';
  const items = found.map(({ level, text }) => h('li', { class: level }, h('b', {}, LEVELS[level]), h('bdi', { class: 'text' }, text.slice(0, 4000))));
  parts.problems.replaceChildren(...items);
}

const fact = (name, value, note) => h('div', {}, h('dt', {}, name), h('dd', {}, value, note && h('small', {}, note)));

function meters(it) {
  if (!it) return [fact('Added latency', 'not known', 'give the console the metrics of the service')];
  const facts = [fact('Added latency, median', millis(it.p50)), fact('Added latency, 99th percentile', millis(it.p99))];
  const redis = it.redis;
  if (redis) {
    facts.push(
      fact('Calls to Redis a request', redis.calls_per_request === null ? '–' : redis.calls_per_request.toFixed(2)),
      fact('Deadline misses', count(redis.deadline_misses), 'in ten seconds'),
      fact('Queue to Redis, 99th percentile', millis(redis.queue_p99)),
      fact('Breaker', redis.breaker >= 1 ? 'closed' : redis.breaker <= 0 ? 'open' : `${count(redis.breaker * 100)} % pass`));
  }
  return facts;
}

function status(it) {
  if (!it) return [fact('Rules', 'in code', 'and changed there')];
  const facts = [fact('Rules', `revision ${it.revision}`, `${many(it.rules, 'rule')}; ${it.rejected ? `${many(it.rejected, 'document')} rejected` : 'no document rejected'}`)];
  if (it.fleet) facts.push(fact('Processes', count(it.fleet.processes), it.fleet.lagging ? `${count(it.fleet.lagging)} behind` : `all at revision ${it.fleet.revision}`));
  return facts;
}

const data = (id) => {
  const points = id === 'seconds' ? seconds : minutes.map(([at, sum]) => [at, per(sum, 60)]);
  return [points.map(([at]) => at), ...SERIES.map(([, index]) => points.map(([, sum]) => sum[index]))];
};

function draw() {
  charts.forEach((chart) => chart.destroy());
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  charts = Object.keys(CHARTS).map((id) => {
    const axis = { stroke: color('--muted'), grid: { stroke: color('--line'), width: 1 }, ticks: { show: false }, font: '12px system-ui, sans-serif' };
    const stroke = ([, , name], index) => ({ stroke: color(name), width: 1.5, dash: [[], [], [6, 3], [2, 3]][index], points: { show: false } });
    return new uPlot({
      width: Math.max(parts[id].clientWidth, 200), height: 180, legend: { show: false }, cursor: { show: false }, padding: [8, 28, 0, 0],
      scales: { x: { range: (_, low, high) => [high - (id === 'seconds' ? 120 : 3540), high] }, y: { range: (_, low, high) => [0, Math.max(high * 1.1, 1)] } },
      axes: [{ ...axis, space: 70, values: (_, ticks) => ticks.map((at) => clock(at * 1000).slice(0, id === 'seconds' ? 8 : 5)) }, { ...axis, size: 48, values: (_, ticks) => ticks.map(rate) }],
      series: [{}, ...SERIES.map(stroke)],
    }, data(id), parts[id]);
  });
  update();
}

function update() {
  charts.forEach((chart, index) => {
    const [id, title] = Object.entries(CHARTS)[index];
    const rows = data(id);
    chart.setData(rows);
    const sums = SERIES.map(([name], place) => `${name.toLowerCase()} at most ${rate(Math.max(0, ...rows[place + 1]))}`);
    parts[id].setAttribute('aria-label', `${title}, checks a second: ${sums.join(', ')}`);
  });
}
