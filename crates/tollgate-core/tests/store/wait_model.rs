//! The queue of rules that wait, against an oracle: a list of what was taken, in integers.

use std::time::Duration;

use tollgate_core::{
    Decision, Key, Limiter, ManualClock, MemoryStore, Outcome, Quota, Retry, Rule, SECOND, Tick,
    Ticket,
};

use crate::{Numbers, at_once};

/// A quota as the oracle knows it. Spans are in parts: a microsecond has `den` of them, and a unit takes `num`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Limit {
    rate: u64,
    seconds: u64,
    num: i128,
    den: i128,
    burst: i128,
    /// In µs; `None`: it does not wait.
    wait: Option<i128>,
}

impl Limit {
    fn new(rate: u64, seconds: u64, burst: u64, wait: Option<u64>) -> Self {
        let (mut num, mut den) = (i128::from(seconds) * 1_000_000, i128::from(rate));
        let common = gcd(num, den);
        (num, den) = (num / common, den / common);
        Self {
            rate,
            seconds,
            num,
            den,
            burst: i128::from(burst),
            wait: wait.map(i128::from),
        }
    }

    fn draw(numbers: &mut Numbers, waits: bool) -> Self {
        let (rate, seconds) = (1 + numbers.below(7), 1 + numbers.below(2));
        let burst = 1 + numbers.below(4);
        let wait = waits.then(|| 1 + numbers.below(3_000_000));
        Self::new(rate, seconds, burst, wait)
    }

    fn rule(&self, name: &str) -> Rule {
        let quota = Quota::gcra(self.rate, self.seconds as u32 * SECOND);
        let rule = Rule::new(name, quota.burst(self.burst as u64));
        match self.wait {
            Some(wait) => rule.wait(Duration::from_micros(wait as u64)),
            None => rule,
        }
    }

    fn tolerance(&self) -> i128 {
        self.burst * self.num
    }

    fn reach(&self) -> i128 {
        self.tolerance() + self.wait.unwrap_or(0) * self.den
    }

    fn up(&self, parts: i128) -> i128 {
        (parts + self.den - 1).div_euclid(self.den)
    }

    /// How long a cost has to wait with so much ahead, in parts.
    fn lacks(&self, ahead: i128, cost: i128) -> i128 {
        (ahead + cost * self.num - self.tolerance()).max(0)
    }

    /// What is left and until when it is not fresh, `ahead` parts ahead.
    fn numbers(&self, ahead: i128) -> (i128, i128) {
        let left = (self.tolerance() - ahead).max(0).div_euclid(self.num);
        (left, self.up(ahead))
    }

    fn counts_as(&self, other: &Self) -> bool {
        let numbers = |it: &Self| (it.num, it.den, it.burst, it.wait);
        numbers(self) == numbers(other)
    }

    fn is_faster_than(&self, other: &Self) -> bool {
        self.num * other.den < other.num * self.den
    }
}

/// The state of a rule, as a list of what was taken.
#[derive(Clone, Debug, Default)]
struct Queue {
    /// The quota that wrote it last; `None`: there is no state.
    writer: Option<Limit>,
    events: Vec<Event>,
    /// Until when tickets lapse after a repair or a conversion.
    cut: u64,
    /// How often a state was made, and how many units have lapsed.
    made: u64,
    lapsed: u64,
    /// Units beyond a smaller burst, which its queue does not know of: see `carried`.
    forgiven: i128,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// Units that count from this tick on, of the request with this number.
    Take {
        floor: i128,
        cost: i128,
        request: usize,
    },
    /// A state was cut or converted to this, in parts of its quota.
    Set { tat: i128 },
}

impl Queue {
    /// When all that was taken is paid back, in parts of the quota that wrote the state.
    fn tat(&self) -> i128 {
        let Some(writer) = self.writer else { return 0 };
        self.events.iter().fold(0, |tat, event| match event {
            Event::Take { floor, cost, .. } => tat.max(floor * writer.den) + cost * writer.num,
            Event::Set { tat } => *tat,
        })
    }

