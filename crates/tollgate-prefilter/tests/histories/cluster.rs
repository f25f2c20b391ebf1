//! Eight processes, a store, and a network between them that delays, reorders and loses.

use std::collections::BTreeMap;

use fastrand::Rng;
use tollgate_core::Tick;
use tollgate_prefilter::{Grant, LeaseHolder, LeaseQuery, LeaseTerms, ReturnedLease};

/// The store, and an oracle.
pub(crate) trait Shared {
    /// The store carries out a query at `now` by its clock. Whether the request was granted, and what is granted.
    fn acquire(&mut self, now: Tick, cost: u64, query: &LeaseQuery) -> (bool, Option<Grant>);

    /// The key is reset at `now` by the store's clock, and what was admitted is forgotten.
    fn reset(&mut self, now: Tick);

    /// A request was let through. Has to fail if it is one too many.
    fn admit(&mut self, now: Tick, cost: u64);

    /// Units of a window come back that no process has a place for. Of a bucket there are none.
    fn refund(&mut self, _now: Tick, _window: u64, _units: u64) {}

    /// So many units that were spent before a reset may come back after it, and exceed the limit.
    fn excuse(&mut self, _units: u64) {}
}

/// How much comes, and what goes wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    /// µs between requests, on average.
    pub(crate) gap: Tick,
    /// The largest cost.
    pub(crate) heaviest: u64,
    /// µs that a message takes at most.
    pub(crate) delay: Tick,
    /// In thousandths: messages that are lost, requests after which a process crashes, or all fall silent.
    pub(crate) lost: u64,
    pub(crate) crash: u64,
    pub(crate) silence: u64,
    /// In ten thousandths: requests after which the key is reset.
    pub(crate) reset: u64,
    /// In thousandths: requests that are not let through although their units were spent.
    pub(crate) denied: u64,
    /// For how many µs at most.
    pub(crate) silent: Tick,
}

pub(crate) struct Cluster<S> {
    pub(crate) shared: S,
    pub(crate) now: Tick,
    /// What the store's clock is ahead of `now`.
    pub(crate) ahead: i64,
    terms: LeaseTerms,
    weather: Weather,
    rng: Rng,
    processes: Vec<Process>,
    events: BTreeMap<(Tick, u64), Event>,
    sequence: u64,
    pub(crate) sums: Sums,
}

/// Units of leases, in total.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) granted: u64,
    pub(crate) spent: u64,
    pub(crate) handed_back: u64,
    pub(crate) burnt: u64,
    /// Returned units that did not reach the store.
    pub(crate) missed: u64,
    /// Units that were let through.
    pub(crate) admitted: u64,
    /// Of what was granted and came, units that the bucket did not have yet.
    pub(crate) ahead: u64,
    /// Requests, and those that were answered without a query.
    pub(crate) requests: u64,
    pub(crate) alone: u64,
}

#[derive(Debug, Default)]
struct Process {
    holder: LeaseHolder,
    /// What it holds by our own count, and of what window.
    hand: u64,
    window: Option<u64>,
    /// How often it has crashed.
    life: u64,
    /// Its clock gains so many µs in a second.
    drift: i64,
}

#[derive(Debug)]
struct Query {
    of: usize,
    life: u64,
    sent: Tick,
    cost: u64,
    query: LeaseQuery,
}

#[derive(Debug)]
enum Event {
    Request,
    Execute(Query, bool),
    Deliver(Query, Tick, Option<Grant>),
    Lost(Query),
    /// It was refused before it was sent.
    Refused(Query),
    GiveBack(Back),
}

/// Units that come back.
#[derive(Clone, Copy, Debug)]
struct Back {
    of: usize,
    life: u64,
    spent: Tick,
    window: Option<u64>,
    units: u64,
}

const PROCESSES: usize = 8;

/// Long after the epoch, and no multiple of anything.
const START: Tick = 1_700_000_123_456_789;

impl<S: Shared> Cluster<S> {
    pub(crate) fn new(shared: S, terms: LeaseTerms, weather: Weather, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let processes = (0..PROCESSES).map(|_| Process {
            drift: rng.i64(-500..=500),
            ..Process::default()
        });
        let processes = processes.collect();
        let mut cluster = Self {
            shared,
            now: START,
            ahead: 0,
            terms,
            weather,
            rng,
            processes,
            events: BTreeMap::new(),
            sequence: 0,
            sums: Sums::default(),
        };
        cluster.after(0, Event::Request);
        cluster
    }

