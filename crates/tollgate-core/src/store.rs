//! Stores: where state lives and is changed atomically.

use std::{
    fmt,
    future::{Future, IntoFuture},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use smallvec::SmallVec;

use crate::{
    algorithm::Taken,
    decision::{Decision, Outcome, Source, Verdict},
    error::{RuleError, StoreError},
    key::{Fingerprint, KeyBuf},
    registry::RuleRegistry,
    rule::Mode,
    rule_set::RuleSet,
    time::Tick,
};

/// One rule with one key and one cost. A request carries one or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    key: Fingerprint,
    cost: u64,
    rule: u16,
    plan: u16,
    /// The rule set that `rule` is a place in; 0 where the check was made by hand.
    rules: u32,
}

impl Check {
    /// A check of the rule at place `rule` of the rule set, at the rule's own quota.
    #[inline]
    #[must_use]
    pub fn new(rule: u16, key: Fingerprint, cost: u64) -> Self {
        Self {
            key,
            cost,
            rule,
            plan: 0,
            rules: 0,
        }
    }

    #[inline]
    pub(crate) fn of_rules(mut self, version: u32) -> Self {
        self.rules = version;
        self
    }

    #[inline]
    pub(crate) fn is_of_rules(&self, version: u32) -> bool {
        self.rules == version || self.rules == 0
    }

    /// The same check at the quota of plan number `plan`.
    #[must_use]
    pub fn with_plan(mut self, plan: u16) -> Self {
        self.plan = plan;
        self
    }

    /// The same check with another cost in units. 0 asks without taking.
    #[must_use]
    pub fn with_cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    pub(crate) fn with_rule(mut self, rule: u16) -> Self {
        self.rule = rule;
        self
    }

    /// The rule's place in the rule set.
    #[inline]
    #[must_use]
    pub fn rule(&self) -> u16 {
        self.rule
    }

    /// The plan's number in the rule; 0 is the rule's own quota.
    #[inline]
    #[must_use]
    pub fn plan(&self) -> u16 {
        self.plan
    }

    /// Whom it counts against.
    #[inline]
    #[must_use]
    pub fn key(&self) -> Fingerprint {
        self.key
    }

    /// Units asked for.
    #[inline]
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.cost
    }
}

impl Check {
    /// The denial of a request that asks for one rule and key under two plans, which share a state: each has a limit of its
    /// own, and the sum of the costs has neither. `None`: these checks do not. A plan without a limit is none of the two.
    ///
    /// A store asks before it decides or peeks. A mistake must not let a request pass.
    #[must_use]
    pub fn deny_two_plans(rules: &RuleSet, checks: &[Self]) -> Option<Decision> {
        let same = |one: &Self, other: &Self| one.rule == other.rule && one.key == other.key;
        let is_limited = |check: &Self| {
            let rule = rules.rules().get(usize::from(check.rule));
            rule.is_some_and(|rule| {
                *rule.mode() != Mode::Off && !rule.quota_of(usize::from(check.plan)).is_unlimited()
            })
        };
        let differs = |(place, check): (usize, &Self)| {
            let mut before = checks[..place].iter();
            before.any(|other| {
                same(other, check)
                    && other.plan != check.plan
                    && is_limited(other)
                    && is_limited(check)
            })
        };
        let mut places = checks.iter().enumerate();
        places.any(differs).then(|| Self::deny_mistake(checks))
    }

    /// The answer to checks that are a mistake.
    #[cold]
    pub(crate) fn deny_mistake(checks: &[Self]) -> Decision {
        let denied = checks.iter().map(|check| {
            let mut verdict = Verdict::unanswered(check.rule(), check.plan(), Outcome::Failed);
            verdict.deny_for_failure();
            verdict
        });
        Decision::new(0, denied, |_| true)
    }
}

/// The checks of a request; up to four without an allocation.
pub type Checks = SmallVec<[Check; 4]>;

/// An answer that is there at once, or that comes after I/O.
///
/// The memory store, and every local answer of a remote one, is `Ready`: nothing is boxed and nothing is polled.
/// Awaiting a step waits where it has to.
#[must_use = "await the answer, or take it with `ready`"]
#[derive(Debug)]
pub enum Step<T> {
    /// The answer.
    Ready(T),
    /// The answer comes later.
    Wait(Pending<T>),
}

impl<T> Step<T> {
    /// The answer if it is there.
    pub fn ready(self) -> Option<T> {
        match self {
            Self::Ready(answer) => Some(answer),
            Self::Wait(_) => None,
        }
    }
}

impl<T> IntoFuture for Step<T> {
    type Output = T;
    type IntoFuture = Stepping<T>;

    fn into_future(self) -> Stepping<T> {
        Stepping(match self {
            Self::Ready(answer) => Either::Ready(std::future::ready(answer)),
            Self::Wait(pending) => Either::Wait(pending),
        })
    }
}

/// The future of a [`Step`].
#[derive(Debug)]
pub struct Stepping<T>(Either<T>);

#[derive(Debug)]
enum Either<T> {
    Ready(std::future::Ready<T>),
    Wait(Pending<T>),
}

impl<T> Future for Stepping<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        match &mut self.get_mut().0 {
            Either::Ready(answer) => Pin::new(answer).poll(cx),
            Either::Wait(pending) => Pin::new(pending).poll(cx),
        }
    }
}

/// An answer that comes after I/O: a boxed future that borrows nothing.
pub struct Pending<T>(Pin<Box<dyn Future<Output = T> + Send>>);

