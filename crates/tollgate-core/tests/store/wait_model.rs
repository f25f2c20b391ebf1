//! The queue of rules that wait, against an oracle: a list of what was taken, in integers.

use std::time::Duration;

use tollgate_core::{
    Decision, Key, Limiter, ManualClock, MemoryStore, Outcome, Quota, Retry, Rule, SECOND, Tick,
    Ticket,
};

use crate::{Numbers, at_once};

/// A rule as the oracle knows it. Spans are in parts: a microsecond has `den` of them, and a unit takes `num`.
#[derive(Clone, Debug)]
struct Queue {
    num: i128,
    den: i128,
    burst: i128,
    /// In µs; `None`: it does not wait.
    wait: Option<i128>,
    events: Vec<Event>,
    /// Until when tickets lapse after a repair.
    cut: u64,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// Units that count from this tick on, of the request with this number.
    Take {
        floor: i128,
        cost: i128,
        request: usize,
    },
    /// A state was cut to this, in parts.
    Cut { tat: i128 },
}

impl Queue {
    fn new(rate: u64, seconds: u64, burst: u64, wait: Option<u64>) -> Self {
        let (mut num, mut den) = (seconds as i128 * 1_000_000, rate as i128);
        let common = gcd(num, den);
        (num, den) = (num / common, den / common);
        Self {
            num,
            den,
            burst: burst as i128,
            wait: wait.map(i128::from),
            events: Vec::new(),
            cut: 0,
        }
    }

    /// When all that was taken is paid back, in parts.
    fn tat(&self) -> i128 {
        self.events.iter().fold(0, |tat, event| match event {
            Event::Take { floor, cost, .. } => tat.max(floor * self.den) + cost * self.num,
            Event::Cut { tat } => *tat,
        })
    }

    fn tolerance(&self) -> i128 {
        self.burst * self.num
    }

    fn reach(&self) -> i128 {
        self.tolerance() + self.wait.unwrap_or(0) * self.den
    }

    /// How far the state lies ahead, after repair, in parts.
    fn ahead(&self, now: i128) -> i128 {
        (self.tat() - now * self.den).clamp(0, self.reach())
    }

    /// How long a cost has to wait, in parts.
    fn lacks(&self, now: i128, cost: i128) -> i128 {
        (self.ahead(now) + cost * self.num - self.tolerance()).max(0)
    }

    fn up(&self, parts: i128) -> i128 {
        (parts + self.den - 1).div_euclid(self.den)
    }

    fn repair(&mut self, now: i128) {
        let tat = self.tat();
        if tat - now * self.den > self.reach() {
            if self.wait.is_some() {
                let cut = ((tat.div_euclid(self.den).max(now) as u64) >> 20) + 1;
                self.cut = self.cut.max(cut);
            }
            let tat = now * self.den + self.reach();
            self.events.push(Event::Cut { tat });
        }
    }

    /// What is left and until when it is not fresh, `ahead` parts ahead.
    fn numbers(&self, ahead: i128) -> (i128, i128) {
        let left = (self.tolerance() - ahead).max(0).div_euclid(self.num);
        (left, self.up(ahead))
    }

    /// Gives the units of a request back, if they are the last. False: they lapse.
    fn refund(&mut self, request: usize, now: i128, at: u64, has_waited: bool) -> bool {
        let fresh_at = self.up(self.tat());
        match self.events.last() {
            Some(Event::Take { request: last, .. }) if *last == request => {
                let goes_back = fresh_at > now && at >> 20 >= self.cut;
                if goes_back {
                    let earliest = i128::from(at) * self.den;
                    self.events.pop();
                    // A request that did not wait does not remember what was before it: nothing that is not paid back by then.
                    if !has_waited && self.tat() < earliest {
                        self.events.push(Event::Cut { tat: earliest });
                    }
                }
                goes_back
            }
            _ => false,
        }
    }
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
    decision: Option<Decision>,
    ticket: Option<Ticket>,
}

struct World {
    clock: ManualClock,
    limiter: Limiter,
    queues: Vec<Queue>,
    names: Vec<&'static str>,
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
}

const NAMES: [&str; 3] = ["one", "two", "three"];

impl World {
    fn new(numbers: &mut Numbers) -> Self {
        let clock = ManualClock::new(1_700_000_000_000_000);
        let store = MemoryStore::builder().clock(&clock).build();
        let mut queues = Vec::new();
        let mut rules = Vec::new();
        let count = 1 + numbers.below(3) as usize;
        for name in &NAMES[..count] {
            let (rate, seconds) = (1 + numbers.below(7), 1 + numbers.below(2));
            let burst = 1 + numbers.below(4);
            // The last of several may deny at once.
            let waits = rules.is_empty() || numbers.below(2) > 0;
            let wait = waits.then(|| 1 + numbers.below(3_000_000));
            let quota = Quota::gcra(rate, seconds as u32 * SECOND).burst(burst);
            let rule = Rule::new(*name, quota);
            rules.push(match wait {
                Some(wait) => rule.wait(Duration::from_micros(wait)),
                None => rule,
            });
            queues.push(Queue::new(rate, seconds, burst, wait));
        }
        Self {
            limiter: Limiter::new(store, rules).expect("valid rules"),
            clock,
            queues,
            names: NAMES[..count].to_vec(),
            requests: Vec::new(),
            starts: Vec::new(),
            asked: 0,
            went_back: false,
            seen: Seen::default(),
        }
    }