    /// Does what comes next, so many times.
    pub(crate) fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            let Some(((at, _), event)) = self.events.pop_first() else {
                return;
            };
            self.now = at;
            self.happens(event);
        }
        self.accounts();
    }

    /// Every unit that was granted in a lease is somewhere, once.
    fn accounts(&self) {
        let held: u64 = self.processes.iter().map(|process| process.hand).sum();
        let coming = self.events.values().map(|event| match event {
            Event::Deliver(_, _, Some(grant)) => grant.units(),
            Event::GiveBack(back) => back.units,
            _ => 0,
        });
        let out = held + coming.sum::<u64>();
        let sums = self.sums;
        let gone = sums.spent + sums.handed_back + sums.burnt;
        assert_eq!(sums.granted, gone + out, "{sums:?}");
    }

    /// Units in leases that are held, or are on their way.
    pub(crate) fn out(&self) -> u64 {
        let held = |process: &Process| process.holder.held(self.clock(process));
        let coming = self.events.values().map(|event| match event {
            Event::Deliver(_, _, Some(grant)) => grant.units(),
            _ => 0,
        });
        let held: u64 = self.processes.iter().map(held).sum();
        held + coming.sum::<u64>()
    }

    fn clock(&self, process: &Process) -> Tick {
        let passed = (self.now - START) as i64;
        // Each process counts from a moment of its own.
        (777_000_000 + passed + passed * process.drift / 1_000_000) as Tick
    }

    fn after(&mut self, delay: Tick, event: Event) {
        self.sequence += 1;
        self.events.insert((self.now + delay, self.sequence), event);
    }

    fn delay(&mut self) -> Tick {
        self.rng.u64(0..=self.weather.delay)
    }

    fn in_thousand(&mut self, chance: u64) -> bool {
        self.rng.u64(0..1_000) < chance
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Request => self.request(),
            Event::Execute(query, is_answered) => {
                let clock = self.now.saturating_add_signed(self.ahead);
                let (fits, grant) = self.shared.acquire(clock, query.cost, &query.query);
                self.sums.granted += grant.map_or(0, |grant| grant.units());
                if fits {
                    self.admit(query.cost);
                }
                if is_answered {
                    let delay = self.delay();
                    self.after(delay, Event::Deliver(query, clock, grant));
                } else {
                    self.sums.burnt += grant.map_or(0, |grant| grant.units());
                    let wait = 2 * self.weather.delay;
                    self.after(wait, Event::Lost(query));
                }
            }
            Event::Deliver(query, at, grant) => {
                let units = grant.map_or(0, |grant| grant.units());
                let received = self.clock(&self.processes[query.of]);
                let process = &mut self.processes[query.of];
                if process.life != query.life {
                    self.sums.burnt += units;
                } else if !query.query.is_empty() {
                    let times = (query.sent, received);
                    let left = process.holder.on_reply(times, at, grant, &self.terms);
                    if let Some(Grant::Scheduled { units, .. }) = grant {
                        self.sums.ahead += units;
                    }
                    if let Some(grant) = grant {
                        let window = match grant {
                            Grant::Tracked { generation, .. } => {
                                self.terms.window().map(|_| generation)
                            }
                            _ => None,
                        };
                        // Units of one window are one.
                        if window.is_none() || window != process.window {
                            self.sums.burnt += process.hand;
                            process.hand = 0;
                        }
                        process.hand += units;
                        process.window = window;
                    }
                    if let Some(left) = left {
                        let clock = self.now.saturating_add_signed(self.ahead);
                        self.shared.refund(clock, left.generation, left.left);
                    }
                }
            }
            Event::Lost(query) => {
                let process = &mut self.processes[query.of];
                if process.life == query.life && !query.query.is_empty() {
                    process.holder.lost();
                }
            }
            Event::Refused(query) => {
                let clock = self.clock(&self.processes[query.of]);
                let process = &mut self.processes[query.of];
                let returned = query.query.returned;
                let left = returned.map_or(0, |returned| returned.left);
                if process.life == query.life && !query.query.is_empty() {
                    let held = |holder: LeaseHolder| {
                        let mut holder = holder;
                        holder.take_out(clock).map_or(0, |returned| returned.left)
                    };
                    let before = held(process.holder);
                    process.holder.on_not_sent(returned);
                    let back = held(process.holder) - before;
                    process.hand += back;
                    self.sums.handed_back -= back;
                    self.sums.missed += left - back;
                } else {
                    self.sums.missed += left;
                }
            }
            Event::GiveBack(back) => self.give_back(back),
        }
    }

    fn give_back(&mut self, back: Back) {
        let Back {
            of,
            life,
            spent,
            window,
            units,
        } = back;
        let clock = self.clock(&self.processes[of]);
        let process = &mut self.processes[of];
        if process.life != life {
            self.sums.burnt += units;
            return;
        }
        let Some(window) = window else {
            let before = process.holder.left(clock);
            process.holder.give_back(clock, spent, units);
            let back = process.holder.left(clock) - before;
            process.hand += back;
            self.sums.burnt += units - back;
            return;
        };
        let rest = process.holder.give_back_to(window, (clock, spent), units);
        process.hand += units - rest;
        if rest > 0 {
            self.sums.handed_back += rest;
            let clock = self.now.saturating_add_signed(self.ahead);
            self.shared.refund(clock, window, rest);
        }
    }

    fn admit(&mut self, cost: u64) {
        self.sums.admitted += cost;
        self.shared.admit(self.now, cost);
    }

    /// What a reset does not know of: spent on requests that may yet be denied, or held beyond what is tracked.
    fn unknown(&self) -> u64 {
        let beyond = |returned: Option<ReturnedLease>| {
            returned.map_or(0, |returned| returned.left.saturating_sub(returned.size))
        };
        let on_its_way = self.events.values().map(|event| match event {
            Event::GiveBack(back) => back.units,
            Event::Execute(query, _) | Event::Lost(query) | Event::Refused(query) => {
                beyond(query.query.returned)
            }
            _ => 0,
        });
        let held = self.processes.iter().map(|process| {
            let mut holder = process.holder;
            beyond(holder.take_out(self.clock(process)))
        });
        on_its_way.sum::<u64>() + held.sum::<u64>()
    }

    /// All that is on its way arrives, and all that is held goes back.
    pub(crate) fn settle(&mut self) {
        while let Some(((at, _), event)) = self.events.pop_first() {
            self.now = at;
            if !matches!(event, Event::Request) {
                self.happens(event);
            }
        }
        for of in 0..PROCESSES {
            let clock = self.clock(&self.processes[of]);
            let process = &mut self.processes[of];
            let returned = process.holder.take_out(clock);
            let left = returned.map_or(0, |returned| returned.left);
            assert_eq!(std::mem::take(&mut process.hand), left);
            self.sums.handed_back += left;
            let query = LeaseQuery::default().with_returned(returned);
            let clock = self.now.saturating_add_signed(self.ahead);
            self.shared.acquire(clock, 0, &query);
        }
        self.accounts();
    }

    fn request(&mut self) {
        let of = self.rng.usize(0..PROCESSES) * self.rng.usize(0..2);
        let cost = match self.rng.u8(0..4) {
            0 => self.rng.u64(1..=self.weather.heaviest),
            _ => 1,
        };
        let clock = self.clock(&self.processes[of]);
        self.sums.requests += 1;
        let process = &mut self.processes[of];
        if process.holder.spend(clock, cost) {
            process.hand = process.hand.checked_sub(cost).expect("it was granted");
            self.sums.alone += 1;
            if self.in_thousand(self.weather.denied) {
                // By another rule, in the store; or it is refunded later.
                let delay = match self.rng.bool() {
                    true => self.rng.u64(0..=2 * self.weather.delay),
                    false => self.rng.u64(1..=20_000_000),
                };
                let process = &self.processes[of];
                let back = Back {
                    of,
                    life: process.life,
                    spent: clock,
                    window: process.holder.window(),
                    units: cost,
                };
                self.after(delay, Event::GiveBack(back));
            } else {
                self.sums.spent += cost;
                self.admit(cost);
            }
        } else {
            let query = process.holder.query(clock, cost, &self.terms);
            if let Some(returned) = query.returned {
                assert_eq!(returned.left, process.hand);
                self.sums.handed_back += returned.left;
            } else if process.holder.until().is_none() {
                self.sums.burnt += process.hand;
            }
            if process.holder.until().is_none() {
                process.hand = 0;
            }
            let life = process.life;
            self.send(Query {
                of,
                life,
                sent: clock,
                cost,
                query,
            });
        }
        if self.in_thousand(self.weather.crash) {
            let process = &mut self.processes[of];
            self.sums.burnt += process.hand;
            (process.holder, process.hand) = (LeaseHolder::default(), 0);
            process.life += 1;
        }
        if self.rng.u64(0..10_000) < self.weather.reset {
            let clock = self.now.saturating_add_signed(self.ahead);
            self.shared.reset(clock);
            let unknown = self.unknown();
            self.shared.excuse(unknown);
        }
        let mut gap = self.rng.u64(0..=2 * self.weather.gap);
        if self.in_thousand(self.weather.silence) {
            gap += self.rng.u64(0..=self.weather.silent);
        }
        self.after(gap, Event::Request);
    }

    fn send(&mut self, query: Query) {
        if self.in_thousand(self.weather.lost) {
            let wait = 2 * self.weather.delay;
            if self.rng.bool() {
                return self.after(wait, Event::Refused(query));
            }
            self.sums.missed += query.query.returned.map_or(0, |returned| returned.left);
            self.after(wait, Event::Lost(query));
        } else {
            let is_answered = !self.in_thousand(self.weather.lost);
            let delay = self.delay();
            self.after(delay, Event::Execute(query, is_answered));
        }
    }
}
