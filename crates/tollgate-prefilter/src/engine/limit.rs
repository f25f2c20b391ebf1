//! One quota of one rule: which consistency it has, and when its units fit for a process that does not know the state.

use std::{collections::VecDeque, time::Duration};

use tollgate_core::{
    AlgorithmKind, Block, Consistency, FNV, Quota, Retry, Rule, Tick,
    algorithm::{Algorithm, FixedWindow, Gcra, SlidingBuckets, SlidingLog, SlidingWindow},
    fnv, micros,
    store::Fingerprint,
};

use crate::{
    denials::Denials,
    lease::terms::LeaseTerms,
    local_usage::ReportTerms,
    sync::{AtomicBool, AtomicUsize, Mutex, Ordering, lock},
    table::TableKey,
};

/// One quota of one rule, with its consistency.
///
/// Rule sets that have the same rule with the same terms share it, so leases, local usage and denials outlive each of them.
pub(crate) struct Limit {
    /// No other limit of the engine has it.
    pub(crate) id: u32,
    /// The number of its rule, by the name.
    rule: u32,
    pub(crate) terms: LimitTerms,
    /// If it is leased, and is not a bucket.
    pub(crate) windows: Option<Windows>,
    pub(crate) denials: Denials,
    /// Keys with a lease or with unreported units, which may have to be sent.
    pub(crate) listed: Mutex<Listed>,
    pub(crate) has_listed: AtomicBool,
    /// Held by who goes through them: meanwhile keys are missing that stay.
    pub(crate) visiting: Mutex<()>,
    /// How many rule sets that are in use have it.
    pub(crate) in_use: AtomicUsize,
}

/// What a limit depends on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LimitTerms {
    pub(crate) quota: Quota,
    pub(crate) effective: Effective,
    /// Whether its rule has other quotas, for other plans.
    pub(crate) has_plans: bool,
    /// How long requests wait for it at most.
    wait: Option<Duration>,
    /// Whether units of it may be owed.
    has_debt: bool,
    /// When its rule blocks keys.
    block: Option<Block>,
}

impl LimitTerms {
    /// Those of one of a rule's quotas.
    pub(crate) fn new(rule: &Rule, quota: Quota, effective: Effective) -> Self {
        Self {
            quota,
            effective,
            has_plans: rule.quotas() > 1 || rule.has_variable_quota(),
            wait: rule.at_most_wait().filter(|_| !rule.has_slots()),
            has_debt: rule.debt_of() > 0,
            block: rule.block_setting().cloned(),
        }
    }
}

impl Limit {
    /// A limit of the rule with this name; its own if `id` is that of no other.
    pub(crate) fn new(id: u32, rule: &str, terms: LimitTerms) -> Self {
        Self {
            id,
            rule: number_of(rule),
            windows: match &terms.effective {
                Effective::Leased(leases) => leases.window.map(|length| Windows {
                    length,
                    slide: terms.quota.algorithm() == AlgorithmKind::SlidingWindow,
                }),
                _ => None,
            },
            denials: match &terms.block {
                Some(block) if !block.counts_settled() => Denials::None,
                _ => Denials::new(&terms.quota, terms.has_plans, terms.wait, terms.has_debt),
            },
            terms,
            listed: Mutex::default(),
            has_listed: AtomicBool::new(false),
            visiting: Mutex::new(()),
            in_use: AtomicUsize::new(0),
        }
    }

    pub(crate) fn blocks(&self) -> bool {
        self.terms.block.is_some()
    }

    /// Where what is kept of a key is.
    #[inline]
    pub(crate) fn at(&self, key: Fingerprint) -> TableKey {
        TableKey::new(self.rule, key)
    }

    #[inline]
    pub(crate) fn lease_terms(&self) -> Option<&LeaseTerms> {
        match &self.terms.effective {
            Effective::Leased(terms) => Some(terms),
            _ => None,
        }
    }

    pub(crate) fn is_leased(&self) -> bool {
        self.lease_terms().is_some()
    }

    #[inline]
    pub(crate) fn report_terms(&self) -> Option<&ReportTerms> {
        match &self.terms.effective {
            Effective::Eventual(terms) => Some(terms),
            _ => None,
        }
    }

