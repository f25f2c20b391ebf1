//! The limiter: rules on a store, and what happens when the store fails.

use std::{
    num::NonZeroU32,
    panic::{RefUnwindSafe, UnwindSafe},
    sync::Arc,
    time::{Duration, SystemTime},
};

use smallvec::SmallVec;

#[cfg(feature = "metrics")]
use crate::observe::{RuleCounts, credits_of, flush};
use crate::{
    check::{Check, Checks},
    check_policy::OnStoreError,
    coordinator::{Ask, Coordinator},
    credits::{Balance, CreditChange},
    decision::{Decision, Outcome, Reason, Verdict},
    error::{RuleError, RuleErrorKind, StoreError, StoreErrorKind},
    journal::{DurableRules, Journal},
    key::{Fingerprint, Key, KeyBuf, PartKind},
    observe::{Observer, Timer, TopKey},
    quota::Quota,
    remote::fallback::Fallback,
    rule::Rule,
    rule_set::RuleSet,
    step::Step,
    store::{
        registry::Registration,
        rule_store::{RuleStore, Store, refuse_unsupported},
    },
    ticket::Ticket,
    variable_quota::CheckQuota,
    wait_queue::WaitQueues,
};

/// Rules on a store: what workers, queue consumers and layers call.
///
/// Cheap to clone; clones share everything.
///
/// Until the last clone is dropped, no other limiter or layer on the same store may count one of its rule names by another
/// quota, unless it [replaces](Self::replacing) this one.
///
/// ```
/// use tollgate_core::{Key, Limiter, MemoryStore, Quota, Rule, SECOND};
///
/// let limiter = Limiter::new(
///     MemoryStore::new(),
///     [Rule::new("provider", Quota::token_bucket(50).refill(10, SECOND))],
/// )?;
/// let decision = limiter.try_acquire("provider", &Key::shared())?;
/// assert!(decision.is_allowed());
/// assert_eq!(decision.verdicts()[0].remaining(), 49);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Limiter {
    shared: Arc<Coordinator>,
    /// Keeps the rule names in use; `None` for what a request under way holds.
    registration: Option<Arc<Registration>>,
}

// After a panic, its locks are free and what they guard is whole.
impl UnwindSafe for Limiter {}
impl RefUnwindSafe for Limiter {}