impl<T> Pending<T> {
    /// Boxes a future.
    pub fn new(answer: impl Future<Output = T> + Send + 'static) -> Self {
        Self(Box::pin(answer))
    }
}

impl<T> Future for Pending<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.0.as_mut().poll(cx)
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pending(..)")
    }
}

/// What to do with units that were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settlement {
    /// Gives back this many units of each check, at most what it took.
    Refund(u64),
    /// Takes this many units more from each check, as far as they are there.
    Charge(u64),
    /// Gives back everything: the request was not let through after all.
    Cancel,
}

/// A check that was allowed and took its units, as its settlement needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The check.
    pub check: Check,
    /// When its units were taken, and until when they weigh.
    pub taken: Taken,
    /// Who gave them.
    pub source: Source,
}

impl Receipt {
    /// What an allowed check took at `at`.
    #[must_use]
    pub fn new(check: Check, verdict: &Verdict, at: Tick) -> Self {
        Self {
            check,
            taken: Taken {
                at,
                fresh_at: at.saturating_add(verdict.reset_after_ticks()),
            },
            source: verdict.source(),
        }
    }
}

/// What a store keeps of one rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Keys with a live state: one that differs from a fresh one. Where a large table holds expired entries, this is an
    /// estimate from a sample.
    pub keys: u64,
    /// Bytes allocated for states.
    pub bytes: u64,
    /// Evictions of live states because of the bound. Each of them let a client start anew: the bound is too small, or a
    /// flood is under way.
    pub evicted_live: u64,
}

/// Where state lives.
///
/// A store is an object: the layer and the limiter have no type parameter for it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a store",
    note = "take `MemoryStore::new()`, or a store of another tollgate crate"
)]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Ties a rule set to the state in this store.
    ///
    /// State is found by the rules' names: what was used under a name stays used, also when the quota changed.
    ///
    /// A [`Limiter`](crate::Limiter) asks the [registry](Self::registry) first. Whoever calls this alone has not: two quotas
    /// of one name are then counted on one state.
    ///
    /// # Errors
    ///
    /// A rule that this store cannot serve.
    fn bind(&self, rules: Arc<RuleSet>) -> Result<Arc<dyn RuleStore>, RuleError>;

    /// Which quotas live limiters and layers on this store count under each rule name: one for the store and its clones. A
    /// store in front of another one hands out that one's.
    fn registry(&self) -> &RuleRegistry;
}

/// A rule set on a store. Object safe; every future it hands out borrows nothing.
///
/// A store never fails a call, it fails checks: a check that could not be decided has the outcome
/// [`Failed`](crate::Outcome::Failed), and the [`Limiter`](crate::Limiter) resolves it by its rule's answer to a store
/// failure.
pub trait RuleStore: fmt::Debug + Send + Sync + 'static {
    /// The rules.
    fn rules(&self) -> &Arc<RuleSet>;

    /// Whether a check can fail. A store that cannot needs no fallback.
    fn can_fail(&self) -> bool {
        true
    }

    /// What stands for `key` in this store, for the rule at place `rule`.
    fn fingerprint(&self, rule: u16, key: &KeyBuf) -> Fingerprint;

    /// Decides all checks and takes all or nothing, in one atomic step.
    ///
    /// Checks on one state are folded first: their costs are summed. Verdicts are in the order of the checks. Checks of one
    /// rule and key under two plans are [denied](Check::deny_two_plans).
    ///
    /// # Cancel safety
    ///
    /// Dropping the answer does not undo the take.
    fn acquire(&self, checks: &[Check]) -> Step<Decision>;

    /// Decides as [`acquire`](Self::acquire) does, and takes nothing.
    fn peek(&self, checks: &[Check]) -> Step<Decision>;

    /// Settles units that were taken. Never blocks on I/O, and may be called from `Drop`: what cannot be sent is given
    /// up and counted.
    fn settle(&self, receipts: &[Receipt], how: Settlement);

    /// Forgets what the keys of these checks have used, and says whether anything was kept of them. What other processes hold
    /// in advance stays counted.
    ///
    /// The checks are those of one request, for stores where one of them says where the states of the others lie. One with a
    /// cost of 0 does only that: its own state stays. Other costs do not matter, nor do plans.
    fn reset(&self, checks: &[Check]) -> Step<Result<bool, StoreError>>;

    /// Told how checks that this store could not decide were decided in its place, by the rules' answers to a store
    /// failure: the verdicts whose source is [`Source::Fallback`]. For stores that keep an account of it.
    fn resolved(&self, checks: &[Check], decision: &Decision) {
        let _ = (checks, decision);
    }

    /// Told when the last limiter and layer with these rules is gone, or when other rules have
    /// [taken their place](crate::Limiter::replacing): from then on nothing is to be held in advance. What is held goes back, and
    /// what was counted alone is reported, without waiting for it. Requests and tickets that are still under way may ask and
    /// settle afterwards.
    fn retire(&self) {}

    /// How many instances are known to share this store now; 0 if that is not known.
    ///
    /// Asked when checks have failed: it answers at once, with what it knew last, and at least as long as the outage lasts. So
    /// a store that has just begun anew must not tell fewer than there are: shares are cut for as many as it tells.
    fn instances(&self) -> u32 {
        0
    }

    /// What is kept of the rule at place `rule`, where it is known without I/O.
    fn usage(&self, rule: u16) -> Option<Usage> {
        let _ = rule;
        None
    }
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn bind(&self, rules: Arc<RuleSet>) -> Result<Arc<dyn RuleStore>, RuleError> {
        (**self).bind(rules)
    }

    fn registry(&self) -> &RuleRegistry {
        (**self).registry()
    }
}
