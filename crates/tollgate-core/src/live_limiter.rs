//! A limiter whose rules change while it is in use.

use std::{num::NonZeroU32, sync::Arc};

use arc_swap::{ArcSwap, Guard};
use smallvec::SmallVec;

use crate::{
    check::Check,
    checks::Checks,
    decision::Decision,
    error::{RuleError, RuleErrorKind, TryAcquireError, UnknownName},
    key::Key,
    limiter::Limiter,
    rule::Rule,
    rule_set::{RuleChange, RuleSet},
    step::Step,
    store::rule_store::Store,
    sync::{Mutex, lock},
    variable_quota::CheckQuota,
};

/// A [`Limiter`] whose rules can be replaced while it is in use.
///
/// Cheap to clone; clones share everything. Each call uses one snapshot of the rules, from its first rule to its last:
/// [`replace`](Self::replace) swaps one pointer, and no call waits for it. Units that were used stay used.
///
/// ```
/// use tollgate_core::{Key, LiveLimiter, MINUTE, MemoryStore, Quota, Rule};
///
/// let limiter = LiveLimiter::new(MemoryStore::new(), [Rule::new("mails", Quota::gcra(1, MINUTE))])?;
/// let account = Key::of("account-7");
/// assert!(limiter.try_acquire("mails", &account)?.is_allowed());
/// assert!(!limiter.try_acquire("mails", &account)?.is_allowed());
///
/// let changes = limiter.replace([Rule::new("mails", Quota::gcra(3, MINUTE))])?;
/// assert_eq!(changes[0].to_string(), "mails: gcra 1/min → gcra 3/min, used units are kept");
/// assert!(limiter.try_acquire("mails", &account)?.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct LiveLimiter {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn Store>,
    current: ArcSwap<Snapshot>,
    /// Held while rules are replaced, so that two replacements follow each other.
    replacing: Mutex<()>,
}

struct Snapshot {
    limiter: Limiter,
    /// The rule sets in force before, the latest first: checks that were made under them are found again.
    earlier: SmallVec<[Arc<RuleSet>; EARLIER]>,
}

/// How many replacements a check outlives.
const EARLIER: usize = 4;

impl LiveLimiter {
    /// Ties rules to a store.
    ///
    /// # Errors
    ///
    /// As [`Limiter::new`].
    pub fn new(
        store: impl Store,
        rules: impl IntoIterator<Item: Into<Rule>>,
    ) -> Result<Self, RuleError> {
        Self::with_instances(store, rules, NonZeroU32::MIN)
    }

    /// The same, with the minimum number of instances of this service: see [`Limiter::shared_by`].
    ///
    /// # Errors
    ///
    /// As [`Limiter::new`].
    pub fn with_instances(
        store: impl Store,
        rules: impl IntoIterator<Item: Into<Rule>>,
        instances: NonZeroU32,
    ) -> Result<Self, RuleError> {
        let limiter = Limiter::register(&store, RuleSet::new(rules)?, &[], instances, None)?;
        Ok(Self {
            shared: Arc::new(Shared {
                store: Arc::new(store),
                current: ArcSwap::from_pointee(Snapshot {
                    limiter,
                    earlier: SmallVec::new(),
                }),
                replacing: Mutex::new(()),
            }),
        })
    }

    /// Puts other rules in force, and says what changed. Calls under way end by the rules with which they began.
    ///
    /// Either all goes well, or nothing changes.
    ///
    /// # Errors
    ///
    /// As [`Limiter::replacing`].
    pub fn replace(
        &self,
        rules: impl IntoIterator<Item: Into<Rule>>,
    ) -> Result<Vec<RuleChange>, RuleError> {
        let _replacing = lock(&self.shared.replacing);
        let before = self.shared.current.load_full();
        let rules = RuleSet::new(rules)?;
        let changes = rules.changes_from(before.limiter.rules());
        let store = &*self.shared.store;
        let replacement =
            Replacement::prepare(&[&before.limiter], store, [rules], NonZeroU32::MIN)?;
        let old = before.limiter.rule_store().rules();
        let mut earlier = SmallVec::from_iter([Arc::clone(old)]);
        earlier.extend(before.earlier.iter().take(EARLIER - 1).cloned());
        for limiter in replacement.commit() {
            let earlier = earlier.clone();
            let snapshot = Snapshot { limiter, earlier };
            self.shared.current.store(Arc::new(snapshot));
        }
        Ok(changes)
    }

