//! A history: rule sets, requests, settlements, and time, done in memory and by the script.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tollgate_core::{
    BoundStore, Check, Decision, Fingerprint, Holding, ManualClock, MemoryStore, Outcome, RuleSet,
    Settlement, Store as _, algorithm::Taken,
};
use tollgate_redis::{
    Keys, Secret,
    call::Call,
    encode::Encoder,
    keyspace::{Keyspace, Partition},
    reply::Reply,
};

use crate::{
    expected::Expected,
    quotas::{Family, Range, rule_set},
    server::Server,
    support::{numbers::Numbers, resp::Value},
};

const STEPS: u64 = 150;

/// States outlive the test: by its clock centuries may pass in a moment, by the server's they do not.
const MARGIN: Duration = Duration::from_secs(10_000_000_000);

/// The times that histories reach.
const LAST: u64 = 4_000_000_000_000_000;

#[derive(Debug)]
pub(crate) struct History {
    seed: u64,
    numbers: Numbers,
    ranges: Vec<Range>,
    clock: ManualClock,
    memory: MemoryStore,
    bound: Arc<dyn BoundStore>,
    encoder: Arc<Encoders>,
    /// A state that was forgotten because it was fresh is not there when a clock goes back. So either it does, and each
    /// rule has one key, or there are many keys, which the memory store forgets.
    goes_back: bool,
    /// Whether the rules may change.
    changes: bool,
    /// Rule sets that live side by side, if any do.
    live: Vec<(Arc<dyn BoundStore>, Arc<Encoders>)>,
    modes: bool,
    /// What tickets hold, each of the rule set that gave it.
    held: Vec<(Arc<dyn BoundStore>, Arc<Encoders>, Holding)>,
    /// A check that was denied, and the tick at which it passes: the next one may be asked there, or a tick earlier.
    denied: Option<(Check, u64)>,
    again: Option<Check>,
    calls: Vec<Call>,
    open: bool,
    expected: Vec<Expected>,
}