    fn fresh_at(&self) -> i128 {
        self.writer.map_or(0, |writer| writer.up(self.tat()))
    }

    fn is_live(&self, now: i128) -> bool {
        self.fresh_at() > now
    }

    /// How far the state lies ahead, in parts of the quota that wrote it.
    fn of_writer(&self, now: i128) -> i128 {
        let den = self.writer.map_or(1, |writer| writer.den);
        (self.tat() - now * den).max(0)
    }

    /// How far the state lies ahead under a quota, before repair, in parts of it.
    ///
    /// Used units stay used, at most the burst of the quota that wrote the state. What lies beyond that is a queue: it keeps its
    /// length in time, behind a bucket that is empty.
    fn carried(&self, limit: &Limit, now: i128) -> i128 {
        let Some(writer) = self.writer else { return 0 };
        let ahead = self.of_writer(now);
        if writer.counts_as(limit) {
            return ahead;
        }
        let queue = ahead.min(writer.reach()) - writer.tolerance();
        if queue > 0 {
            return limit.tolerance() + up(queue * limit.den, writer.den);
        }
        let used = ahead.min(writer.tolerance());
        up(used * limit.num, writer.num).min(limit.tolerance())
    }

    /// What is left, and when all is back, for a check that takes nothing. What another quota wrote comes back as under that one,
    /// unless requests wait for one of them.
    fn numbers(&self, limit: &Limit, now: i128) -> (i128, i128) {
        let (left, reset) = limit.numbers(self.ahead(limit, now));
        let writer = self.writer.filter(|writer| {
            writer.wait.is_none() && limit.wait.is_none() && !writer.counts_as(limit)
        });
        let reset = writer.map_or(reset, |writer| {
            writer.up(self.of_writer(now).min(writer.reach()))
        });
        (left, reset)
    }

    fn ahead(&self, limit: &Limit, now: i128) -> i128 {
        self.carried(limit, now).min(limit.reach())
    }

    /// A state that a denial leaves to another quota is not repaired.
    fn lacks(&self, limit: &Limit, now: i128, cost: i128) -> i128 {
        let ahead = match self.defers(limit, now) {
            true => self.carried(limit, now),
            false => self.ahead(limit, now),
        };
        limit.lacks(ahead, cost)
    }

    /// Whether a denial under a quota leaves the state to the one that wrote it.
    fn defers(&self, limit: &Limit, now: i128) -> bool {
        self.writer.is_some_and(|writer| {
            let ahead = self.of_writer(now).min(writer.reach());
            let used = ahead.min(writer.tolerance());
            let is_larger = used > limit.burst * writer.num;
            // Requests were told to wait for longer than they do under this one.
            let is_longer = ahead - used > limit.wait.unwrap_or(0) * writer.den;
            writer != *limit && (is_larger || is_longer || !limit.is_faster_than(&writer))
        })
    }

    /// How long a denied cost waits, and until when the state is not fresh, both in µs, by the quota that the denial leaves the state
    /// to.
    fn by_writer(&self, limit: &Limit, now: i128, cost: i128) -> Option<(i128, i128)> {
        let writer = self.writer.filter(|_| self.defers(limit, now))?;
        let ahead = self.of_writer(now).min(writer.reach());
        // Of the units that count, the rest of the burst has to remain free.
        let wait = ahead - (limit.burst - cost).min(writer.burst) * writer.num;
        (wait > 0 && limit.burst - cost < writer.burst).then(|| (writer.up(wait), writer.up(ahead)))
    }

    /// The state is written under a quota from now on.
    fn write(&mut self, limit: &Limit, now: i128) {
        match self.writer {
            None => self.made += 1,
            Some(writer) if !writer.counts_as(limit) => {
                let tat = now * limit.den + self.carried(limit, now);
                let used = up(self.of_writer(now).min(writer.tolerance()), writer.num);
                self.forgiven += (used - limit.burst).max(0);
                if writer.wait.is_some() || limit.wait.is_some() {
                    self.cut_after(now);
                }
                self.events = vec![Event::Set { tat }];
            }
            Some(_) => {}
        }
        self.writer = Some(*limit);
    }

