//! A history: rule sets, requests, settlements, and time, done in memory and by the script.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::{
    Keys, Secret,
    keys::keyspace::{Keyspace, Partition},
    script::{
        args::ScriptCall,
        call::RequestLayout,
        encoder::{Encoder, SLOT_TERM},
        reply::ScriptReply,
    },
    store::credits::{CHANGE, change_args},
};
use redis::Value;
use tollgate_core::{
    Check, Decision, MAX_UNITS, ManualClock, MemoryStore, Mode, Outcome, Rule, RuleSet, Store as _,
    algorithm::Taken,
    store::{CreditChange, Fingerprint, Hold, RuleStore, Settlement},
    types::Balance,
};
use tollgate_test_servers::{numbers::Numbers, redis_client::Integers as _};

use crate::internal_tests::parity::{
    expected::Expected,
    lives::Lives,
    quotas::{Family, Range, rule_set},
    server::Server,
};

const STEPS: u64 = 150;

/// States outlive the test: by its clock centuries may pass in a moment, by the server's they do not.
const MARGIN: Duration = Duration::from_secs(10_000_000_000);

/// The times that histories reach.
const LAST: u64 = 4_000_000_000_000_000;

/// Whose clock says when a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Time {
    /// The caller's, which goes on as the history wants it, and sometimes back.
    Callers,
    /// The server's, which stands where the history puts it.
    Servers,
    /// The server's, which goes on by itself.
    Real,
}

/// For so long a history by the server's own clock goes on, in µs.
const REAL: u64 = 300_000;

/// A rule set in memory, and as the script is told of it.
#[derive(Clone, Debug)]
struct Version {
    bound: Arc<dyn RuleStore>,
    encoders: Arc<Encoders>,
}

/// What a call says, until it is sent.
#[derive(Debug)]
enum Act {
    Request {
        step: u64,
        layout: RequestLayout,
        checks: Vec<Check>,
        takes: bool,
        patience: Duration,
        version: Version,
    },
    Settle {
        place: u16,
        holding: Hold,
        how: Settlement,
        version: Version,
    },
    Reset {
        check: Check,
        version: Version,
    },
}

#[derive(Debug)]
pub(crate) struct History<'a> {
    seed: u64,
    time: Time,
    server: &'a mut Server,
    numbers: Numbers,
    ranges: Vec<Range>,
    clock: ManualClock,
    memory: MemoryStore,
    version: Version,
    /// A state that was forgotten because it was fresh is not there when a clock goes back. So either it does, and each
    /// rule has one key, or there are many keys, which the memory store forgets.
    goes_back: bool,
    /// Whether the rules may change.
    changes: bool,
    /// Rule sets that live side by side, if any do.
    live: Vec<Version>,
    modes: bool,
    blocks: bool,
    ids: bool,
    /// Whether keys have balances.
    credits: bool,
    /// What tickets hold, each of the rule set that gave it.
    held: Vec<(Version, Hold)>,
    /// A check that was denied, and the tick at which it passes: the next one may be asked there, or a tick earlier.
    denied: Option<(Check, u64)>,
    again: Option<Check>,
    /// The call that is being filled, and what it says.
    call: Option<ScriptCall>,
    acts: Vec<Act>,
    lives: Lives,
}