impl History {
    pub(crate) fn new(seed: u64, families: &[Family]) -> Self {
        let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9));
        let many = families.len() > 1 || numbers.one_in(3);
        let ranges: Vec<_> = (0..if many { 1 + numbers.below(4) } else { 1 })
            .map(|_| Range::draw(numbers.of(families), &mut numbers))
            .collect();
        let modes = many && numbers.one_in(2);
        let near_epoch = numbers.one_in(12);
        let clock = ManualClock::new(if near_epoch {
            40
        } else {
            1_700_000_123_456_789
        });
        let memory = MemoryStore::builder().clock(&clock).build();
        let bind = |numbers: &mut Numbers| {
            let rules = rule_set(&ranges, modes, numbers);
            let bound = memory.bind(Arc::clone(&rules)).expect("a valid rule set");
            (bound, Encoders::new(&rules, seed))
        };
        let (bound, encoder) = bind(&mut numbers);
        let live = if numbers.one_in(2) { 2 } else { 0 };
        let live = (0..live).map(|_| bind(&mut numbers)).collect();
        Self {
            seed,
            goes_back: numbers.one_in(2),
            changes: numbers.one_in(2),
            modes,
            live,
            bound,
            encoder,
            numbers,
            ranges,
            clock,
            memory,
            held: Vec::new(),
            denied: None,
            again: None,
            calls: Vec::new(),
            open: false,
            expected: Vec::new(),
        }
    }

    /// Runs, and says how many steps it had.
    pub(crate) fn run(mut self, server: &mut Server) -> u64 {
        for step in 0..STEPS {
            match self.numbers.below(20) {
                0..12 => self.request(step),
                12..14 => self.settle(),
                14 if self.numbers.one_in(4) => self.reset(),
                15 if self.changes => self.change_rules(),
                _ => self.move_time(),
            }
            if self.numbers.one_in(4) {
                self.another_version();
            }
            if self.calls.len() > 64 {
                self.compare(server);
            }
        }
        self.compare(server);
        server.forget_everything();
        STEPS
    }

    /// The call that is being filled.
    fn call(&mut self) -> &mut Call {
        if !self.open || self.numbers.one_in(3) {
            self.calls.push(Call::at(self.clock.now(), MARGIN));
            self.open = true;
        }
        self.calls.last_mut().expect("one was pushed")
    }

    fn request(&mut self, step: u64) {
        let rules = self.bound.rules().rules().len() as u64;
        let many = if rules == 1 { [1, 1, 2] } else { [1, 2, 4] };
        let many = self.numbers.of(&many);
        let checks: Vec<Check> = match self.again.take() {
            Some(check) => vec![check],
            None => (0..many).map(|_| self.check(rules)).collect(),
        };
        let peek = self.numbers.one_in(6);
        let decision = if peek {
            self.bound.peek(&checks)
        } else {
            self.bound.acquire(&checks)
        };
        let decision = decision.ready().expect("memory answers at once");
        if !peek {
            self.hold(&checks, &decision);
        }
        if let ([check], Some(wait)) = (&checks[..], decision.verdicts()[0].retry().delay()) {
            self.denied = Some((*check, self.clock.now() + wait.as_micros() as u64));
        }
        let encoder = Arc::clone(&self.encoder);
        let call = self.call();
        let asked = if peek {
            call.peek(encoder.any(), &checks)
        } else {
            call.acquire(encoder.any(), &checks)
        };
        self.expected.push(Expected {
            call: self.calls.len() - 1,
            step,
            asked: asked.expect("there is room"),
            checks,
            rules: Arc::clone(self.bound.rules()),
            decision,
        });
    }

    fn check(&mut self, rules: u64) -> Check {
        let rule = self.numbers.below(rules);
        let place = rule as usize;
        let rule = &self.bound.rules().rules()[place];
        let plan = self.numbers.below(rule.quotas() as u64 + 1);
        let limit = rule.quota_of(plan as usize).limit();
        let cost = match self.numbers.below(12) {
            0 => 0,
            1 => limit,
            2 => limit + 1,
            3 => limit / 2,
            4 => limit / 3 + 1,
            5 => self.numbers.below(limit.saturating_mul(2)),
            6 if self.numbers.one_in(4) => u64::MAX,
            _ => 1 + self.numbers.below(limit.min(4)),
        };
        let keys = if self.goes_back { 1 } else { 3 };
        let key =
            Fingerprint::from_bits(u128::from(Numbers(self.numbers.below(keys)).next()) << 50);
        Check::new(place as u16, key, cost).with_plan(plan as u16)
    }

    /// Keeps what a ticket would.
    fn hold(&mut self, checks: &[Check], decision: &Decision) {
        if !decision.is_allowed() {
            return;
        }
        for (check, verdict) in checks.iter().zip(decision.verdicts()) {
            if verdict.outcome() == Outcome::Allow
                && check.cost() > 0
                && self.bound.rules().enforces(verdict.rule())
            {
                let holding = Holding {
                    check: *check,
                    taken: Taken {
                        at: decision.at(),
                        fresh_at: decision.at() + verdict.reset_after().as_micros() as u64,
                    },
                    source: tollgate_core::Source::Store,
                };
                let of = (Arc::clone(&self.bound), Arc::clone(&self.encoder), holding);
                self.held.push(of);
            }
        }
    }

    fn settle(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let place = self.numbers.below(self.held.len() as u64) as usize;
        let (bound, encoder, mut holding) = self.held.swap_remove(place);
        if self.numbers.one_in(8) {
            // A ticket that was never given.
            let taken = &mut holding.taken;
            let by = self.numbers.below(10_000);
            taken.fresh_at = match self.numbers.below(3) {
                0 => taken.fresh_at + by,
                1 => taken.fresh_at.saturating_sub(by),
                _ => taken.at + by,
            };
        }
        let units = self.numbers.below(holding.check.cost().saturating_add(3));
        let how = match self.numbers.below(4) {
            0 => Settlement::Cancel,
            1 => Settlement::Charge(units),
            _ => Settlement::Refund(units),
        };
        bound.settle(&[holding], how);
        assert!(self.call().settle(encoder.settling(), &holding, how));
    }

    fn reset(&mut self) {
        let check = self.check(self.bound.rules().given().len() as u64);
        let done = self.bound.reset(&[check.with_cost(1)]);
        assert!(matches!(done.ready(), Some(Ok(_))));
        let encoder = Arc::clone(&self.encoder);
        assert!(self.call().reset(encoder.any(), check.rule(), check.key()));
        self.held.clear();
    }

    fn change_rules(&mut self) {
        let rules = rule_set(&self.ranges, self.modes, &mut self.numbers);
        self.denied = None;
        self.again = None;
        self.bound = self
            .memory
            .bind(Arc::clone(&rules))
            .expect("a valid rule set");
        self.encoder = Encoders::new(&rules, self.seed);
    }

    /// The next request is one of another rule set of those that live.
    fn another_version(&mut self) {
        if self.live.is_empty() || self.again.is_some() {
            return;
        }
        let place = self.numbers.below(self.live.len() as u64) as usize;
        let (bound, encoder) = &mut self.live[place];
        std::mem::swap(&mut self.bound, bound);
        std::mem::swap(&mut self.encoder, encoder);
        // Its rules have other numbers.
        self.denied = None;
    }

    fn move_time(&mut self) {
        let now = self.clock.now();
        if let Some((check, at)) = self.denied.take().filter(|_| self.numbers.one_in(2)) {
            let then = at.saturating_sub(self.numbers.below(2));
            if (now..LAST).contains(&then) {
                self.clock.set(then);
                self.open = false;
                self.again = Some(check);
                return;
            }
        }
        let place = self.numbers.below(self.bound.rules().given().len() as u64) as usize;
        let quota = *self.bound.rules().rules()[place].quota();
        let window = quota.window().as_micros() as u64;
        let unit = window / quota.limit() + 1;
        let span = match self.numbers.below(12) {
            0 => 1,
            1..4 => unit,
            4 => unit / 2,
            5..8 => self.numbers.below(window / 3 + 2),
            8 => window,
            // To a boundary, and a tick beside it.
            9 => window.saturating_sub(now % window.max(1)) + self.numbers.below(2),
            10 => self.numbers.below(3 * window.max(1)),
            _ => self.numbers.below(100_000_000_000_000),
        };
        let then = if self.goes_back && self.numbers.one_in(3) {
            now.saturating_sub(span)
        } else {
            now.saturating_add(span)
        };
        // Or back to the tick at which something was taken.
        let then = match self.held.last() {
            Some((.., holding)) if self.goes_back && self.numbers.one_in(10) => holding.taken.at,
            _ => then,
        };
        if then < LAST {
            self.clock.set(then);
            self.open = false;
        }
    }

    fn compare(&mut self, server: &mut Server) {
        let calls = std::mem::take(&mut self.calls);
        self.open = false;
        let calls: Vec<(usize, Call)> = calls.into_iter().enumerate().collect();
        let (places, calls): (Vec<usize>, Vec<Call>) = calls
            .into_iter()
            .filter(|(_, call)| !call.is_empty())
            .unzip();
        let replies: Vec<Reply> = server
            .ask(&calls)
            .into_iter()
            .zip(&calls)
            .map(|(value, call)| {
                let text = format!("seed {}: {value:?}", self.seed);
                assert!(matches!(value, Value::List(_)), "{text}");
                Reply::new(call.checks(), value.integers()).unwrap_or_else(|| panic!("{text}"))
            })
            .collect();
        for expected in self.expected.drain(..) {
            if !expected.asked.is_nothing() {
                let place = places.binary_search(&expected.call).expect("it was sent");
                expected.compare(&replies[place], self.seed);
            }
        }
    }
}

