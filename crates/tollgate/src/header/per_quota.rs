//! A value per quota of a rule set.

use tollgate_core::{Quota, Rule, RuleSet};

/// A value for each quota of a rule set: by rule, then by plan.
#[derive(Debug)]
pub(crate) struct PerQuota<T>(Box<[Box<[T]>]>);

impl<T> PerQuota<T> {
    pub(crate) fn new(rules: &RuleSet, make: impl Fn(&Rule, &Quota) -> T) -> Self {
        let of_rule = |rule: &Rule| {
            let quotas = (0..rule.quotas()).map(|plan| rule.quota_of(plan));
            quotas.map(|quota| make(rule, quota)).collect()
        };
        Self(rules.rules().iter().map(of_rule).collect())
    }

    /// The value of this rule's plan; `None` if a request has brought its quota along.
    pub(crate) fn find(&self, rule: usize, plan: usize) -> Option<&T> {
        self.0.get(rule)?.get(plan)
    }
}