    /// How often leases and reports need maintenance, in µs; `None`: never.
    pub(crate) fn pause(&self) -> Option<Tick> {
        const SHORTEST: Tick = 5_000;
        match &self.terms.effective {
            Effective::Leased(_) => Some(SWEEP_EVERY),
            Effective::Eventual(terms) => Some((terms.interval / 2).clamp(SHORTEST, SWEEP_EVERY)),
            Effective::Exact(_) => None,
        }
    }

    pub(crate) fn is_in_use(&self) -> bool {
        self.in_use.load(Ordering::SeqCst) > 0
    }

    /// Whether any key may have unreported units.
    #[inline]
    pub(crate) fn has_unreported(&self) -> bool {
        self.report_terms().is_some() && self.has_listed.load(Ordering::Relaxed)
    }

    /// Something may have to be sent of a key from now on.
    pub(crate) fn list(&self, key: Fingerprint) {
        let mut listed = lock(&self.listed);
        listed.keys.push_back(key);
        self.has_listed.store(true, Ordering::Relaxed);
    }

    /// Whether keys are left to visit in this round.
    pub(crate) fn has_visits(&self) -> bool {
        lock(&self.listed).unvisited > 0
    }
}

/// How often leases are checked for those that are not needed, in µs.
const SWEEP_EVERY: Tick = 1_000_000;

/// The number of a rule, by its name. Two rules count by one key in a partition by key alone, and share a number once in four billion.
pub(crate) fn number_of(rule: &str) -> u32 {
    fnv(FNV, rule.as_bytes()) as u32
}

/// Keys with something that may have to be sent, and the round of visits through them. All of them have one round, so that they are sent
/// together.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub(crate) keys: VecDeque<Fingerprint>,
    /// How many of the first ones are yet to be visited: no more than there are keys.
    pub(crate) unvisited: usize,
    /// When the next round begins.
    next: Tick,
}

impl Listed {
    /// Begins a round if the last one began [`SWEEP_EVERY`] ago. Keys that are left from before come first.
    pub(crate) fn begin_round(&mut self, now: Tick) {
        if now >= self.next {
            self.next = now.saturating_add(SWEEP_EVERY);
            self.unvisited = self.keys.len();
        }
    }

    /// The next key to visit.
    pub(crate) fn pop(&mut self) -> Option<Fingerprint> {
        self.unvisited = self.unvisited.saturating_sub(1);
        self.keys.pop_front()
    }
}

/// What becomes of a key that was visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    Keep,
    Drop,
    /// It was not looked at, and neither are those behind it.
    Stop,
}

impl Visit {
    pub(crate) fn keep_if(stays: bool) -> Self {
        if stays { Self::Keep } else { Self::Drop }
    }
}

// The windows of a quota that is granted, by the store's clock.

/// How long a window is, and whether its units weigh in the one after it too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows {
    length: Tick,
    pub(crate) slide: bool,
}

impl Windows {
    /// Until when the units weigh that are counted in the window of this number.
    pub(crate) fn counts_until(self, window: u64) -> Tick {
        let after = window.saturating_add(self.weighs());
        after.saturating_mul(self.length)
    }

    /// In how many windows units weigh.
    fn weighs(self) -> u64 {
        1 + u64::from(self.slide)
    }

    /// The number of the window whose units weigh until this time, which is known to half a window.
    pub(crate) fn that_counts_until(self, until: Tick) -> Option<u64> {
        let after = until.saturating_add(self.length / 2) / self.length;
        after.checked_sub(self.weighs())
    }
}

// The consistency that takes effect for a quota.

/// The consistency that takes effect for a quota: the one of its rule, or `Exact` where that is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effective {
    /// The store decides every request; with the reason, if the rule has another consistency.
    Exact(Option<&'static str>),
    /// Processes hold leases.
    Leased(LeaseTerms),
    /// Processes count local usage and report it.
    Eventual(ReportTerms),
}

impl Effective {
    /// What takes effect for one of a rule's quotas: its own with plan number 0, or that of a plan. `exact` is the reason why
    /// the store can only count the rule exactly, if there is one.
    pub fn of(rule: &Rule, plan: usize, exact: Option<&'static str>) -> Self {
        let quota = rule.quota_of(plan);
        if !rule.is_enforced() || !quota.has_state() {
            return Self::Exact(None);
        }
        let effective = match (rule.consistency_of(), exact) {
            (Consistency::Exact, _) => return Self::Exact(None),
            (_, Some(why)) => Err(why),
            (Consistency::Leased { share }, None) => {
                LeaseTerms::new(quota, share.as_permille()).map(|terms| {
                    // What is lent before it is there would look like a debt.
                    let schedule = terms.schedule.filter(|_| rule.debt_of() == 0);
                    Self::Leased(LeaseTerms { schedule, ..terms })
                })
            }
            (
                Consistency::Eventual {
                    interval,
                    max_unreported,
                },
                None,
            ) => ReportTerms::new(quota, interval, max_unreported).map(Self::Eventual),
            _ => Err("its consistency is not known here"),
        };
        effective.unwrap_or_else(|why| Self::Exact(Some(why)))
    }
}