    /// What was taken so far lapses.
    fn cut_after(&mut self, now: i128) {
        let tat = self.tat().div_euclid(self.writer.map_or(1, |it| it.den));
        let cut = ((tat.max(now) as u64) >> 20) + 1;
        self.cut = self.cut.max(cut);
    }

    fn take(&mut self, limit: &Limit, now: i128, (floor, cost): (i128, i128), request: usize) {
        self.write(limit, now);
        self.events.push(Event::Take {
            floor,
            cost,
            request,
        });
    }

    /// A denial under a quota. Whether it repaired something.
    fn denied(&mut self, limit: &Limit, now: i128) -> bool {
        let Some(writer) = self.writer else {
            return false;
        };
        let limit = match self.defers(limit, now) {
            true => writer,
            false => *limit,
        };
        self.write(&limit, now);
        if self.of_writer(now) <= limit.reach() {
            return false;
        }
        if limit.wait.is_some() {
            self.cut_after(now);
        }
        let tat = now * limit.den + limit.reach();
        self.events.push(Event::Set { tat });
        true
    }

    /// Gives the units of a request back, if they are the last. False: they lapse.
    fn refund(&mut self, limit: &Limit, now: i128, request: &Request) -> bool {
        if self.writer.is_none() {
            // There is nothing that they could come back to.
            return true;
        }
        let is_last = match self.events.last() {
            Some(Event::Take { request: last, .. }) => *last == request.number,
            _ => false,
        };
        let is_back = is_last
            && self.writer == Some(*limit)
            && self.is_live(now)
            && request.at >> 20 >= self.cut;
        if !is_back {
            self.lapsed += request.cost;
            return false;
        }
        self.events.pop();
        // A request that did not wait does not remember what was before it: nothing that is not paid back by then.
        let earliest = i128::from(request.at) * limit.den;
        if request.start == request.at && self.tat() < earliest {
            self.events.push(Event::Set { tat: earliest });
        }
        true
    }

    /// The state was gone, because it is fresh.
    fn forget(&mut self) {
        *self = Self {
            made: self.made,
            lapsed: self.lapsed,
            forgiven: self.forgiven,
            ..Self::default()
        };
    }
}