/// Those that count together: one process, or, in some histories, two in the middle of a change of secrets.
#[derive(Debug)]
struct Encoders {
    encoders: Vec<Encoder>,
    /// Without a cap on new keys: a settlement whose own state is gone would go to the bucket of all.
    settling: Vec<Encoder>,
    /// Numbers of their own, so that histories are the same for all.
    numbers: Mutex<Numbers>,
}

impl Encoders {
    fn new(rules: &RuleSet, seed: u64) -> Arc<Self> {
        let partition = match seed % 2 {
            0 => Partition::Key,
            _ => Partition::One,
        };
        let keyspace = Keyspace::new(format!("tg-{seed}"), partition).expect("letters and digits");
        let [old, new] = [1, 2].map(|byte| Secret::from_bytes([byte; 32]).expect("32 bytes"));
        let keys = match seed % 3 {
            0 => vec![
                Keys::hashed(old.clone()).next(new.clone()).expect("two"),
                Keys::hashed(new).previous(old).expect("two"),
            ],
            _ => vec![Keys::hashed(old)],
        };
        let encoder = |keys: &Keys, capped| {
            let encoder = Encoder::new(rules, keyspace.clone().with_keys(keys.clone()));
            let encoder = encoder.expect("few plans");
            if capped {
                encoder.with_overflow("rule-0").expect("it is there")
            } else {
                encoder
            }
        };
        // With a cap there is always leave to make a key.
        let capped = seed.is_multiple_of(5);
        Arc::new(Self {
            encoders: keys.iter().map(|keys| encoder(keys, capped)).collect(),
            settling: keys.iter().map(|keys| encoder(keys, false)).collect(),
            numbers: Mutex::new(Numbers(seed)),
        })
    }

    fn any(&self) -> &Encoder {
        self.one_of(&self.encoders)
    }

    fn settling(&self) -> &Encoder {
        self.one_of(&self.settling)
    }

    fn one_of<'a>(&self, these: &'a [Encoder]) -> &'a Encoder {
        let mut numbers = self.numbers.lock().expect("no test has failed");
        &these[numbers.below(these.len() as u64) as usize]
    }
}