impl Limiter {
    /// Ties rules to a store.
    ///
    /// The local share of a rule while the store fails is the whole quota, unless the store knows how many instances share
    /// it. Where several instances of the service run, say how many with [`shared_by`](Self::shared_by).
    ///
    /// # Errors
    ///
    /// A rule that cannot be used, or that the store cannot serve. A rule name that another live limiter or layer on this
    /// store has bound to another quota, or to other plans: one name is one budget.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a store is a handle, and a call with a new one reads well"
    )]
    pub fn new(
        store: impl Store,
        rules: impl IntoIterator<Item: Into<Rule>>,
    ) -> Result<Self, RuleError> {
        Self::register(&store, RuleSet::new(rules)?, &[], NonZeroU32::MIN, None)
    }

    /// Ties a rule set to a store whose names are registered, in the place of those of `replaced`, which stay registered. With
    /// the instances and the fallback of `before`.
    pub(crate) fn register(
        store: &dyn Store,
        rules: RuleSet,
        replaced: &[&Registration],
        instances: NonZeroU32,
        before: Option<&Self>,
    ) -> Result<Self, RuleError> {
        let rules = Arc::new(rules);
        let registration = store.registry().register(&rules, replaced)?;
        let store = store.bind(rules)?;
        refuse_unsupported(&*store)?;
        let fallback = fallback(&*store, before, instances)?;
        let before = before.map(|it| &*it.shared);
        let observed_before = before.map(|it| &*it.observer);
        let observer = Arc::new(Observer::new(store.rules(), observed_before));
        #[cfg(feature = "metrics")]
        flush::register(&observer, &store);
        let shared = Coordinator::new(Arc::clone(&store), fallback, observer, before);
        let registration = registration.on_retire(move || store.retire());
        Ok(Self {
            shared: Arc::new(shared),
            registration: Some(Arc::new(registration)),
        })
    }

    /// The registration of its names.
    pub(crate) fn registration(&self) -> Option<&Registration> {
        self.registration.as_deref()
    }

    /// Frees its names: its rules were replaced.
    pub(crate) fn retire(&self) {
        if let Some(registration) = &self.registration {
            registration.retire();
        }
    }

    /// These rules with the instances of `before`, and with what it has counted while the store failed: for a [layer](crate::layer)
    /// whose settings differ from those of the one whose rules were replaced.
    ///
    /// # Errors
    ///
    /// A quota whose share cannot be counted.
    pub fn succeeding(&self, before: &Self) -> Result<Self, RuleError> {
        self.again(Some(before), NonZeroU32::MIN)
    }

    /// The same limiter, which does not keep its rule names in use: for what outlives its limiter or layer, such as a request
    /// under way.
    #[must_use]
    pub fn unregistered(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            registration: None,
        }
    }

    /// The same rules on the same state, with another least number of instances of this service: while the store fails, each
    /// counts against its share of a quota. Where the store [knows](RuleStore::instances) of more, there are more.
    ///
    /// # Errors
    ///
    /// A quota whose share cannot be counted.
    pub fn shared_by(&self, instances: NonZeroU32) -> Result<Self, RuleError> {
        self.again(None, instances)
    }

    /// The same rules on the same state, with the fallback and the queues of `before`, or a new fallback.
    fn again(&self, before: Option<&Self>, instances: NonZeroU32) -> Result<Self, RuleError> {
        let (store, observer) = (Arc::clone(&self.shared.store), Arc::clone(self.observer()));
        let fallback = fallback(&*store, before, instances)?;
        let before = &*before.unwrap_or(self).shared;
        let shared = Coordinator::new(store, fallback, observer, Some(before));
        Ok(Self {
            shared: Arc::new(shared),
            registration: self.registration.clone(),
        })
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> &RuleSet {
        &self.shared.rule_set
    }

    /// The rules on their store.
    #[must_use]
    pub fn rule_store(&self) -> &Arc<dyn RuleStore> {
        &self.shared.store
    }

    /// A check of the rule with this name for `key`, at the rule's fixed cost.
    ///
    /// # Errors
    ///
    /// There is no rule of this name.
    pub fn check(&self, rule: &str, key: &Key) -> Result<Check, RuleError> {
        let index = self.index(rule)?;
        let cost = self.rules().given()[index].fixed_cost();
        // A rule set has fewer than 65 536 rules.
        Ok(self.check_at(index as u16, key.as_ref(), cost))
    }

    /// The index of the rule with this name in the rule set.
    fn index(&self, rule: &str) -> Result<usize, RuleError> {
        let given = self.rules().given();
        let unknown = || RuleError::unknown("rule", rule, given.iter().map(Rule::name));
        self.rules().given_position(rule).ok_or_else(unknown)
    }

    /// A check of the rule with this name under one of its plans.
    ///
    /// # Errors
    ///
    /// There is no rule of this name, or it has no plan of that name.
    pub fn check_with_plan(&self, rule: &str, plan: &str, key: &Key) -> Result<Check, RuleError> {
        let check = self.check(rule, key)?;
        let rule = &self.rules().rules()[usize::from(check.rule())];
        let unknown = || RuleError::unknown("plan", plan, rule.plan_names());
        let number = rule.plan_number(plan).ok_or_else(unknown)?;
        // A rule has fewer than 65 535 plans.
        Ok(check.with_plan(number as u16))
    }

    /// The same check of a request with this id, for a rule that is [idempotent](Rule::idempotent): a request with the same id, key and
    /// cost repeats the first one, and costs the rule nothing.
    ///
    /// Put into the id what makes two requests different: a layer takes the method and the target with it.
    ///
    /// # Errors
    ///
    /// The rule is not idempotent.
    pub fn with_id(&self, check: Check, id: &Key) -> Result<Check, RuleError> {
        let rule = self.rules().rule_of(&check);
        if let Some(rule) = rule.filter(|rule| rule.idempotency().is_none()) {
            let message = "a check has an id, and the rule knows none; add idempotent(10 * MINUTE) to the rule";
            return Err(rule.error(RuleErrorKind::Idempotency, message));
        }
        // With the key, so that ids in a store do not show which clients have used the same.
        let mut key = KeyBuf::new();
        key.push(PartKind::VALUE, check.key().bits().to_le_bytes());
        key.append(id.as_ref());
        let id = self.shared.store.fingerprint(check.rule(), &key);
        Ok(check.with_id(id))
    }

    /// A quota of its own for checks of the rule with this name, which has a [variable quota](Rule::variable_quota). It may be
    /// any of the rule's algorithm; of windows, sub-buckets and logs, with the rule's period;
    /// [`unlimited`](crate::Quota::unlimited); or [`none`](crate::Quota::none), which 0 units are too. Used units are carried
    /// over from one to the next.
    ///
    /// It is cheap: a quota is looked up by its numbers. Up to 65 000 different ones may be used within ten minutes. One that
    /// was not used for ten minutes may be forgotten: make it anew for each piece of work. A check that brings along a forgotten
    /// one is denied, as that of another limiter.
    ///
    /// ```
    /// use tollgate_core::{Key, Limiter, MINUTE, MemoryStore, Quota, Rule};
    ///
    /// let rule = Rule::new("per-tenant", Quota::gcra(60, MINUTE)).variable_quota();
    /// let limiter = Limiter::new(MemoryStore::new(), [rule])?;
    /// // 500 is what the tenant's contract says.
    /// let contract = limiter.quota_for("per-tenant", Quota::gcra(500, MINUTE))?;
    /// let check = limiter.check("per-tenant", &Key::of("acme"))?.with_quota(contract);
    /// let decision = limiter.acquire(&[check]).ready().expect("memory answers at once");
    /// assert_eq!(decision.verdicts()[0].remaining(), 499);
    ///
    /// let error = limiter.quota_for("per-tenant", Quota::fixed_window(500, MINUTE)).unwrap_err();
    /// assert!(error.to_string().contains("is a fixed_window and the rule a gcra"), "{error}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// There is no rule of this name, or its quota is not variable; a quota of another algorithm or another period, or one that
    /// cannot be counted; too many different quotas ([`TooManyQuotas`](RuleErrorKind::TooManyQuotas)).
    pub fn quota_for(&self, rule: &str, quota: Quota) -> Result<CheckQuota, RuleError> {
        let index = self.index(rule)?;
        let mut quota = self.rules().rules()[index].quota_for(quota)?;
        if quota.serial == 0 {
            // Of these rules, also for a check that has brought another one along.
            quota.serial = self.shared.rules_version;
        }
        Ok(quota)
    }

    /// A check of the rule at index `rule` of the rule set.
    #[inline]
    #[must_use]
    pub fn check_at(&self, rule: u16, key: &KeyBuf, cost: u64) -> Check {
        self.with_key(Check::new(rule, Fingerprint::from_bits(0), cost), key)
    }

    /// A check of these rules for this key. A [quota](Check::with_quota) is set after that.
    #[inline]
    #[must_use]
    pub fn with_key(&self, check: Check, key: &KeyBuf) -> Check {
        let rule = check.rule();
        let subject = self.shared.store.fingerprint(rule, key);
        if self.shared.way.notes_keys {
            self.note_key(rule, subject, key);
        }
        check.with_key(subject).of_rules(self.shared.rules_version)
    }

    fn note_key(&self, rule: u16, subject: Fingerprint, key: &KeyBuf) {
        self.shared.observer.on_key(rule, subject, key);
        if let Some(noted) = &self.shared.noted {
            noted.note_key(rule, subject, key);
        }
    }

    /// Decides all checks and takes all or nothing. Await the answer, or take it with [`Step::ready`] where the store
    /// is in memory.
    ///
    /// Where a rule [waits](Rule::wait), an allowed decision may have a [delay](Decision::delay): its request has a place in the
    /// queue, and may only [start](Self::start) after that time. [`acquire_within`](Self::acquire_within) does both.
    ///
    /// The decision is `Allow` or `Deny`, never `Failed`: what the store could not decide was decided by the rules'
    /// answers to a store failure. Thresholds of the rules are checked with them; their verdicts come last.
    ///
    /// It does not queue for slots: it may take one that has just become free, ahead of requests that
    /// [wait](Self::acquire_within) for it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the answer gives back slots, and no units.
    ///
    /// # Accuracy
    ///
    /// A check that another limiter has made, with other rules, is denied, and so are two checks of one rule and key under two
    /// plans: a mistake must not let a request pass. The reason is then
    /// [`StoreFailed`](crate::Reason::StoreFailed), and nothing is taken.
    #[inline]
    pub fn acquire(&self, checks: &[Check]) -> Step<Decision> {
        match self.shared.way.is_observed {
            true => self.acquire_reported(checks),
            false => self.decide(checks, Ask::Acquire),
        }
    }

    fn acquire_reported(&self, checks: &[Check]) -> Step<Decision> {
        let timer = Timer::start();
        let mut answer = self.decide(checks, Ask::Acquire);
        match &answer {
            Step::Ready(decision) => self.report(checks, decision, timer, ""),
            Step::Wait(_) => {
                let (limiter, checks) = (self.unregistered(), Checks::from_slice(checks));
                answer.then(move |decision| limiter.report(&checks, decision, timer, ""));
            }
        }
        answer
    }

    /// Decides, and tells operators nothing of it.
    #[inline]
    pub(crate) fn decide(&self, checks: &[Check], ask: Ask) -> Step<Decision> {
        self.shared.decide(checks, ask)
    }

    /// The denial of a request by an enforced limit of [none](Quota::none), which needs no store and no other key.
    #[inline]
    #[must_use]
    pub fn blocked(&self, checks: &[Check]) -> Option<Decision> {
        self.shared.blocked(checks)
    }

    /// Tells operators of the decision of an [attempt](crate::layer) on these checks; all other calls do so by themselves. `timer` was
    /// started when the work on the request began, and `route` is the pattern of its route (`/users/{id}`, never the path itself), or
    /// empty.
    #[inline]
    pub fn report(&self, checks: &[Check], decision: &Decision, timer: Timer, route: &str) {
        if self.shared.way.is_observed {
            if let Some(noted) = &self.shared.noted {
                noted.count_by_day(checks, decision);
            }
            let store = &*self.shared.store;
            (self.shared.observer).decided(store, checks, decision, timer, route);
        }
    }

    /// What it tells operators.
    #[must_use]
    pub fn observer(&self) -> &Arc<Observer> {
        &self.shared.observer
    }

    /// The keys that came most often under the rule with this name in the last two and a half to five minutes, the heaviest
    /// first: at most `most`, of about 250. The rule has to [keep them](Rule::top_keys).
    ///
    /// # Accuracy
    ///
    /// The requests of a key are between [`at_least`](TopKey::at_least) and [`at_most`](TopKey::at_most). They are those of this
    /// process. Denials and units are counted from when the key came to be among the top keys, so that there may be more.
    ///
    /// No request waits for the list. One that finds it in use is not noted, and a thread that shares it with others is left out
    /// for 4 µs after each time that it was noted. So where threads decide more than 250 000 requests a second each, the
    /// numbers are those of a sample: the order of heavy keys holds, and there may be more requests than `at_most`.
    ///
    /// # Errors
    ///
    /// There is no rule of this name.
    pub fn top_keys(&self, rule: &str, most: usize) -> Result<Vec<TopKey>, RuleError> {
        let index = self.index(rule)?;
        Ok(self.shared.observer.top_keys(index, most))
    }

    /// What this limiter has counted of its rules and their thresholds, as far as they were used: the requests by plan, decision,
    /// reason and source. For a console, and for tests.
    ///
    /// The numbers are those of this process, since the limiter was made. They go on when its rules are
    /// [replaced](Self::replacing).
    ///
    /// ```
    /// use tollgate_core::{Key, Limiter, MINUTE, MemoryStore, Quota, Rule};
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("api", Quota::gcra(2, MINUTE))])?;
    /// for _ in 0..5 {
    ///     let _ = limiter.try_acquire("api", &Key::of("account-7"))?;
    /// }
    /// let counts = &limiter.counts()[0];
    /// assert_eq!(counts.rule, "api");
    /// assert_eq!((counts.decided("allowed"), counts.denied_for("quota")), (2, 3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "metrics")]
    #[must_use]
    pub fn counts(&self) -> Vec<RuleCounts> {
        self.shared.observer.counts()
    }

    /// Whether a rule waits.
    #[inline]
    pub(crate) fn has_waits(&self) -> bool {
        self.shared.way.has_waits
    }

    /// Those of the checks whose slots requests wait for, with their rules.
    pub(crate) fn slots_waited_for<'a>(
        &'a self,
        checks: &'a [Check],
    ) -> impl Iterator<Item = (&'a Rule, &'a Check)> {
        let of_rule = |check| Some((self.rules().rule_of(check)?, check));
        let with_rules = checks.iter().filter_map(of_rule);
        let waits = |rule: &Rule| rule.has_slots() && rule.at_most_wait().is_some();
        with_rules
            .filter(move |(rule, check)| waits(rule) && rule.is_enforced() && check.cost() > 0)
    }

    /// Whether a request with these checks waits for slots. Not for more than there are: it is denied at once.
    pub(crate) fn waits_for_slots(&self, checks: &[Check]) -> bool {
        let mut waited_for = self.slots_waited_for(checks).peekable();
        let is_above = |(rule, check): (&Rule, &Check)| {
            let limit = rule.limit_under(usize::from(check.plan()));
            // A limit of none that is over counts under the rule's own quota.
            limit.is_some_and(|limit| limit > 0 && check.cost() > limit)
        };
        waited_for.peek().is_some() && !waited_for.any(is_above)
    }

    /// Whether a request waits for slots after this decision about it: it is denied for want of slots, and each rule that denies
    /// it waits. A rule with slots that does not wait denies at once.
    pub(crate) fn waits_for_slots_after(&self, decision: &Decision) -> bool {
        self.shared.way.has_waits
            && decision.reason() == Some(Reason::Slots)
            && self.is_denied_by_waits(decision)
    }

    /// Whether a request with these checks that was denied because it may not wait would have waited for units.
    pub(crate) fn would_wait(&self, checks: &[Check], decision: &Decision) -> bool {
        let delay = decision.retry().delay();
        decision.reason() == Some(Reason::Quota)
            && self.is_denied_by_waits(decision)
            && delay.is_some_and(|delay| Some(delay) <= self.at_most_wait(checks))
    }

    fn is_denied_by_waits(&self, decision: &Decision) -> bool {
        self.rules().denials(decision).all(|it| self.is_of_wait(it))
    }

    /// Whether rules that wait deny it, and others too.
    pub(crate) fn is_denied_by_others_too(&self, decision: &Decision) -> bool {
        !self.is_denied_by_waits(decision)
            && (self.rules().denials(decision)).any(|it| self.is_of_wait(it))
    }

    fn is_of_wait(&self, verdict: &Verdict) -> bool {
        let rule = self.rules().rules().get(verdict.rule());
        rule.is_some_and(|rule| rule.at_most_wait().is_some())
    }

    /// Starts a request whose decision said to [wait](Decision::delay), after that time, counted from the receipt of the
    /// decision. What the wait was not for is charged now: rules that do not wait, and slots. The answer is the final decision.
    ///
    /// It is a denial where these no longer fit. The units that it waited for then go back, unless other requests have
    /// queued behind them. The request may try again. A decision without a delay is the answer at once.
    ///
    /// A request that gives up before it starts cancels its [ticket](Self::ticket) instead.
    ///
    /// ```
    /// use tollgate_core::{Key, Limiter, ManualClock, MemoryStore, Quota, Rule, SECOND};
    ///
    /// let clock = ManualClock::new(1_700_000_000_000_000);
    /// let store = MemoryStore::builder().clock(&clock).build();
    /// let rule = Rule::new("provider", Quota::per_second(10).burst(1)).wait(SECOND);
    /// let limiter = Limiter::new(store, [rule])?;
    /// let checks = [limiter.check("provider", &Key::shared())?];
    /// for n in 0..3 {
    ///     let decision = limiter.acquire(&checks).ready().expect("memory answers at once");
    ///     // A tenth of a second after the one before. A task sleeps meanwhile.
    ///     assert_eq!(decision.delay(), n * SECOND / 10);
    ///     let started = limiter.start(&checks, decision).ready().expect("memory answers at once");
    ///     assert!(started.is_allowed() && started.delay().is_zero());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the answer does not give back what was taken.
    pub fn start(&self, checks: &[Check], decision: Decision) -> Step<Decision> {
        match decision.delay().is_zero() {
            true => Step::Ready(decision),
            false => self.start_from(self.ticket(checks, &decision), checks, decision),
        }
    }

    /// The same with the ticket of its places.
    pub(crate) fn start_from(
        &self,
        places: Ticket,
        checks: &[Check],
        decision: Decision,
    ) -> Step<Decision> {
        let is_left = |(_, check): &(usize, &Check)| !self.waits_in_store(check);
        let left = checks.iter().enumerate().filter(is_left);
        let indices: SmallVec<[usize; 4]> = left.map(|(index, _)| index).collect();
        let left: Checks = indices.iter().map(|index| checks[*index]).collect();
        // Operators were told of these checks with the decision.
        let mut answer = match left.is_empty() {
            true => Step::Ready(Decision::unlimited(decision.at())),
            false => self.decide(&left, Ask::Acquire),
        };
        let rules = Arc::clone(&self.shared.rule_set);
        answer.then(move |then| {
            match then.is_allowed() {
                true => places.forget(),
                false => places.cancel(),
            }
            let at_end = std::mem::replace(then, Decision::unlimited(0));
            *then = decision.started(at_end, &indices, |it| rules.enforces(it.rule()));
        });
        answer
    }

    /// Whether a request waits for the units of this check in the store's queue.
    pub(crate) fn waits_in_store(&self, check: &Check) -> bool {
        let waits = |rule: &Rule| rule.at_most_wait().is_some() && !rule.has_slots();
        self.rules().rule_of(check).is_some_and(waits)
    }

    /// How long a request waits at most by the rules of these checks; `None` if it does not wait.
    #[must_use]
    pub fn at_most_wait(&self, checks: &[Check]) -> Option<Duration> {
        if !self.shared.way.has_waits {
            return None;
        }
        let waits = |check: &Check| {
            let rule = self.rules().rule_of(check)?;
            let at_most = rule.at_most_wait();
            at_most.filter(|_| check.cost() > 0 && rule.is_enforced())
        };
        checks.iter().filter_map(waits).min()
    }

    /// Decides as [`acquire`](Self::acquire) does, and takes nothing. A check that the store cannot decide is
    /// `Failed`. A check of another limiter is denied here too.
    ///
    /// The key of a request in a layer is `layer.key_of(rule, &head)`.
    pub fn peek(&self, checks: &[Check]) -> Step<Decision> {
        self.decide(checks, Ask::Peek)
    }

    /// One check of the rule with this name, where the store answers at once. A rule that [waits](Rule::wait) denies what would
    /// have to.
    ///
    /// # Errors
    ///
    /// There is no rule of this name, or the store does not decide at once, in which case it was not called: use
    /// [`acquire`](Self::acquire).
    pub fn try_acquire(&self, rule: &str, key: &Key) -> Result<Decision, RuleError> {
        let check = self.check(rule, key)?;
        let would_wait = || {
            RuleError::general(
                RuleErrorKind::Store,
                "this store does not decide at once; use `acquire` and await its answer",
            )
        };
        // A store that cannot fail does no I/O, and answers at once.
        if self.shared.store.can_fail() {
            return Err(would_wait());
        }
        if !self.shared.way.has_waits {
            let decision = self.acquire(&[check]).ready();
            return decision.ok_or_else(would_wait);
        }
        let timer = Timer::start();
        let decision = self
            .decide(&[check], Ask::Within(Duration::ZERO))
            .ready()
            .ok_or_else(would_wait)?;
        self.report(&[check], &decision, timer, "");
        Ok(decision)
    }

    /// Takes as many units as fit, up to `max`, of all checks alike. Their own costs do not matter, nor do ids. To give some of them back,
    /// make a [ticket](Self::ticket) of the [checks of the grant](Grant::checks), which have what was taken.
    ///
    /// The units are 0 if not even one fits. The decision is then about one unit of each check: its `retry` is the wait
    /// for the smallest grant.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave units taken.
    ///
    /// # Accuracy
    ///
    /// Never above the quota. While others take units at the same time, the grant may be smaller than what was left for
    /// an instant.
    pub async fn acquire_up_to(&self, checks: &[Check], max: u64) -> Grant {
        let timer = Timer::start();
        let unit_of = |it: &Check| it.with_cost(1).without_id();
        let one: Checks = checks.iter().map(unit_of).collect();
        let mut units = self.first_try(&one, max).await;
        loop {
            let asked: Checks = one.iter().map(|it| it.with_cost(units)).collect();
            // A rule that waits has what is there now, too.
            let decision = self.decide(&asked, Ask::Within(Duration::ZERO)).await;
            if let Some(fewer) = self.fewer(&one, &decision, units) {
                units = fewer;
                continue;
            }
            self.report(&asked, &decision, timer, "");
            return Grant {
                units: if decision.is_allowed() { units } else { 0 },
                checks: asked,
                decision,
            };
        }
    }

    /// How many times the costs of these checks to try first, of at most `most`, for a [layer](crate::layer): as many as there are,
    /// where attempts are not to be repeated.
    pub async fn first_try(&self, checks: &[Check], most: u64) -> u64 {
        if most <= 1 || !self.rules().counts_attempts() {
            return most;
        }
        let free: Checks = checks.iter().map(|it| it.with_cost(0)).collect();
        let looked = self.peek(&free).await;
        let left = self.left(checks, &looked, Outcome::Allow);
        match left.filter(|_| looked.outcome() == Outcome::Allow) {
            // Where nothing is left, one tells when there will be.
            Some(left) => left.clamp(1, most),
            None => most,
        }
    }

    /// How many times the costs of these checks to try next, after this decision about so many, for a [layer](crate::layer). `None`:
    /// fewer would not help. Where none fits, one says when it will.
    #[must_use]
    pub fn fewer(&self, checks: &[Check], decision: &Decision, times: u64) -> Option<u64> {
        let reason = decision.reason();
        if times <= 1 || decision.outcome() != Outcome::Deny || reason == Some(Reason::Blocked) {
            return None;
        }
        // Of what failed, only a share or a cap of this process has counted anything.
        let is_counted = |(check, _): (&Check, _)| {
            let rule = self.rules().rule_of(check);
            let answer = rule.map(|rule| rule.answer_to_failure(check));
            matches!(
                answer,
                Some(OnStoreError::LocalShare | OnStoreError::Cap(_))
            )
        };
        let mut denied = self.of_enforced(checks, decision, Outcome::Deny);
        if reason == Some(Reason::StoreFailed) && !denied.all(is_counted) {
            return None;
        }
        // Fewer are left than were denied. If not, another request gave units back: one less.
        let left = self.left(checks, decision, Outcome::Deny)?;
        Some(left.clamp(1, times - 1))
    }

    /// How many times the costs of these checks are left by the verdicts of enforced rules with this outcome.
    fn left(&self, checks: &[Check], decision: &Decision, outcome: Outcome) -> Option<u64> {
        let times = |(check, verdict): (&Check, &Verdict)| {
            // Checks on one state share what is left of it.
            let is_same = |it: &&Check| (it.rule(), it.key()) == (check.rule(), check.key());
            let costs = checks.iter().filter(is_same).map(Check::cost);
            verdict.remaining() / costs.fold(0, u64::saturating_add)
        };
        (self.of_enforced(checks, decision, outcome).map(times)).min()
    }

    /// The checks with a cost, of enforced rules, whose verdicts have this outcome.
    pub(crate) fn of_enforced<'a>(
        &'a self,
        checks: &'a [Check],
        decision: &'a Decision,
        outcome: Outcome,
    ) -> impl Iterator<Item = (&'a Check, &'a Verdict)> {
        let enforced =
            move |it: &Verdict| it.outcome() == outcome && self.rules().enforces(it.rule());
        let checked = checks.iter().zip(decision.verdicts());
        checked.filter(move |(check, verdict)| check.cost() > 0 && enforced(verdict))
    }

    /// What `decision` on `checks` holds, to be settled later.
    pub fn ticket(&self, checks: &[Check], decision: &Decision) -> Ticket {
        let (store, durable) = (Arc::clone(&self.shared.store), self.durable_rules());
        Ticket::new(store, checks, decision, RuleSet::enforces, durable)
    }

    /// A [ticket](Self::ticket) with the units that shadows took: for what settles them as if they were enforced.
    pub fn ticket_with_shadows(&self, checks: &[Check], decision: &Decision) -> Ticket {
        let (store, durable) = (Arc::clone(&self.shared.store), self.durable_rules());
        Ticket::new(store, checks, decision, |_, _| true, durable)
    }

    /// Adds units to the balance of `key` under the rule with this name, which takes [credits](Rule::credits). They may be used until
    /// `until`, and a later end prolongs the units that are there.
    ///
    /// The key of a request in a layer is `layer.key_of(rule, &head)`. A grant to a key that no request has succeeds as well.
    ///
    /// Each `id`, such as the number of an invoice, adds its units once, however often the call is repeated: after an answer that never
    /// came, repeat it as it was. A store knows the ids of a rule and key until their own `until`, of 256 grants at most; one more is
    /// refused.
    ///
    /// ```
    /// use std::time::SystemTime;
    /// use tollgate_core::{DAY, Key, Limiter, MemoryStore, Quota, Rule, Source};
    ///
    /// let rule = Rule::new("pages", Quota::fixed_window(2, 30 * DAY)).credits();
    /// let limiter = Limiter::new(MemoryStore::new(), [rule])?;
    /// let (acme, until) = (Key::of("acme"), SystemTime::now() + 365 * DAY);
    /// for _ in 0..2 {
    ///     let granted = limiter.grant("pages", &acme, 100, until, "invoice-4711")?;
    ///     assert_eq!(granted.ready().expect("memory answers at once")?.units, 100);
    /// }
    /// for n in 0..3 {
    ///     let decision = limiter.try_acquire("pages", &acme)?;
    ///     assert_eq!(decision.verdicts()[0].source() == Source::Credits, n == 2);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Accuracy
    ///
    /// Other processes on a shared store see it within a second, where they have just denied the key. A balance is lost with the store,
    /// unless the rule is [durable](Rule::durable): then its ledger has written the grant when the answer comes, and brings it back.
    ///
    /// # Errors
    ///
    /// A rule that there is not, or that takes no credits; units, an end or an id that cannot be. The answer may be an error of the
    /// store, also one that [refuses](StoreErrorKind::Refused) the grant: it has ended, there are too many, or a store in memory has no
    /// room for one more balance.
    pub fn grant(
        &self,
        rule: &str,
        key: &Key,
        units: u64,
        until: SystemTime,
        id: &str,
    ) -> StoreAnswer<Balance> {
        self.change_credits(rule, key, CreditChange::grant(units, until, id), id)
    }

    /// Takes the units of a [grant](Self::grant) back, as far as they are left, once: [`Balance::changed`] says how many. What requests
    /// hold that run, and give back later, stays with the key. Its end, and what it has prolonged, stay as they are.
    ///
    /// An id that the store does not know changes nothing. The key of a request in a layer is `layer.key_of(rule, &head)`.
    ///
    /// # Errors
    ///
    /// As [`grant`](Self::grant).
    pub fn revoke(&self, rule: &str, key: &Key, id: &str) -> StoreAnswer<Balance> {
        self.change_credits(rule, key, CreditChange::revoke(id), id)
    }

    /// What `key` has in [credits](Rule::credits) of the rule with this name. The key of a request in a layer is
    /// `layer.key_of(rule, &head)`.
    ///
    /// # Errors
    ///
    /// As [`grant`](Self::grant).
    pub fn balance(&self, rule: &str, key: &Key) -> StoreAnswer<Balance> {
        self.change_credits(rule, key, Ok(CreditChange::Query), "")
    }

    fn change_credits(
        &self,
        rule: &str,
        key: &Key,
        change: Result<CreditChange, String>,
        id: &str,
    ) -> StoreAnswer<Balance> {
        let check = self.check(rule, key)?;
        let rule = &self.rules().rules()[usize::from(check.rule())];
        let wrong = |message: String| rule.error(RuleErrorKind::Credits, message);
        if !rule.has_credits() {
            return Err(wrong(
                "it takes no credits; add credits() to the rule".into(),
            ));
        }
        let change = change.map_err(wrong)?;
        #[cfg_attr(not(feature = "metrics"), expect(unused_mut))]
        let mut answer = match &self.shared.durable {
            Some(durable) if durable.is_durable(check.rule()) => {
                durable.change_credits(&self.shared.store, &check, change, id)
            }
            _ => self.shared.store.credits(&check, change),
        };
        #[cfg(feature = "metrics")]
        if change != CreditChange::Query {
            let (rule, is_grant) = (rule.clone(), matches!(change, CreditChange::Grant { .. }));
            answer.then(move |answer| {
                let word = if is_grant { "granted" } else { "revoked" };
                let changed = answer.as_ref().map_or(0, |balance| balance.changed);
                credits_of(&rule, word).increment(changed);
            });
        }
        Ok(answer)
    }

    /// Forgets what `key` has used of the rule with this name: a client starts anew. The key is one of code; that of a
    /// request in a layer holds its kind as well, and is made by the layer's `key_of`.
    ///
    /// The answer says whether there was anything to forget: `false` is mostly another key than the client's. It is also
    /// `true` where a remote store still keeps a state that has just expired.
    ///
    /// ```
    /// use tollgate_core::{Key, Limiter, MINUTE, MemoryStore, Quota, Rule};
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("log-in", Quota::sliding_log(5, MINUTE))])?;
    /// limiter.try_acquire("log-in", &Key::of(["ada"]))?;
    /// let reset = |who: &str| limiter.reset("log-in", &Key::of([who]));
    /// assert_eq!(reset("ada")?.ready().transpose()?, Some(true));
    /// assert_eq!(reset("ada")?.ready().transpose()?, Some(false));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Accuracy
    ///
    /// Units that other processes hold on [lease](crate::Consistency::Leased) may still be spent. They count as used until they are
    /// returned or expire, so the client has less than the whole limit at first. The leases of this process are returned with the
    /// reset.
    ///
    /// A request that runs meanwhile, and gives units back after the reset, gives back those that others have taken since: up to as many
    /// more pass as were forgotten. Only a [log](crate::algorithm::sliding_log) knows its units.
    ///
    /// # Errors
    ///
    /// There is no rule of this name. The answer may be an error of the store: one that finds the state only together with
    /// that of another rule says so, and takes [`reset_all`](Self::reset_all).
    #[doc(alias = "unban")]
    pub fn reset(&self, rule: &str, key: &Key) -> StoreAnswer<bool> {
        let check = self.check(rule, key)?;
        Ok(self.reset_all(&[check.with_cost(1)]))
    }

    /// Forgets what the keys of these checks have used, and says whether there was anything to forget. The checks are those
    /// of one request; one with a cost of 0 is not reset, and only tells where the states of the others lie.
    ///
    /// Where a store keeps the states of a request with the client of one of its rules, that rule has to be among them.
    ///
    /// # Accuracy
    ///
    /// As for [`reset`](Self::reset).
    ///
    /// # Errors
    ///
    /// The answer may be an error of the store, or say that a check was made by another limiter; then nothing was reset.
    pub fn reset_all(&self, checks: &[Check]) -> Step<Result<bool, StoreError>> {
        if !checks.iter().all(|check| self.shared.knows(check)) {
            return Step::Ready(Err(StoreError::new(
                StoreErrorKind::Misconfigured,
                "a check was made by another limiter, with other rules; make it with the limiter that resets it",
            )));
        }
        if let Some(fallback) = &self.shared.fallback {
            for check in checks.iter().filter(|check| check.cost() > 0) {
                fallback.reset(check);
            }
        }
        self.shared.store.reset(checks)
    }

    /// What its [durable](Rule::durable) rules have to tell a ledger. Those of limiters that replace it tell the same one.
    #[doc(hidden)]
    #[must_use]
    pub fn journal(&self) -> &Arc<Journal> {
        &self.shared.journal
    }

    /// The rules of whose units the journal hears.
    pub(crate) fn durable_rules(&self) -> Option<&Arc<DurableRules>> {
        self.shared.noted.as_ref()
    }

    pub(crate) fn wait_queues(&self) -> &WaitQueues {
        &self.shared.wait_queues
    }
}

/// What a store answers to a command outside of a decision, or why it is not asked.
type StoreAnswer<T> = Result<Step<Result<T, StoreError>>, RuleError>;

/// What stands in for a store that can fail: with what the fallback of `before` has counted, or else for so many instances.
fn fallback(
    store: &dyn RuleStore,
    before: Option<&Limiter>,
    instances: NonZeroU32,
) -> Result<Option<Fallback>, RuleError> {
    let before = before.and_then(|before| before.shared.fallback.as_deref());
    let made = || Fallback::new(store.rules(), before, instances, store.clock());
    store.can_fail().then(made).transpose()
}

/// A partial grant.
#[must_use = "the units were taken"]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Grant {
    /// Units taken; 0 if not even one fits.
    pub units: u64,
    /// The checks as they were decided, for a [ticket](Limiter::ticket): with these units, or the one that does not fit.
    pub checks: Checks,
    /// The decision: of the take, or of the denial if nothing was taken.
    pub decision: Decision,
}

#[cfg(test)]
mod tests;
