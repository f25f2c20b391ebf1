//! A check: one rule, one key, one cost.

use std::num::NonZeroU64;

use smallvec::SmallVec;

use crate::{
    check_policy::CheckPolicy, key::Fingerprint, quota::MAX_UNITS, variable_quota::CheckQuota,
};

/// One rule with one key and one cost. A request carries one or several.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Check {
    /// The bits of the fingerprint, its lower half first: as one number they would be aligned as one.
    key: [u64; 2],
    /// The cost, and above its bits the policy.
    cost_and_policy: u64,
    /// What stands for the id of the request, whatever the cost; 0 without one.
    pub(crate) id: u64,
    rule: u16,
    plan: u16,
    /// The rule set that `rule` is an index in, or the serial number of a quota that it brings along; 0 where the check was made
    /// by hand.
    rules: u32,
}

/// The checks of a request, owned: up to two without an allocation. Copy them by `from_slice`: a clone of the list copies them one by
/// one.
///
/// ```
/// use tollgate_core::{Check, store::{Checks, Fingerprint}};
///
/// let mut checks = Checks::new();
/// checks.push(Check::new(0, Fingerprint::from_bits(7), 1));
/// assert_eq!(checks.len(), 1);
/// assert_eq!(Checks::from_slice(&checks), checks);
/// ```
pub type Checks = SmallVec<[Check; 2]>;

/// A cost has this many bits. What is above is as little ever admitted: it is above any limit.
const COST_BITS: u32 = 56;
const MAX_COST: u64 = (1 << COST_BITS) - 1;
const _: () = assert!(MAX_COST > MAX_UNITS);

impl Check {
    /// A check of the rule at index `rule` of the rule set, at the rule's own quota. A cost of 2^56 units or more counts as one
    /// less than that: either is above any limit.
    #[inline]
    #[must_use]
    pub fn new(rule: u16, key: Fingerprint, cost: u64) -> Self {
        let check = Self {
            key: [0; 2],
            cost_and_policy: limited(cost),
            id: 0,
            rule,
            plan: 0,
            rules: 0,
        };
        check.with_key(key)
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

    /// The same check of another key.
    #[inline]
    pub(crate) fn with_key(mut self, key: Fingerprint) -> Self {
        let bits = key.bits();
        self.key = [bits as u64, (bits >> 64) as u64];
        self
    }

    /// The same check at the quota of plan number `plan`. One that has brought a [quota](Self::with_quota) along gets another one by that.
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
    pub fn quota(&self) -> CheckQuota {
        CheckQuota {
            plan: self.plan,
            serial: self.rules,
        }
    }

    /// The same check with another cost in units. 0 queries without taking.
    #[must_use]
    pub fn with_cost(mut self, cost: u64) -> Self {
        self.cost_and_policy = self.cost_and_policy & !MAX_COST | limited(cost);
        self
    }

    /// The same check with another policy in place of the rule's consistency and answer to a store failure.
    #[inline]
    #[must_use]
    pub fn with_policy(mut self, policy: CheckPolicy) -> Self {
        let policy = u64::from(policy.bits) << COST_BITS;
        self.cost_and_policy = self.cost_and_policy & MAX_COST | policy;
        self
    }

    /// The same check of a request with an id, which the store decides: see [`Limiter::with_id`](crate::Limiter::with_id), which makes
    /// the fingerprint.
    #[must_use]
    pub fn with_id(mut self, id: Fingerprint) -> Self {
        self.id = id.bits() as u64;
        self.with_policy(self.policy().exact())
    }

    pub(crate) fn without_id(mut self) -> Self {
        self.id = 0;
        self
    }

    /// Whether its request has an id.
    #[inline]
    #[must_use]
    pub fn has_id(&self) -> bool {
        self.id != 0
    }

    /// What stands for the id of its request and the cost: a request with another cost is no repeat.
    #[must_use]
    pub fn id(&self) -> Option<NonZeroU64> {
        // An odd factor, so that no two costs are alike.
        let cost = self.cost().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        NonZeroU64::new(self.id.wrapping_add(cost)).filter(|_| self.has_id())
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
    pub fn key(&self) -> Fingerprint {
        let [low, high] = self.key;
        Fingerprint::from_bits(u128::from(low) | u128::from(high) << 64)
    }

    /// The cost in units.
    #[inline]
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.cost_and_policy & MAX_COST
    }

    /// How it differs from its rule.
    #[inline]
    pub fn policy(&self) -> CheckPolicy {
        let bits = (self.cost_and_policy >> COST_BITS) as u8;
        CheckPolicy { bits }
    }
}

// Without the key and the id.
crate::debug_fields!(Check, it =>
    rule: it.rule, plan: it.plan, cost: it.cost(), policy: it.policy()
);

#[inline]
fn limited(cost: u64) -> u64 {
    cost.min(MAX_COST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check_policy::OnStoreError;

    #[test]
    fn a_check_keeps_its_policy_and_its_cost_apart() {
        use OnStoreError::{Allow, Degraded, Deny};
        for answer in [None, Some(Allow), Some(Deny), Some(Degraded)] {
            for is_exact in [false, true] {
                let mut policy = CheckPolicy::default();
                if let Some(answer) = answer {
                    policy = policy.on_store_error(answer).expect("it does not count");
                }
                if is_exact {
                    policy = policy.exact();
                }
                for cost in [0, 1, MAX_UNITS, MAX_COST] {
                    let check = Check::new(3, Fingerprint::from_bits(7), 5)
                        .with_cost(cost)
                        .with_policy(policy)
                        .with_rule(4);
                    assert_eq!((check.cost(), check.policy()), (cost, policy));
                    assert_eq!(check.policy().is_exact(), is_exact);
                    assert_eq!(check.policy().store_error_answer(), answer);
                    // The last answer counts.
                    let denies = policy.on_store_error(Deny).expect("it does not count");
                    assert_eq!(denies.store_error_answer(), Some(Deny));
                    assert_eq!(denies.is_exact(), is_exact);
                    let again = check.with_policy(policy).with_cost(9).with_cost(cost);
                    assert_eq!(again, check);
                }
            }
        }
    }

    #[test]
    fn a_cost_that_has_no_place_stays_above_any_limit_and_is_no_policy() {
        for check in [
            Check::new(0, Fingerprint::from_bits(7), u64::MAX),
            Check::new(0, Fingerprint::from_bits(7), 1).with_cost(u64::MAX),
        ] {
            assert!(check.cost() > MAX_UNITS);
            assert_eq!(check.policy(), CheckPolicy::default());
        }
        assert_eq!(size_of::<Check>(), 40);
    }
}
