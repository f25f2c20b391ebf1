//! A value per quota of a rule set.

use std::sync::OnceLock;

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

impl<T> PerQuota<OnceLock<T>> {
    /// Values that are made when they are first asked for: few rules of thousands deny.
    pub(crate) fn on_demand(rules: &RuleSet) -> Self {
        Self::new(rules, |_, _| OnceLock::new())
    }

    /// The value of this rule's plan, of the rules that these were made for; `None` if a request has brought its quota along.
    pub(crate) fn find_or_make(
        &self,
        rules: &RuleSet,
        rule: usize,
        plan: usize,
        make: impl FnOnce(&Rule, &Quota) -> T,
    ) -> Option<&T> {
        let value = self.find(rule, plan)?;
        let rule = rules.rules().get(rule)?;
        Some(value.get_or_init(|| make(rule, rule.quota_of(plan))))
    }
}
