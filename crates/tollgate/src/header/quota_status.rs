//! Numbers of a quota for a client, and a value for each quota of a rule set.

use std::{sync::OnceLock, time::Duration};

use tollgate_core::{Outcome, Retry, Rule, RuleSet, Verdict};

/// The status of one quota for a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuotaStatus {
    pub(super) rule: usize,
    pub(super) plan: usize,
    pub(super) denied: bool,
    pub(super) limit: u64,
    pub(super) remaining: u64,
    /// How long `remaining` is valid: the draft's effective window. After a denial, and if less is left than the request cost, the
    /// time until the same request passes, so that `Retry-After` is never earlier, even if cheaper requests would still pass.
    /// Otherwise the time until the quota is full.
    pub(super) lasts: Duration,
    /// Whether the units are slots: requests give them back when they end, so that no time is known.
    pub(super) is_of_slots: bool,
}

impl QuotaStatus {
    /// `None` if there is nothing to report: the rule is not enforced, was not checked or has no limit, or the remaining units are
    /// unknown.
    #[inline]
    pub(super) fn of(verdict: &Verdict, rules: &RuleSet) -> Option<Self> {
        if !verdict.knows_remaining() || !rules.enforces(verdict.rule()) {
            return None;
        }
        let rule = rules.rules().get(verdict.rule())?;
        let limit = rule.limit_under(verdict.plan())?;
        Some(Self {
            rule: verdict.rule(),
            plan: verdict.plan(),
            denied: verdict.outcome() == Outcome::Deny,
            limit,
            remaining: verdict.remaining(),
            lasts: match verdict.retry() {
                Retry::After(delay) => delay,
                _ => verdict.reset_after(),
            },
            is_of_slots: verdict.is_of_slots(),
        })
    }

    #[inline]
    pub(super) fn all(verdicts: &[Verdict], rules: &RuleSet) -> impl Iterator<Item = Self> {
        verdicts
            .iter()
            .filter_map(|verdict| Self::of(verdict, rules))
    }
}

/// A value for each quota of a rule set, by rule, then by plan: made when it is first asked for, since few rules of thousands deny.
#[derive(Debug)]
pub(crate) struct PerQuota<T>(Box<[Box<[OnceLock<T>]>]>);

impl<T> PerQuota<T> {
    pub(crate) fn new(rules: &RuleSet) -> Self {
        let of_rule = |rule: &Rule| (0..rule.quotas()).map(|_| OnceLock::new()).collect();
        Self(rules.rules().iter().map(of_rule).collect())
    }

    /// The place of the value of this rule's plan; `None` if a request has brought its quota along.
    pub(crate) fn cell(&self, rule: usize, plan: usize) -> Option<&OnceLock<T>> {
        self.0.get(rule)?.get(plan)
    }
}

/// What a rule counts, in the plural; `units` where requests differ in cost.
pub(crate) fn unit_of(rule: &Rule) -> &str {
    rule.unit_name().unwrap_or(match rule.fixed_cost() {
        1 => "requests",
        _ => "units",
    })
}