fn up(parts: i128, by: i128) -> i128 {
    (parts + by - 1).div_euclid(by)
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A request that is waiting, or has started.
struct Request {
    number: usize,
    cost: u64,
    at: u64,
    start: u64,
    /// The rules that it was asked under.
    version: usize,
    decision: Option<Decision>,
    ticket: Option<Ticket>,
}

/// Rules that are in force, or were.
struct Version {
    limiter: Limiter,
    limits: Vec<Limit>,
}

struct World {
    clock: ManualClock,
    store: MemoryStore,
    versions: Vec<Version>,
    queues: Vec<Queue>,
    requests: Vec<Request>,
    /// What has started: when, and how much, of requests that were not cancelled.
    starts: Vec<(usize, u64, u64)>,
    asked: usize,
    went_back: bool,
    /// How often something of interest happened.
    seen: Seen,
}

#[derive(Default)]
struct Seen {
    waited: u64,
    lapsed: u64,
    refunded: u64,
    denied: u64,
    repaired: u64,
    failed: u64,
    forgotten: u64,
    queues_kept: u64,
}

const NAMES: [&str; 3] = ["one", "two", "three"];

impl World {
    fn new(numbers: &mut Numbers) -> Self {
        let clock = ManualClock::new(1_700_000_000_000_000);
        let store = MemoryStore::builder().clock(&clock).build();
        let mut limits: Vec<Limit> = Vec::new();
        for _ in 0..=numbers.below(3) {
            // The last of several may deny at once.
            let waits = limits.is_empty() || numbers.below(2) > 0;
            limits.push(Limit::draw(numbers, waits));
        }
        let rules = NAMES.iter().zip(&limits);
        let rules = rules.map(|(name, limit)| limit.rule(name));
        let limiter = Limiter::new(store.clone(), rules).expect("valid rules");
        Self {
            clock,
            store,
            queues: vec![Queue::default(); limits.len()],
            versions: vec![Version { limiter, limits }],
            requests: Vec::new(),
            starts: Vec::new(),
            asked: 0,
            went_back: false,
            seen: Seen::default(),
        }
    }

    /// Puts other rules in the place of the last ones. Those may still be asked.
    fn replace(&mut self, numbers: &mut Numbers) {
        let (last, now) = (self.versions.len() - 1, i128::from(self.now()));
        let before = &self.versions[last];
        let mut limits = before.limits.clone();
        let mut rules = Vec::new();
        for (index, limit) in limits.iter_mut().enumerate() {
            let (from, waits) = (*limit, limit.wait.is_some());
            match numbers.below(4) {
                // As it was, or with another wait.
                0 => {}
                1 => limit.wait = Limit::draw(numbers, waits).wait,
                _ => *limit = Limit::draw(numbers, waits),
            }
            let quota = |it: &Limit| (it.rate, it.seconds, it.burst);
            let queue = &self.queues[index];
            if quota(&from) != quota(limit) {
                self.seen.queues_kept += u64::from(queue.carried(&from, now) > from.tolerance());
            }
            rules.push(limit.rule(NAMES[index]));
        }
        let limiter = Limiter::replacing(&[&before.limiter], self.store.clone(), rules);
        let limiter = limiter.expect("valid rules");
        self.versions.push(Version { limiter, limits });
    }

    /// States that are fresh may be forgotten, and those that are not are kept.
    fn sweep(&mut self) {
        let now = i128::from(self.now());
        let limiter = &self.versions[self.versions.len() - 1].limiter;
        for (index, queue) in self.queues.iter_mut().enumerate() {
            let usage = limiter.rule_store().usage(index as u16);
            let usage = usage.expect("memory knows");
            let (keys, made) = (u64::from(queue.is_live(now)), queue.made);
            let said = (usage.keys, usage.new_keys);
            assert_eq!(said, (keys, made), "{index} at {now}: {queue:?}");
            if queue.writer.is_some() && !queue.is_live(now) {
                queue.forget();
                self.seen.forgotten += 1;
            }
            let lapsed = limiter.rule_store().lapsed_units(index as u16);
            assert_eq!(lapsed, queue.lapsed, "{index} at {now}: {queue:?}");
        }
    }

    /// To the last tick of a state's life, and to its end.
    fn outlive(&mut self, numbers: &mut Numbers) {
        let queue = &self.queues[numbers.below(self.queues.len() as u64) as usize];
        let fresh_at = queue.fresh_at() as u64;
        if fresh_at <= self.now() {
            return;
        }
        for at in [fresh_at - 1, fresh_at] {
            self.go_to(at);
            self.sweep();
        }
    }

    /// One due start after the other, each at its tick.
    fn go_to(&mut self, until: u64) {
        while let Some(next) = self.next_start(until) {
            self.clock.set(next.max(self.now()));
            self.start_due();
        }
        self.clock.set(until.max(self.now()));
    }

    fn now(&self) -> u64 {
        let now: Tick = tollgate_core::Clock::from(&self.clock).now();
        now
    }

    fn checks(&self, version: usize, cost: u64) -> Vec<tollgate_core::Check> {
        let names = NAMES[..self.queues.len()].iter();
        let limiter = &self.versions[version].limiter;
        let check = |name: &&str| limiter.check(name, &Key::shared());
        let checks = names.map(|name| check(name).expect("a rule").with_cost(cost));
        checks.collect()
    }

    fn ask(&mut self, version: usize, cost: u64, patience: Option<u64>) {
        let now = self.now();
        let (checks, at) = (self.checks(version, cost), i128::from(now));
        let Version { limiter, limits } = &self.versions[version];
        let units = i128::from(cost);
        // A look says the same as the request.
        let looked = at_once(limiter.peek(&checks));
        let attempt = limiter.attempt(&checks);
        let decision = match patience {
            // With metrics, a report sweeps the table from time to time, and forgets what is fresh.
            None => at_once(attempt.within(Duration::MAX).decide()),
            Some(patience) => at_once(attempt.within(Duration::from_micros(patience)).decide()),
        };
        let number = self.asked;
        self.asked += 1;
        let waits = limits.iter().filter_map(|limit| limit.wait);
        let patience = patience.map_or(i128::MAX, i128::from);
        let patience = waits.fold(patience, i128::min);
        let never = limits.iter().any(|limit| units > limit.burst);
        // Rule 1: the instant of each, and the latest.
        let lacks = self.queues.iter().zip(limits);
        let lacks = lacks.map(|(queue, limit)| queue.lacks(limit, at, units));
        let lacks: Vec<i128> = lacks.collect();
        let until = |index: usize| limits[index].up(lacks[index]);
        let fits = |index: usize| {
            let limit = &limits[index];
            let wait = if limit.wait.is_some() { patience } else { 0 };
            cost == 0 || (units <= limit.burst && until(index) <= wait)
        };
        let all: Vec<usize> = (0..self.queues.len()).collect();
        let denied: Vec<usize> = all.iter().copied().filter(|index| !fits(*index)).collect();
        let context = format!(
            "request {number} of {cost} at {now}, patience {patience}: {:?} by {limits:?}\n{decision:?}",
            self.queues
        );
        if patience == i128::MAX || looked.is_allowed() == decision.is_allowed() {
            assert_eq!(looked.is_allowed(), decision.is_allowed(), "{context}");
        }
        if cost == 0 {
            assert!(
                decision.is_allowed() && decision.delay().is_zero(),
                "{context}"
            );
            return;
        }
        if never || !denied.is_empty() {
            assert_eq!(decision.outcome(), Outcome::Deny, "{context}");
            // Rule 9. Of a rule that does not wait, by the quota that the state is left to.
            let retry = denied.iter().map(|index| match limits[*index].wait {
                Some(_) => until(*index) - patience,
                None => self.queues[*index]
                    .by_writer(&limits[*index], at, units)
                    .map_or(until(*index), |(retry, _)| retry),
            });
            let retry = match never {
                true => Retry::Never,
                false => Retry::after_micros(retry.max().expect("one denies") as u64),
            };
            assert_eq!(decision.retry(), retry, "{context}");
            for index in all {
                let (queue, limit) = (&self.queues[index], &limits[index]);
                // Rule 10, denied: as of now, the queue included.
                let (left, mut reset) = match denied.contains(&index) {
                    true => limit.numbers(queue.ahead(limit, at)),
                    false => queue.numbers(limit, at),
                };
                if denied.contains(&index)
                    && let Some((_, by_writer)) = queue.by_writer(limit, at, units)
                {
                    reset = by_writer;
                }
                let verdict = decision.verdicts()[index];
                assert_eq!(i128::from(verdict.remaining()), left, "{index}: {context}");
                let said = i128::from(verdict.reset_after_ticks());
                assert_eq!(said, reset, "{index}: {context}");
            }
            self.seen.denied += 1;
            for index in denied {
                let repaired = self.queues[index].denied(&limits[index], at);
                self.seen.repaired += u64::from(repaired);
            }
            return;
        }
        assert_eq!(decision.outcome(), Outcome::Allow, "{context}");
        let start = (0..lacks.len()).map(until).max().unwrap_or(0) + at;
        let floor = lacks.iter().zip(limits);
        let floor = floor.map(|(lacks, limit)| lacks.div_euclid(limit.den));
        let floor = floor.max().unwrap_or(0) + at;
        let delay = Duration::from_micros((start - at) as u64);
        assert_eq!(decision.delay(), delay, "{context}");
        for (index, limit) in limits.iter().enumerate() {
            let verdict = decision.verdicts()[index];
            let queue = &mut self.queues[index];
            let mut numbers = queue.numbers(limit, at);
            if start == at || limit.wait.is_some() {
                // Rules 3 and 4.
                queue.take(limit, at, (floor, units), number);
                // Rule 10, admitted: as of its start.
                numbers = limit.numbers((queue.tat() - start * limit.den).max(0));
            }
            let (left, reset) = numbers;
            let said = (verdict.remaining(), verdict.reset_after_ticks());
            assert_eq!(
                (i128::from(said.0), i128::from(said.1)),
                (left, reset),
                "{context}"
            );
        }
        let mut request = Request {
            number,
            cost,
            at: now,
            start: start as u64,
            version,
            decision: Some(decision),
            ticket: None,
        };
        if start == at {
            let decision = request.decision.take().expect("it was just put there");
            request.ticket = Some(limiter.ticket(&checks, &decision));
            self.starts.push((number, now, cost));
        } else {
            self.seen.waited += 1;
            request.ticket = None;
        }
        self.requests.push(request);
    }

    /// Starts what is due.
    fn start_due(&mut self) {
        let now = self.now();
        for index in 0..self.requests.len() {
            let request = &self.requests[index];
            if request.decision.is_none() || request.start > now {
                continue;
            }
            let checks = self.checks(request.version, request.cost);
            let (number, cost) = (request.number, request.cost);
            let Version { limiter, limits } = &self.versions[request.version];
            let decision = self.requests[index].decision.take().expect("it waits");
            let started = at_once(limiter.start(&checks, decision));
            let (at, units) = (i128::from(now), i128::from(cost));
            // Rule 4: the rest is charged now.
            let rest: Vec<usize> = (0..self.queues.len())
                .filter(|index| limits[*index].wait.is_none())
                .collect();
            let lacks = |index: &usize| self.queues[*index].lacks(&limits[*index], at, units);
            let late: Vec<usize> = rest.iter().copied().filter(|it| lacks(it) > 0).collect();
            assert_eq!(started.is_allowed(), late.is_empty(), "{started:?}");
            assert!(started.delay().is_zero());
            if late.is_empty() {
                for index in rest {
                    self.queues[index].take(&limits[index], at, (at, units), number);
                }
                self.starts.push((number, now, cost));
                self.requests[index].ticket = Some(limiter.ticket(&checks, &started));
                continue;
            }
            self.seen.failed += 1;
            for (queue, limit) in self.queues.iter_mut().zip(limits) {
                if limit.wait.is_some() {
                    queue.refund(limit, at, &self.requests[index]);
                }
            }
            for index in late {
                self.queues[index].denied(&limits[index], at);
            }
        }
        self.requests
            .retain(|request| request.decision.is_some() || request.ticket.is_some());
    }

    /// A request gives up, before or after its start.
    fn cancel(&mut self, numbers: &mut Numbers) {
        if self.requests.is_empty() {
            return;
        }
        let index = numbers.below(self.requests.len() as u64) as usize;
        let mut request = self.requests.remove(index);
        let checks = self.checks(request.version, request.cost);
        let Version { limiter, limits } = &self.versions[request.version];
        let ticket = match (request.decision.take(), request.ticket.take()) {
            (Some(decision), _) => limiter.ticket(&checks, &decision),
            (None, Some(ticket)) => ticket,
            (None, None) => return,
        };
        // What a rule without a wait gives back is the subject of other tests: they would differ from here on.
        if limits.iter().any(|limit| limit.wait.is_none()) {
            ticket.keep();
            return;
        }
        ticket.cancel();
        let now = i128::from(self.now());
        for (queue, limit) in self.queues.iter_mut().zip(limits) {
            match queue.refund(limit, now, &request) {
                true => self.seen.refunded += 1,
                false => self.seen.lapsed += 1,
            }
        }
        let is_it = |(number, ..): &(usize, u64, u64)| *number == request.number;
        self.starts.retain(|start| !is_it(start));
    }

    /// In any window no more starts than the largest burst and what the fastest rate brings, the tick that a start is rounded up to
    /// included. Each conversion rounds up by less than that. A queue that moves behind a smaller burst may leave as many units
    /// more as that is smaller.
    fn keeps_the_quota(&self) {
        if self.went_back {
            return;
        }
        for (index, queue) in self.queues.iter().enumerate() {
            let limits = self.versions.iter().map(|version| version.limits[index]);
            let burst = limits.clone().map(|limit| limit.burst).max().unwrap_or(0);
            let all: Vec<Limit> = limits.clone().collect();
            let limits = limits.reduce(|a, b| if b.is_faster_than(&a) { b } else { a });
            let fastest = limits.expect("there is a version");
            let starts = &self.starts;
            for (index, first) in starts.iter().enumerate() {
                let mut units = 0;
                for (_, at, cost) in &starts[index..] {
                    units += i128::from(*cost);
                    let window = i128::from(at - first.1) + self.versions.len() as i128;
                    let most = (burst + queue.forgiven) * fastest.num + window * fastest.den;
                    assert!(
                        units * fastest.num <= most,
                        "{units} from {} to {at} of {queue:?} by {all:?}: {starts:?}",
                        first.1
                    );
                }
            }
        }
    }
}

fn history(seed: u64, goes_back: bool, changes: bool) -> Seen {
    let mut numbers = Numbers(seed);
    let mut world = World::new(&mut numbers);
    for _ in 0..60 {
        match numbers.below(12) {
            0..=5 => {
                let cost = numbers.below(5);
                let patience = (numbers.below(3) == 0).then(|| numbers.below(2_000_000));
                // Mostly by the rules in force.
                let last = world.versions.len() as u64 - 1;
                let version = match numbers.below(4) {
                    0 => numbers.below(last + 1),
                    _ => last,
                };
                world.ask(version as usize, cost, patience);
            }
            6 => world.cancel(&mut numbers),
            7 if goes_back && numbers.below(4) == 0 => {
                let back = world.now() - numbers.below(4_000_000);
                world.clock.set(back);
                world.went_back = true;
            }
            8 if changes && numbers.below(3) == 0 => world.replace(&mut numbers),
            // A state that was forgotten is not there when a clock goes back.
            9 if !goes_back && numbers.below(3) == 0 => world.sweep(),
            10 if !goes_back && numbers.below(3) == 0 => world.outlive(&mut numbers),
            _ => world.go_to(world.now() + numbers.below(900_000)),
        }
    }
    if !goes_back {
        world.sweep();
    }
    world.keeps_the_quota();
    world.seen
}

impl World {
    fn next_start(&self, until: u64) -> Option<u64> {
        let waiting = self
            .requests
            .iter()
            .filter(|request| request.decision.is_some());
        let next = waiting.map(|request| request.start).min()?;
        (next <= until).then_some(next)
    }
}

fn all(histories: u64, changes: bool) -> Seen {
    let mut all = Seen::default();
    for seed in 0..histories {
        let seen = history(seed, seed % 3 == 0, changes);
        all.waited += seen.waited;
        all.lapsed += seen.lapsed;
        all.refunded += seen.refunded;
        all.denied += seen.denied;
        all.repaired += seen.repaired;
        all.failed += seen.failed;
        all.forgotten += seen.forgotten;
        all.queues_kept += seen.queues_kept;
    }
    // The histories went where they are to go.
    assert!(all.waited > 1_000, "{} waited", all.waited);
    assert!(all.lapsed > 100, "{} lapsed", all.lapsed);
    assert!(all.refunded > 100, "{} refunded", all.refunded);
    assert!(all.denied > 1_000, "{} denied", all.denied);
    assert!(all.repaired > 20, "{} repaired", all.repaired);
    assert!(all.failed > 5, "{} failed when they started", all.failed);
    assert!(all.forgotten > 500, "{} forgotten", all.forgotten);
    all
}

#[test]
fn requests_wait_start_and_give_up_as_the_oracle_says() {
    all(2_500, false);
}

#[test]
fn quotas_change_while_requests_wait_as_the_oracle_says() {
    let all = all(3_000, true);
    assert!(all.queues_kept > 100, "{} queues kept", all.queues_kept);
}
