//! A check: one rule, one key, one cost.

use crate::{
    decision::{Decision, Outcome, Verdict},
    key::Fingerprint,
    rule::Mode,
    rule_set::RuleSet,
    variable_quota::CheckQuota,
};

/// One rule with one key and one cost. A request carries one or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    key: Fingerprint,
    cost: u64,
    rule: u16,
    plan: u16,
    /// The rule set that `rule` is an index in, or the serial number of a quota that it brings along; 0 where the check was made
    /// by hand.
    rules: u32,
}

impl Check {
    /// A check of the rule at index `rule` of the rule set, at the rule's own quota.
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
    #[inline]
    #[must_use]
    pub fn with_plan(mut self, plan: u16) -> Self {
        self.plan = plan;
        self
    }

    /// The same check at another quota of its rule: see [`Limiter::quota_for`](crate::Limiter::quota_for).
    #[inline]
    #[must_use]
    pub fn with_quota(mut self, quota: CheckQuota) -> Self {
        self.plan = quota.plan;
        if quota.serial != 0 {
            self.rules = quota.serial;
        }
        self
    }

    /// Its quota, for another check of the same rule.
    #[inline]
    #[must_use]
    pub fn quota(&self) -> CheckQuota {
        CheckQuota {
            plan: self.plan,
            serial: self.rules,
        }
    }

    /// The same check with another cost in units. 0 queries without taking.
    #[must_use]
    pub fn with_cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    pub(crate) fn with_rule(mut self, rule: u16) -> Self {
        self.rule = rule;
        self
    }

    /// The rule's index in the rule set.
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

    /// The cost in units.
    #[inline]
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.cost
    }
}

impl Check {
    /// The denial of a request that checks one rule and key under two plans. They share a state, but each has its own limit,
    /// and neither applies to the sum of their costs. `None` if no checks do; plans without a limit do not count.
    ///
    /// A store calls this before it decides or peeks, so that this mistake does not let a request pass.
    #[must_use]
    pub fn deny_two_plans(rules: &RuleSet, checks: &[Self]) -> Option<Decision> {
        let same = |one: &Self, other: &Self| one.rule == other.rule && one.key == other.key;
        let is_limited = |check: &Self| {
            let rule = rules.rules().get(usize::from(check.rule));
            rule.is_some_and(|rule| {
                *rule.mode() != Mode::Off && rule.limit_under(usize::from(check.plan)).is_some()
            })
        };
        let differs = |(index, check): (usize, &Self)| {
            let mut before = checks[..index].iter();
            before.any(|other| {
                same(other, check)
                    && other.plan != check.plan
                    && is_limited(other)
                    && is_limited(check)
            })
        };
        let mut indices = checks.iter().enumerate();
        indices.any(differs).then(|| Self::deny_mistake(checks))
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
