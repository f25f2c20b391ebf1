//! A limiter whose rules change while it is in use.

use std::{num::NonZeroU32, sync::Arc};

use arc_swap::ArcSwap;

use crate::{
    decision::Decision,
    error::{RuleError, RuleErrorKind},
    key::Key,
    limiter::Limiter,
    rule::Rule,
    rule_set::{RuleChange, RuleSet},
    store::rule_store::Store,
    sync::{Mutex, lock},
};

/// A [`Limiter`] whose rules can be replaced while it is in use.
///
/// Cheap to clone; clones share everything. Each call uses one snapshot of the rules, from its first rule to its last:
/// [`replace`](Self::replace) swaps one pointer, and no call waits for it. Units that were used stay used, but
/// where the algorithm is another.
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
    store: Arc<dyn Store>,
    current: Arc<ArcSwap<Limiter>>,
    /// Held while rules are replaced, so that two replacements follow each other.
    replacing: Arc<Mutex<()>>,
}

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
            store: Arc::new(store),
            current: Arc::new(ArcSwap::from_pointee(limiter)),
            replacing: Arc::default(),
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
        let _replacing = lock(&self.replacing);
        let before = self.current.load_full();
        let rules = RuleSet::new(rules)?;
        let changes = rules.changes_from(before.rules());
        let least = NonZeroU32::MIN;
        let replacement = Replacement::prepare(&[&before], &*self.store, [rules], least)?;
        for limiter in replacement.commit() {
            self.current.store(Arc::new(limiter));
        }
        Ok(changes)
    }

    /// The limiter in force: one snapshot of the rules, for several calls that belong together, such as a check, its acquire and its
    /// [ticket](Limiter::ticket). Take it anew for each piece of work.
    #[must_use]
    pub fn limiter(&self) -> Limiter {
        Limiter::clone(&self.current.load())
    }

    /// One check of the rule with this name, where the store answers at once.
    ///
    /// # Errors
    ///
    /// As [`Limiter::try_acquire`].
    pub fn try_acquire(&self, rule: &str, key: &Key) -> Result<Decision, RuleError> {
        self.current.load().try_acquire(rule, key)
    }
}

crate::debug_fields!(LiveLimiter, it => limiter: it.current.load());

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
    /// a reload. Used units stay used, but where the algorithm is another.
    ///
    /// Either all goes well, or nothing changes. Afterwards the replaced limiters and their clones no longer hold their
    /// names. The new limiter takes over the leases of rules that have not changed; those of other rules go back. Where the
    /// replaced limiters are still asked, they decide by their own rules on the same state, and what their tickets give back is
    /// [converted](crate::algorithm::Algorithm::refund_converted): drop them soon. Make the new one before the old one is
    /// dropped; the state is then carried over.
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