// When the units of a quota fit again, for a process that does not know the state.

/// To how many µs the store's clock is known: a reply may take as long.
pub(crate) const SLACK: u64 = 100_000;

/// When `cost` units fit, if only `left` are there and no more is known of the state. `due` is when this process's own
/// scheduled lease has them. `at` is the time by the store's clock, to [`SLACK`].
///
/// Never too early for a client that is alone on its key and uses one process: all used units count as if they had been taken
/// just now. For a bucket this is the time in which the missing units are refilled.
pub(crate) fn wait(limit: &Limit, at: Tick, (cost, left): (u64, u64), due: Option<Tick>) -> Retry {
    if let Some(due) = due {
        return Retry::after_micros(due.max(1));
    }
    let quota = &limit.terms.quota;
    let used = quota.limit().saturating_sub(left);
    // Of a quota without a limit nothing is ever missing.
    let retry = after_taking(quota, at, used, cost).map_or(Retry::Now, |(_, retry)| retry);
    let Retry::After(wait) = retry else {
        return retry;
    };
    let later = match (&limit.terms.effective, Gcra::new(quota)) {
        (Effective::Leased(terms), Some(_)) => out_of_a_bucket(terms, quota.limit(), cost),
        // Windows begin by the store's clock.
        (_, None) => SLACK,
        _ => 0,
    };
    Retry::after_micros(micros(wait).saturating_add(later))
}

/// For how long leases of other processes may keep units of a bucket from coming back.
fn out_of_a_bucket(terms: &LeaseTerms, limit: u64, cost: u64) -> Tick {
    let scheduled = terms.schedule.map_or(0, |schedule| schedule.horizon);
    // A cost that does not fit next to what may be on lease has to wait until the leases have run out.
    let tracked = if cost > limit.saturating_sub(terms.reserve) {
        terms.tracked_life.saturating_mul(2)
    } else {
        0
    };
    scheduled.max(tracked)
}

