//! A value per quota of a rule set.

use std::sync::Arc;

use tollgate_core::{Quota, Rule, RuleSet};

use crate::per_rule::PerRule;

/// A value for each quota of a rule set: by rule, then by plan.
#[derive(Debug)]
pub(crate) struct PerQuota<T>(PerRule<Arc<[T]>>);

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
        let unchanged = |index: usize| rules.unchanged_in(index, before?.0);
        let of_rule = |index: usize| {
            let kept = unchanged(index).and_then(|there| before?.1.0.get(there));
            kept.map_or_else(|| make(&rules.rules()[index]), Arc::clone)
        };
        Self(PerRule::new(
            rules.rules().len(),
            before.map(|(_, prepared)| &prepared.0),
            |index| unchanged(index) == Some(index),
            of_rule,
        ))
    }

    /// The value of this rule's plan; `None` if a request has brought its quota along.
    pub(crate) fn find(&self, rule: usize, plan: usize) -> Option<&T> {
        self.0.get(rule)?.get(plan)
    }
}