    /// The limiter in force: one snapshot of the rules, for several calls that belong together, such as an acquire and its
    /// [ticket](Limiter::ticket). Take it anew for each piece of work.
    #[must_use]
    pub fn limiter(&self) -> Limiter {
        self.snapshot().limiter.clone()
    }

    fn snapshot(&self) -> Guard<Arc<Snapshot>> {
        self.shared.current.load()
    }

    /// A check of the rule with this name for `key`, at the rule's fixed cost.
    ///
    /// # Errors
    ///
    /// There is no rule of this name at present.
    pub fn check(&self, rule: &str, key: &Key) -> Result<Check, UnknownName> {
        self.snapshot().limiter.check(rule, key)
    }

    /// One check of the rule with this name, where the store answers at once.
    ///
    /// # Errors
    ///
    /// As [`Limiter::try_acquire`].
    pub fn try_acquire(&self, rule: &str, key: &Key) -> Result<Decision, TryAcquireError> {
        self.snapshot().limiter.try_acquire(rule, key)
    }

    /// Decides all checks and takes all or nothing: see [`Limiter::acquire`].
    ///
    /// A check that was made before the rules were replaced is found again by the names of its rule and plan, for up to
    /// four replacements.
    ///
    /// # Errors
    ///
    /// A check whose rule or plan is gone, or that was made too long ago. Nothing is taken, and no other rule is asked.
    pub fn acquire(&self, checks: &[Check]) -> Result<Step<Decision>, UnknownName> {
        let snapshot = self.snapshot();
        if checks.iter().all(|check| snapshot.limiter.has_made(check)) {
            return Ok(snapshot.limiter.acquire(checks));
        }
        let checks = checks.iter().map(|check| snapshot.found_again(check));
        let checks = checks.collect::<Result<Checks, UnknownName>>()?;
        Ok(snapshot.limiter.acquire(&checks))
    }
}

impl Snapshot {
    /// A check that was made under earlier rules, as one of these.
    fn found_again(&self, check: &Check) -> Result<Check, UnknownName> {
        if self.limiter.has_made(check) {
            return Ok(*check);
        }
        let brings_quota = |rules: &RuleSet| {
            let rule = rules.given().get(usize::from(check.rule()));
            rule.is_some_and(|rule| rule.has_given_out(check.quota()))
        };
        let made_under = |rules: &&Arc<RuleSet>| {
            check.is_of_rules(rules.version() as u32) || brings_quota(rules)
        };
        let Some(before) = self.earlier.iter().find(made_under) else {
            return Err(UnknownName::of_replaced(format!(
                "the check was made by another limiter, or under rules that were replaced more than {EARLIER} times since; \
                 make it anew"
            )));
        };
        let known = || self.limiter.rules().given().iter().map(Rule::name);
        let unknown = |name: &str| UnknownName::new("rule", name, known());
        let Some(rule) = before.given().get(usize::from(check.rule())) else {
            return Err(unknown("?"));
        };
        let index = self.limiter.rules().given_position(rule.name());
        let index = index.ok_or_else(|| unknown(rule.name()))?;
        let now = &self.limiter.rules().given()[index];
        let plan = usize::from(check.plan());
        let quota = match rule.plan_name(plan) {
            None if plan < rule.quotas() => CheckQuota::of_plan(0),
            None => now.quota_for(rule.quota_under(plan)).map_err(|refused| {
                let message =
                    format!("the check was made under rules that were replaced: {refused}");
                UnknownName::of_replaced(message)
            })?,
            Some(name) => now
                .plan_number(name)
                // A rule has fewer than 65 535 plans.
                .map(|plan| CheckQuota::of_plan(plan as u16))
                .ok_or_else(|| UnknownName::new("plan", name, now.plan_names()))?,
        };
        // A rule set has fewer than 65 536 rules.
        Ok(self.limiter.adopt(check, index as u16, quota))
    }
}

crate::debug_fields!(LiveLimiter, it => limiter: it.snapshot().limiter);

// Rules that are ready to take the place of others.