    fn now(&self) -> u64 {
        let now: Tick = tollgate_core::Clock::from(&self.clock).now();
        now
    }

    fn checks(&self, cost: u64) -> Vec<tollgate_core::Check> {
        let names = self.names.iter();
        let check = |name: &&str| self.limiter.check(name, &Key::shared());
        let checks = names.map(|name| check(name).expect("a rule").with_cost(cost));
        checks.collect()
    }

    fn ask(&mut self, cost: u64, patience: Option<u64>) {
        let now = self.now();
        let (checks, at) = (self.checks(cost), i128::from(now));
        let units = i128::from(cost);
        // A look says the same as the request.
        let looked = at_once(self.limiter.peek(&checks));
        let decision = match patience {
            // With metrics, a report sweeps the table from time to time, and forgets what is fresh.
            None => at_once(self.limiter.acquire_unreported(&checks)),
            Some(patience) => {
                let patience = Duration::from_micros(patience);
                at_once(self.limiter.acquire_with_patience(&checks, patience))
            }
        };
        let number = self.asked;
        self.asked += 1;
        let waits = self.queues.iter().filter_map(|queue| queue.wait);
        let patience = patience.map_or(i128::MAX, i128::from);
        let patience = waits.fold(patience, i128::min);
        let never = self.queues.iter().any(|queue| units > queue.burst);
        // Rule 1: the instant of each, and the latest.
        let lacks: Vec<i128> = self
            .queues
            .iter()
            .map(|queue| queue.lacks(at, if cost == 0 { 0 } else { units }))
            .collect();
        let until = |index: usize| self.queues[index].up(lacks[index]);
        let fits = |index: usize| {
            let queue = &self.queues[index];
            let wait = if queue.wait.is_some() { patience } else { 0 };
            cost == 0 || (units <= queue.burst && until(index) <= wait)
        };
        let all: Vec<usize> = (0..self.queues.len()).collect();
        let denied: Vec<usize> = all.iter().copied().filter(|index| !fits(*index)).collect();
        let context = format!(
            "request {number} of {cost} at {now}, patience {patience}: {:?}\n{decision:?}",
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
            // Rule 9.
            let retry = denied.iter().map(|index| {
                let waits = self.queues[*index].wait.is_some();
                until(*index) - if waits { patience } else { 0 }
            });
            let retry = match never {
                true => Retry::Never,
                false => Retry::after_micros(retry.max().expect("one denies") as u64),
            };
            assert_eq!(decision.retry(), retry, "{context}");
            for index in all {
                let queue = &self.queues[index];
                // Rule 10, denied: as of now, the queue included.
                let (left, reset) = queue.numbers(queue.ahead(at));
                let verdict = decision.verdicts()[index];
                assert_eq!(i128::from(verdict.remaining()), left, "{index}: {context}");
                let said = i128::from(verdict.reset_after_ticks());
                assert_eq!(said, reset, "{index}: {context}");
            }
            self.seen.denied += 1;
            for index in denied {
                let before = self.queues[index].events.len();
                self.queues[index].repair(at);
                let repaired = self.queues[index].events.len() > before;
                self.seen.repaired += u64::from(repaired);
            }
            return;
        }
        assert_eq!(decision.outcome(), Outcome::Allow, "{context}");
        let start = (0..lacks.len()).map(until).max().unwrap_or(0) + at;
        let waits: Vec<bool> = self
            .queues
            .iter()
            .map(|queue| queue.wait.is_some())
            .collect();
        let floor = lacks
            .iter()
            .zip(&self.queues)
            .map(|(lacks, queue)| lacks.div_euclid(queue.den))
            .max()
            .unwrap_or(0)
            + at;
        let delay = Duration::from_micros((start - at) as u64);
        assert_eq!(decision.delay(), delay, "{context}");
        for (index, waits) in waits.iter().enumerate() {
            let verdict = decision.verdicts()[index];
            let queue = &mut self.queues[index];
            let mut ahead = queue.ahead(at);
            if start == at || *waits {
                // Rules 3 and 4.
                queue.events.push(Event::Take {
                    floor,
                    cost: units,
                    request: number,
                });
                // Rule 10, admitted: as of its start.
                ahead = (queue.tat() - start * queue.den).max(0);
            }
            let (left, reset) = queue.numbers(ahead);
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
            decision: Some(decision),
            ticket: None,
        };
        if start == at {
            let decision = request.decision.take().expect("it was just put there");
            request.ticket = Some(self.limiter.ticket(&checks, &decision));
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
            let checks = self.checks(request.cost);
            let (number, cost, at) = (request.number, request.cost, request.at);
            let decision = self.requests[index].decision.take().expect("it waits");
            let started = at_once(self.limiter.start(&checks, decision));
            let at_now = i128::from(now);
            // Rule 4: the rest is charged now.
            let rest: Vec<usize> = (0..self.queues.len())
                .filter(|index| self.queues[*index].wait.is_none())
                .collect();
            let fits = rest.iter().all(|index| {
                let queue = &self.queues[*index];
                queue.lacks(at_now, i128::from(cost)) == 0
            });
            assert_eq!(started.is_allowed(), fits, "{started:?}");
            assert!(started.delay().is_zero());
            if fits {
                for index in rest {
                    self.queues[index].events.push(Event::Take {
                        floor: at_now,
                        cost: i128::from(cost),
                        request: number,
                    });
                }
                self.starts.push((number, now, cost));
                self.requests[index].ticket = Some(self.limiter.ticket(&checks, &started));
                continue;
            }
            self.seen.failed += 1;
            for queue in &mut self.queues {
                if queue.wait.is_some() {
                    queue.refund(number, at_now, at, true);
                } else if queue.lacks(at_now, i128::from(cost)) > 0 {
                    queue.repair(at_now);
                }
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
        let checks = self.checks(request.cost);
        let ticket = match (request.decision.take(), request.ticket.take()) {
            (Some(decision), _) => self.limiter.ticket(&checks, &decision),
            (None, Some(ticket)) => ticket,
            (None, None) => return,
        };
        // What a rule without a wait gives back is the subject of other tests: they would differ from here on.
        if self.queues.iter().any(|queue| queue.wait.is_none()) {
            ticket.keep();
            return;
        }
        ticket.cancel();
        let now = i128::from(self.now());
        let has_waited = request.start > request.at;
        for queue in &mut self.queues {
            match queue.refund(request.number, now, request.at, has_waited) {
                true => self.seen.refunded += 1,
                false => self.seen.lapsed += 1,
            }
        }
        let is_it = |(number, ..): &(usize, u64, u64)| *number == request.number;
        self.starts.retain(|start| !is_it(start));
    }

    /// In any window no more starts than the burst and what the rate brings, the tick that a start is rounded up to included.
    fn keeps_the_quota(&self) {
        if self.went_back {
            return;
        }
        for queue in &self.queues {
            for (index, first) in self.starts.iter().enumerate() {
                let mut units = 0;
                for (_, at, cost) in &self.starts[index..] {
                    units += i128::from(*cost);
                    let window = i128::from(at - first.1) + 1;
                    let most = queue.tolerance() + window * queue.den;
                    assert!(units * queue.num <= most, "{:?} of {queue:?}", self.starts);
                }
            }
        }
    }
}

fn history(seed: u64, goes_back: bool) -> Seen {
    let mut numbers = Numbers(seed);
    let mut world = World::new(&mut numbers);
    for _ in 0..60 {
        match numbers.below(10) {
            0..=5 => {
                let cost = numbers.below(5);
                let patience = (numbers.below(3) == 0).then(|| numbers.below(2_000_000));
                world.ask(cost, patience);
            }
            6 => world.cancel(&mut numbers),
            7 if goes_back && numbers.below(4) == 0 => {
                let back = world.now() - numbers.below(4_000_000);
                world.clock.set(back);
                world.went_back = true;
            }
            _ => {
                // One due start after the other, each at its tick.
                let until = world.now() + numbers.below(900_000);
                while let Some(next) = world.next_start(until) {
                    world.clock.set(next.max(world.now()));
                    world.start_due();
                }
                world.clock.set(until.max(world.now()));
            }
        }
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

#[test]
fn requests_wait_start_and_give_up_as_the_oracle_says() {
    let mut all = Seen::default();
    for seed in 0..1_500 {
        let seen = history(seed, seed % 3 == 0);
        all.waited += seen.waited;
        all.lapsed += seen.lapsed;
        all.refunded += seen.refunded;
        all.denied += seen.denied;
        all.repaired += seen.repaired;
        all.failed += seen.failed;
    }
    // The histories went where they are to go.
    assert!(all.waited > 1_000, "{} waited", all.waited);
    assert!(all.lapsed > 100, "{} lapsed", all.lapsed);
    assert!(all.refunded > 100, "{} refunded", all.refunded);
    assert!(all.denied > 1_000, "{} denied", all.denied);
    assert!(all.repaired > 20, "{} repaired", all.repaired);
    assert!(all.failed > 5, "{} failed when they started", all.failed);
}