impl<'a> History<'a> {
    pub(crate) fn new(seed: u64, families: &[Family], time: Time, server: &'a mut Server) -> Self {
        let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9));
        let (blocks, ids) = (seed.is_multiple_of(2), seed % 8 < 2);
        let credits = seed.is_multiple_of(3);
        // A block or an id that is forgotten goes with the next write on the server, and with the next count in memory.
        let goes_back = time == Time::Callers && !blocks && !ids && !credits;
        let many = families.len() > 1 || numbers.one_in(3);
        let ranges: Vec<_> = (0..if many { 1 + numbers.below(4) } else { 1 })
            .map(|_| {
                let family = numbers.of(families);
                match time {
                    Time::Real => Range::short(family, &mut numbers),
                    _ => Range::draw(family, goes_back, &mut numbers),
                }
            })
            .collect();
        let modes = many && numbers.one_in(2);
        let near_epoch = numbers.one_in(12) && time == Time::Callers;
        let clock = ManualClock::new(match time {
            Time::Real => server.now(),
            _ if near_epoch => 40,
            _ => 1_700_000_123_456_789,
        });
        let memory = MemoryStore::builder().clock(&clock).build();
        let mut lives = Lives::new(match time {
            Time::Callers => Some(MARGIN),
            _ => None,
        });
        let bind = |numbers: &mut Numbers, lives: &mut Lives| {
            let rules = rule_set(&ranges, (modes, blocks, ids, credits), numbers);
            bind(seed, &memory, lives, &rules)
        };
        let version = bind(&mut numbers, &mut lives);
        let live = if numbers.one_in(2) { 2 } else { 0 };
        let live: Vec<_> = (0..live).map(|_| bind(&mut numbers, &mut lives)).collect();
        let goes_back = numbers.one_in(2) && goes_back;
        let changes = numbers.one_in(2);
        Self {
            seed,
            time,
            server,
            goes_back,
            changes,
            modes,
            blocks,
            ids,
            credits,
            live,
            version,
            numbers,
            ranges,
            clock,
            memory,
            held: Vec::new(),
            denied: None,
            again: None,
            call: None,
            acts: Vec::new(),
            lives,
        }
    }

    /// Runs, and says how many steps it had.
    pub(crate) fn run(mut self) -> u64 {
        let start = self.clock.now();
        let mut step = 0;
        while match self.time {
            Time::Real => self.clock.now() < start + REAL,
            _ => step < STEPS,
        } {
            match self.numbers.below(20) {
                0..12 => self.request(step),
                12..14 => self.settle(),
                14 if self.numbers.one_in(4) => self.reset(),
                14 if self.credits => self.change_credits(),
                15 if self.changes => self.change_rules(),
                _ => self.move_time(),
            }
            if self.numbers.one_in(4) {
                self.another_version();
            }
            step += 1;
        }
        self.send();
        self.server.forget_everything();
        step
    }

    /// The call that is being filled.
    fn call(&mut self) -> &mut ScriptCall {
        // By the server's own clock each has a time that is known only afterwards.
        if self.time == Time::Real || self.numbers.one_in(3) {
            self.send();
        }
        let now = self.clock.now();
        self.call.get_or_insert_with(|| match self.time {
            Time::Callers => ScriptCall::at(now, MARGIN),
            Time::Servers | Time::Real => ScriptCall::new(),
        })
    }

    /// Sends what there is, does the same in memory, and compares.
    fn send(&mut self) {
        let Some(call) = self.call.take() else { return };
        if self.time == Time::Servers {
            self.server.stand_at(self.clock.now());
        }
        let carried_out = (!call.is_empty()).then(|| self.server.carry_out(&call));
        let reply = carried_out.as_ref().map(|it| {
            let text = format!("seed {}: {:?}", self.seed, it.answer);
            assert!(matches!(it.answer, Value::Array(_)), "{text}");
            ScriptReply::new(call.checks(), it.answer.clone().integers())
                .unwrap_or_else(|| panic!("{text}"))
        });
        if let (Time::Real, Some(reply)) = (self.time, &reply) {
            self.clock.set(reply.at);
        }
        let mut touched = Vec::new();
        for act in std::mem::take(&mut self.acts) {
            let (version, checks) = self.done_in_memory(act, reply.as_ref());
            touched.extend(checks.into_iter().map(|check| (version.clone(), check)));
        }
        if let Some(carried_out) = carried_out {
            let at = reply.map_or(0, |reply| reply.at);
            for (version, check) in touched {
                let names = version.encoders.names(&check);
                let (bound, seed) = (&version.bound, self.seed);
                self.lives
                    .compare(&names, (bound, &check), &carried_out, at, seed);
            }
        }
    }

    /// Does what a call said in memory. Gives the checks whose states it may have changed.
    fn done_in_memory(&mut self, act: Act, reply: Option<&ScriptReply>) -> (Version, Vec<Check>) {
        match act {
            Act::Request {
                step,
                layout,
                checks,
                takes,
                patience,
                version,
            } => {
                let bound = &version.bound;
                let decision = if takes && patience == Duration::MAX {
                    bound.acquire(&checks)
                } else if takes {
                    bound.acquire_within(&checks, patience, &[])
                } else {
                    bound.peek(&checks)
                };
                let decision = decision.ready().expect("memory answers at once");
                if let (false, Some(reply)) = (layout.sent().next().is_none(), reply) {
                    let by_script = reply.decision(&layout, &checks, bound.rules());
                    let by_memory = decision.clone();
                    Expected {
                        step,
                        checks: &checks,
                        rules: bound.rules(),
                        decision: by_memory,
                    }
                    .compare(&by_script, self.seed);
                }
                if takes {
                    self.hold(&version, &checks, &decision);
                }
                if let ([check], Some(wait)) = (&checks[..], decision.verdicts()[0].retry().delay())
                    && Arc::ptr_eq(bound, &self.version.bound)
                {
                    self.denied = Some((*check, self.clock.now() + wait.as_micros() as u64));
                }
                (version, checks)
            }
            Act::Settle {
                place,
                holding,
                how,
                version,
            } => {
                let rule = holding.check.rule();
                let before = version.bound.lapsed_units(rule);
                version.bound.settle(&[holding], how);
                if let (Settlement::Charge(1..), Some(reply)) = (how, reply)
                    && version.bound.rules().rules()[usize::from(rule)].debt_of() > 0
                {
                    let lapsed = version.bound.lapsed_units(rule) - before;
                    assert_eq!(
                        reply.lapsed_units(place),
                        Some(lapsed),
                        "seed {}",
                        self.seed
                    );
                }
                (version, vec![holding.check])
            }
            Act::Reset { check, version } => {
                let done = version.bound.reset(&[check.with_cost(1)]);
                assert!(matches!(done.ready(), Some(Ok(_))));
                self.held.clear();
                (version, vec![check])
            }
        }
    }

    fn request(&mut self, step: u64) {
        let rules = self.version.bound.rules().rules().len() as u64;
        let many = if rules == 1 { [1, 1, 2] } else { [1, 2, 4] };
        let many = self.numbers.of(&many);
        let mut checks: Vec<Check> = match self.again.take() {
            Some(check) => vec![check],
            None => (0..many).map(|_| self.check(rules)).collect(),
        };
        let takes = !self.numbers.one_in(6);
        let version = self.version.clone();
        let patience = match version.bound.rules().has_waits() && self.numbers.one_in(4) {
            true => Duration::from_micros(self.numbers.below(2_000_000)),
            false => Duration::MAX,
        };
        let call = self.call();
        if Check::deny_two_plans(version.bound.rules(), &checks).is_some() {
            // What two plans cost has no sum, and stores deny it before they ask. Of one plan they sum it up.
            let denied = version.bound.acquire(&checks).ready();
            assert!(denied.is_some_and(|denied| !denied.is_allowed()));
            for place in 1..checks.len() {
                let (before, check) = (&checks[..place], checks[place]);
                let same =
                    |other: &&Check| other.rule() == check.rule() && other.key() == check.key();
                if let Some(first) = before.iter().find(same) {
                    checks[place] = check.with_plan(first.plan());
                }
            }
        }
        let encoder = version.encoders.any();
        let layout = if takes {
            let micros = u64::try_from(patience.as_micros()).unwrap_or(u64::MAX);
            call.acquire_within(encoder, &checks, micros, |_| true)
        } else {
            call.peek(encoder, &checks)
        };
        self.acts.push(Act::Request {
            step,
            layout: layout.expect("there is room"),
            checks,
            takes,
            patience,
            version,
        });
    }

    /// Grants, revokes or tells a balance, at once, and compares what both say.
    fn change_credits(&mut self) {
        self.send();
        let rules = self.version.bound.rules().rules().len() as u64;
        let check = self.check(rules).with_plan(0);
        let rule = &self.version.bound.rules().rules()[usize::from(check.rule())];
        if matches!(rule.mode(), Mode::Threshold { .. }) {
            return;
        }
        let limit = rule.quota().limit();
        let id = self.numbers.below(6);
        let now = self.clock.now();
        let change = match self.numbers.below(5) {
            0..3 => CreditChange::Grant {
                units: 1 + self.numbers.below(limit.saturating_mul(2).min(MAX_UNITS)),
                until: now + self.numbers.below(20_000_000_000),
                id,
            },
            3 => CreditChange::Revoke { id },
            4 => CreditChange::Correct(id as i64 % 100 - 50),
            _ => CreditChange::Query,
        };
        let encoder = self.version.encoders.any();
        let call = match self.time {
            Time::Callers => ScriptCall::at(now, MARGIN),
            Time::Servers | Time::Real => ScriptCall::new(),
        };
        if self.time == Time::Servers {
            self.server.stand_at(now);
        }
        let time = call.args().next().expect("a time");
        let mut how = change_args(change);
        how[1] = u8::from(encoder.keyspace.keys.moves());
        let args = [time.to_vec(), how];
        let names = encoder.balance_names(&check);
        let count = names.len().to_string();
        let mut words = vec![&b"EVAL"[..], CHANGE.body.as_bytes(), count.as_bytes()];
        words.extend(names.iter().map(|name| &name[..]));
        words.extend(args.iter().map(Vec::as_slice));
        let answer = self.server.command(&words).integers();
        if self.time == Time::Real {
            self.clock.set(answer[0] as u64);
        }
        let by_memory = self.version.bound.credits(&check, change).ready();
        let by_memory = by_memory.expect("memory answers at once");
        let text = format!("seed {}: {answer:?}, {by_memory:?}, {change:?}", self.seed);
        match by_memory {
            Ok(balance) => {
                let numbers = [answer[2], answer[3], answer[0], answer[4]].map(|it| it as u64);
                let [units, ends, now, changed] = numbers;
                assert_eq!(Balance::new(units, ends, now, changed), balance, "{text}");
                assert_eq!(answer[1], 0, "{text}");
            }
            Err(_) => assert_ne!(answer[1], 0, "{text}"),
        }
    }

    fn check(&mut self, rules: u64) -> Check {
        let rule = self.numbers.below(rules);
        let place = rule as usize;
        let rule = &self.version.bound.rules().rules()[place];
        let plan = self.numbers.below(rule.quotas() as u64 + 1);
        // One that checks bring along, or none: then it is the rule's own.
        let plan = match plan == rule.quotas() as u64 && rule.has_variable_quota() {
            true => plan + self.numbers.0 % 5,
            false => plan,
        };
        // A request comes to a threshold by its rule.
        let plan = match rule.mode() {
            Mode::Threshold { .. } => 0,
            _ => plan,
        };
        let limit = rule.quota_under(plan as usize).limit();
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
        let is_idempotent = rule.idempotent_for().is_some();
        let check = Check::new(place as u16, key, cost).with_plan(plan as u16);
        match is_idempotent && self.numbers.one_in(2) {
            // As many as there may be of a key, now and then.
            true => {
                let ids = self.numbers.of(&[2, 4, 100]);
                let id = Numbers(self.numbers.below(ids)).next();
                check.with_id(Fingerprint::from_bits(id.into()))
            }
            false => check,
        }
    }

    /// Keeps what a ticket would.
    fn hold(&mut self, version: &Version, checks: &[Check], decision: &Decision) {
        if !decision.is_allowed() {
            return;
        }
        // A state that was fresh in between may have been forgotten, with what lapses after it.
        let is_cut = self.goes_back || self.changes || !self.live.is_empty();
        let rule = |check: &Check| &version.bound.rules().rules()[usize::from(check.rule())];
        let waits = |check: &Check| rule(check).at_most_wait().is_some();
        let gives_back = |check: &Check| {
            let is_one = rule(check).quotas() == 1 && !rule(check).has_variable_quota();
            !waits(check) || is_one && !is_cut
        };
        for place in decision.queue_places() {
            if gives_back(&place.check) {
                self.held.push((version.clone(), *place));
            }
        }
        if !decision.delay().is_zero() {
            // The rest is taken when it starts.
            return;
        }
        for (check, verdict) in checks.iter().zip(decision.verdicts()) {
            if verdict.outcome() == Outcome::Allow
                && !verdict.is_repeat()
                && check.cost() > 0
                && gives_back(check)
                && version.bound.rules().enforces(verdict.rule())
            {
                let holding = Hold::of_store(
                    *check,
                    Taken::new(
                        decision.at(),
                        decision.at() + verdict.reset_after().as_micros() as u64,
                    ),
                );
                self.held.push((version.clone(), holding));
            }
        }
    }

    fn settle(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let place = self.numbers.below(self.held.len() as u64) as usize;
        let (version, mut holding) = self.held.swap_remove(place);
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
        let rule = &version.bound.rules().rules()[usize::from(holding.check.rule())];
        let block = rule.block_setting();
        holding.counts = block.is_some_and(|block| block.counts_settled());
        let most = holding.check.cost().saturating_add(rule.debt_of());
        let units = self.numbers.below(most.saturating_add(3));
        let how = match self.numbers.below(4) {
            0 => Settlement::Cancel,
            1 => Settlement::Charge(units),
            _ => Settlement::Refund(units),
        };
        let encoders = Arc::clone(&version.encoders);
        let call = self.call();
        let place = call.checks() as u16;
        assert!(call.settle(encoders.settling(), &holding, how));
        self.acts.push(Act::Settle {
            place,
            holding,
            how,
            version,
        });
    }

    fn reset(&mut self) {
        let version = self.version.clone();
        let check = self.check(version.bound.rules().given().len() as u64);
        let call = self.call();
        assert!(call.reset(version.encoders.any(), check.rule(), check.key()));
        self.held.clear();
        self.acts.push(Act::Reset { check, version });
    }

    fn change_rules(&mut self) {
        let has = (self.modes, self.blocks, self.ids, self.credits);
        let rules = rule_set(&self.ranges, has, &mut self.numbers);
        self.denied = None;
        self.again = None;
        self.version = bind(self.seed, &self.memory, &mut self.lives, &rules);
    }

    /// The next request is one of another rule set of those that live.
    fn another_version(&mut self) {
        if self.live.is_empty() || self.again.is_some() {
            return;
        }
        let place = self.numbers.below(self.live.len() as u64) as usize;
        std::mem::swap(&mut self.version, &mut self.live[place]);
        // Its rules have other numbers.
        self.denied = None;
    }

    fn move_time(&mut self) {
        // What was said was said before.
        self.send();
        if self.time == Time::Real {
            // Ahead by itself: a few ms, so that many a request is the first of a window.
            let pause = Duration::from_micros(self.numbers.below(4_000));
            std::thread::park_timeout(pause);
            return;
        }
        let now = self.clock.now();
        if let Some((check, at)) = self.denied.take().filter(|_| self.numbers.one_in(2)) {
            let then = at.saturating_sub(self.numbers.below(2));
            if (now..LAST).contains(&then) {
                self.clock.set(then);
                self.again = Some(check);
                return;
            }
        }
        let place = self
            .numbers
            .below(self.version.bound.rules().given().len() as u64) as usize;
        let quota = *self.version.bound.rules().rules()[place].quota();
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
        }
    }
}