/// Rules that are bound to their store and ready to take the place of others, all at once.
///
/// Until it is [committed](Self::commit), the rules in force stay in force. Dropping it undoes all.
#[must_use = "nothing is replaced before `commit`"]
#[derive(Debug)]
pub struct Replacement {
    replaced: Vec<Limiter>,
    limiters: Vec<Limiter>,
}

impl Replacement {
    /// Binds rule sets to a store in the place of those of other limiters. The rule set at an index replaces the limiter at the
    /// same index, and takes over its number of instances and what it has counted while the store failed. A rule set without
    /// such a limiter starts with `instances`. A limiter without such a rule set only gives up its names.
    ///
    /// # Errors
    ///
    /// As [`Limiter::new`]; and among the replaced, a limiter of another store, or one without a registration.
    pub fn prepare(
        replaced: &[&Limiter],
        store: &dyn Store,
        rules: impl IntoIterator<Item = RuleSet>,
        instances: NonZeroU32,
    ) -> Result<Self, RuleError> {
        let registered = replaced.iter().map(|old| old.registration());
        let registered: Option<Vec<_>> = registered.collect();
        let registered = registered.ok_or_else(|| {
            RuleError::general(
                RuleErrorKind::Conflict,
                "a limiter without a registration has no names that could be replaced; take the layer's own",
            )
        })?;
        let limiters = rules.into_iter().enumerate().map(|(index, rules)| {
            let before = replaced.get(index).copied();
            Limiter::register(store, rules, &registered, instances, before)
        });
        Ok(Self {
            limiters: limiters.collect::<Result<_, _>>()?,
            replaced: replaced.iter().map(|old| (*old).clone()).collect(),
        })
    }

    /// The new rules on their store, in the order of the rule sets. They are not in force yet.
    #[must_use]
    pub fn limiters(&self) -> &[Limiter] {
        &self.limiters
    }

    /// Puts the new rules in force: the replaced limiters no longer hold their names. Those limiters may still be asked, and their
    /// tickets settled.
    #[must_use = "the rules are in use for as long as their limiters live"]
    pub fn commit(self) -> Vec<Limiter> {
        for old in &self.replaced {
            old.retire();
        }
        self.limiters
    }
}

impl Limiter {
    /// Ties rules to a store in the place of those of other limiters, which may have other quotas under the same names: for
    /// a reload. Used units stay used.
    ///
    /// Either all goes well, or nothing changes. Afterwards the replaced limiters and their clones no longer hold their
    /// names. The new limiter takes over the leases of rules that have not changed; those of other rules go back. Where the
    /// replaced limiters are still asked, they decide by their own rules on the same state, and what their tickets give back is
    /// [converted](crate::algorithm::Algorithm::refund_converted): drop them soon. Make the new one before the old one is
    /// dropped; the state is then carried over whatever happens.
    ///
    /// ```
    /// use tollgate_core::{Key, Limiter, MINUTE, MemoryStore, Quota, Rule};
    ///
    /// let store = MemoryStore::new();
    /// let rule = |limit| Rule::new("api", Quota::gcra(limit, MINUTE));
    /// let old = Limiter::new(store.clone(), [rule(10)])?;
    /// assert!(old.try_acquire("api", &Key::shared())?.is_allowed());
    ///
    /// let conflict = Limiter::new(store.clone(), [rule(20)]).unwrap_err();
    /// assert!(conflict.to_string().contains("gcra 10/min"));
    ///
    /// let new = Limiter::replacing(&[&old], store, [rule(20)])?;
    /// assert_eq!(new.try_acquire("api", &Key::shared())?.verdicts()[0].remaining(), 20 - 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); and a limiter of another store among the replaced.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a store is a handle, and a call with a new one reads well"
    )]
    pub fn replacing(
        replaced: &[&Self],
        store: impl Store,
        rules: impl IntoIterator<Item: Into<Rule>>,
    ) -> Result<Self, RuleError> {
        let rules = [RuleSet::new(rules)?];
        let replacement = Replacement::prepare(replaced, &store, rules, NonZeroU32::MIN)?;
        let made = replacement.commit().into_iter().next();
        made.ok_or_else(|| RuleError::general(RuleErrorKind::RuleSet, "there is no rule set"))
    }
}
