//! A value per quota of a rule set.

use std::sync::Arc;

use tollgate_core::{Quota, Rule, RuleSet};

/// A value for each quota of a rule set: by rule, then by plan.
#[derive(Debug)]
pub(crate) struct PerQuota<T>(Box<[Arc<[T]>]>);

/// What was prepared for the rules that others take the place of: unchanged rules keep it.
pub(crate) type Before<'a, T> = Option<(&'a RuleSet, &'a T)>;

impl<T> PerQuota<T> {
    pub(crate) fn new(
        rules: &RuleSet,
        before: Before<'_, Self>,
        make: impl Fn(&Rule, &Quota) -> T,
    ) -> Self {
        Self::with(rules, before, |rule| {
            let quotas = (0..rule.quotas()).map(|plan| rule.quota_of(plan));
            quotas.map(|quota| make(rule, quota)).collect()
        })
    }

    /// One value for each rule, as for its own quota.
    pub(crate) fn by_rule(
        rules: &RuleSet,
        before: Before<'_, Self>,
        make: impl Fn(&Rule) -> T,
    ) -> Self {
        Self::with(rules, before, |rule| Arc::new([make(rule)]))
    }

    fn with(rules: &RuleSet, before: Before<'_, Self>, make: impl Fn(&Rule) -> Arc<[T]>) -> Self {
        let of_rule = |(index, rule): (usize, &Rule)| {
            let unchanged = before.and_then(|(replaced, prepared)| {
                prepared.0.get(rules.unchanged_in(index, replaced)?)
            });
            unchanged.map_or_else(|| make(rule), Arc::clone)
        };
        Self(rules.rules().iter().enumerate().map(of_rule).collect())
    }

    /// The value of this rule's plan; `None` if a request has brought its quota along.
    pub(crate) fn find(&self, rule: usize, plan: usize) -> Option<&T> {
        self.0.get(rule)?.get(plan)
    }
}