/// After `used` units were taken at `at`: when the state is fresh again, and when `cost` units fit.
pub(crate) fn after_taking(quota: &Quota, at: Tick, used: u64, cost: u64) -> Option<(Tick, Retry)> {
    fn of<A: Algorithm>(quota: &Quota, at: Tick, used: u64, cost: u64) -> Option<(Tick, Retry)> {
        let (quota, mut state) = (A::new(quota)?, A::State::default());
        quota.take(&mut state, at, used);
        let answer = quota.assess(&state, at, cost);
        let retry = if answer.fits {
            Retry::Now
        } else {
            answer.retry
        };
        Some((quota.fresh_at(&state), retry))
    }
    match quota.algorithm() {
        algorithm if algorithm.is_bucket() => of::<Gcra>(quota, at, used, cost),
        AlgorithmKind::FixedWindow => of::<FixedWindow>(quota, at, used, cost),
        AlgorithmKind::SlidingWindow => of::<SlidingWindow>(quota, at, used, cost),
        AlgorithmKind::SlidingBuckets => of::<SlidingBuckets>(quota, at, used, cost),
        AlgorithmKind::SlidingLog => of::<SlidingLog>(quota, at, used, cost),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollgate_core::{Consistency, LeaseShare, MINUTE, Rule, SECOND};

    use super::*;

    #[test]
    fn a_rule_that_is_exact_against_its_consistency_says_why() {
        let leased = Consistency::Leased {
            share: LeaseShare::percent(10),
        };
        let eventual = Consistency::Eventual {
            interval: Duration::from_millis(100),
            max_unreported: 10,
        };
        let why = |quota, consistency, store| {
            let rule = Rule::new("rule", quota).consistency(consistency);
            match Effective::of(&rule, 0, store) {
                Effective::Exact(why) => why,
                other => panic!("it is not exact: {other:?}"),
            }
        };
        let (log, large) = (Quota::sliding_log(100, MINUTE), Quota::gcra(6_000, MINUTE));
        let store = Some("the store says so");
        for consistency in [leased, eventual] {
            assert_eq!(why(large, consistency, store), store);
            for quota in [log, Quota::concurrent(100)] {
                assert!(why(quota, consistency, None).is_some());
            }
        }
        // A rule that is exact anyway has no reason, and neither has one that is not enforced.
        assert_eq!(why(large, Consistency::Exact, store), None);
        let shadow = Rule::new("rule", large).consistency(leased).shadow();
        assert_eq!(Effective::of(&shadow, 0, store), Effective::Exact(None));
    }

    const AT: Tick = 1_700_000_000_123_456;

    fn limit(quota: Quota, consistency: Consistency) -> Limit {
        let rule = Rule::new("rule", quota).consistency(consistency);
        let terms = LimitTerms::new(&rule, quota, Effective::of(&rule, 0, None));
        Limit::new(0, "rule", terms)
    }

    /// What a process says that knows only how many units are left.
    fn retry_of(quota: Quota, counted: Consistency, cost: u64, left: u64) -> Retry {
        let limit = limit(quota, counted);
        let effective = limit.terms.effective;
        assert!(!matches!(effective, Effective::Exact(_)), "{quota:?}");
        wait(&limit, AT, (cost, left), None)
    }

    const LEASED: Consistency = Consistency::Leased {
        share: LeaseShare::percent(10),
    };

    const EVENTUAL: Consistency = Consistency::Eventual {
        interval: Duration::from_millis(100),
        max_unreported: 10,
    };

    /// Takes units at random times of the last windows; says by how much the answer of a process is later than the state,
    /// where the state has to be waited for.
    fn later_than_the_state<A: Algorithm>(quota: Quota, counted: Consistency) {
        let algorithm = A::new(&quota).expect("a valid quota");
        let window = quota.window().as_micros() as u64;
        let mut random = fastrand::Rng::with_seed(quota.limit());
        let mut waits = 0;
        for _ in 0..2_000 {
            let mut state = A::State::default();
            let mut now = AT - random.u64(1..3 * window);
            while now < AT {
                let cost = random.u64(1..=quota.limit() / 2);
                algorithm.acquire(&mut state, now, cost);
                now += random.u64(1..=window / 2);
            }
            let left = algorithm.assess(&state, AT, 0).remaining;
            let cost = random.u64(1..=quota.limit());
            if left >= cost {
                continue;
            }
            let Retry::After(exact) = algorithm.assess(&state, AT, cost).retry else {
                panic!("{cost} do not fit");
            };
            let Retry::After(wait) = retry_of(quota, counted, cost, left) else {
                panic!("{cost} are not there");
            };
            assert!(
                wait >= exact,
                "{quota:?}: {cost} of {left}, {wait:?} is before {exact:?}"
            );
            waits += 1;
        }
        assert!(waits > 100, "{waits}");
    }

    #[test]
    fn retry_of_an_unknown_state_is_never_too_early() {
        for counted in [LEASED, EVENTUAL] {
            later_than_the_state::<Gcra>(Quota::gcra(700, MINUTE), counted);
            later_than_the_state::<Gcra>(Quota::token_bucket(97).refill(7, SECOND), counted);
            later_than_the_state::<FixedWindow>(Quota::fixed_window(100, MINUTE), counted);
            later_than_the_state::<SlidingWindow>(Quota::sliding_window(100, MINUTE), counted);
        }
        later_than_the_state::<SlidingBuckets>(Quota::sliding_buckets(100, MINUTE), EVENTUAL);
    }

    #[test]
    fn retry_of_a_bucket_is_exact_to_the_unit() {
        let bucket = Quota::gcra(60, MINUTE);
        assert_eq!(retry_of(bucket, EVENTUAL, 1, 0), Retry::After(SECOND));
        assert_eq!(retry_of(bucket, EVENTUAL, 5, 2), Retry::After(3 * SECOND));
        // A unit a second is granted as it is there, never ahead of time.
        assert_eq!(retry_of(bucket, LEASED, 1, 0), Retry::After(SECOND));
        // While a tenth may be on lease, sixty do not fit.
        let expected = Retry::After(60 * SECOND + 20 * SECOND);
        assert_eq!(retry_of(bucket, LEASED, 60, 0), expected);
    }
}
