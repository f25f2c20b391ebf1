//! Rules that are ready to take the place of others.

use std::num::NonZeroU32;

use crate::{
    error::{RuleError, RuleErrorKind},
    limiter::Limiter,
    rule::Rule,
    rule_set::RuleSet,
    store::rule_store::Store,
};

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
        let mut limiters = Vec::new();
        for (index, rules) in rules.into_iter().enumerate() {
            let before = replaced.get(index).copied();
            limiters.push(Limiter::register(
                store,
                rules,
                &registered,
                instances,
                before,
            )?);
        }
        Ok(Self {
            replaced: replaced.iter().map(|old| (*old).clone()).collect(),
            limiters,
        })
    }

    /// The new rules on their store, in the order of the rule sets. They are not in force yet.
    #[must_use]
    pub fn limiters(&self) -> &[Limiter] {
        &self.limiters
    }

    /// Puts the new rules in force: used units are carried over, and the replaced
    /// limiters no longer hold their names. Those limiters may still be asked, and their tickets settled.
    #[must_use = "the rules are in use for as long as their limiters live"]
    pub fn commit(self) -> Vec<Limiter> {
        for new in &self.limiters {
            for old in &self.replaced {
                new.rule_store().carry_over(old.rules());
            }
        }
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
    /// assert!(conflict.to_string().contains("gcra(10 per 60s)"));
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
        Self::bind_replacing(replaced, &store, RuleSet::new(rules)?, NonZeroU32::MIN)
    }

    pub(crate) fn bind_replacing(
        replaced: &[&Self],
        store: &dyn Store,
        rules: RuleSet,
        instances: NonZeroU32,
    ) -> Result<Self, RuleError> {
        let replacement = Replacement::prepare(replaced, store, [rules], instances)?;
        let made = replacement.commit().into_iter().next();
        made.ok_or_else(|| RuleError::general(RuleErrorKind::RuleSet, "there is no rule set"))
    }
}