fn bind(seed: u64, memory: &MemoryStore, lives: &mut Lives, rules: &Arc<RuleSet>) -> Version {
    let version = Version {
        bound: memory.bind(Arc::clone(rules)).expect("a valid rule set"),
        encoders: Encoders::new(rules, seed),
    };
    lives.writes(&version.bound, version.encoders.settling());
    version
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
            let keyspace = keyspace.clone().with_keys(keys.clone());
            let is_capped = |rule: &Rule| capped && rule.name() == "rule-0";
            let encoder = Encoder::with_caps(rules, keyspace, SLOT_TERM, false, is_capped);
            encoder.expect("few plans")
        };
        // With a cap there is always leave to make a key.
        let capped = seed.is_multiple_of(5);
        Arc::new(Self {
            encoders: keys.iter().map(|keys| encoder(keys, capped)).collect(),
            settling: keys.iter().map(|keys| encoder(keys, false)).collect(),
            numbers: Mutex::new(Numbers(seed)),
        })
    }

    /// The names that a check's state may have.
    fn names(&self, check: &Check) -> Vec<Vec<u8>> {
        let mut call = ScriptCall::new();
        // Of a cost of 0: without the names of its balance.
        let layout = call.peek(&self.settling[0], &[check.with_cost(0)]);
        assert!(layout.is_some());
        call.keys().map(<[u8]>::to_vec).collect()
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
