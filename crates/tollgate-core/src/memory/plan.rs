//! A quota made ready for a table.

use std::time::Duration;

use crate::{
    algorithm::Algorithm,
    memory::hasher::Hasher,
    quota::Quota,
    rule::{Mode, Rule},
    time::micros,
};

/// A quota made ready.
#[derive(Clone, Debug)]
pub(super) struct Plan<A> {
    pub(super) quota: A,
    /// What tells it from other quotas: a hash of its numbers, with seeds of the store. Two quotas of a table share one with a
    /// probability of one in 2^64.
    pub(super) id: u64,
    /// What denials are remembered under. A rule that blocks, or takes credits, does not learn from one that does not.
    pub(super) denial_id: u64,
    pub(super) limit: u64,
    /// The longest time that a state of the past or present takes until it is fresh.
    pub(super) longest_reset: u64,
    /// How long requests wait at most, in µs; 0 where they do not.
    pub(super) at_most: u64,
    /// The most units that may be owed.
    pub(super) debt: u64,
    /// Whether it is a threshold, which reads the states of another quota.
    pub(super) is_threshold: bool,
}

impl<A: Algorithm> Plan<A> {
    /// A quota of this rule. `None` if it is of another algorithm or not valid.
    pub(super) fn of_rule(given: &Quota, rule: &Rule, hasher: &Hasher) -> Option<Self> {
        let plan = Self::new(given, rule.at_most_wait(), rule.debt_of(), hasher)?;
        let (blocks, has_credits) = (rule.block_setting().is_some(), rule.has_credits());
        Some(Self {
            denial_id: plan.id ^ u64::from(blocks) << 1 ^ u64::from(has_credits),
            is_threshold: matches!(rule.mode(), Mode::Threshold { .. }),
            ..plan
        })
    }

    /// `wait` is how long requests wait for it at most, `debt` how many units may be owed.
    pub(super) fn new(
        given: &Quota,
        wait: Option<Duration>,
        debt: u64,
        hasher: &Hasher,
    ) -> Option<Self> {
        let quota: A = counted(given, wait, debt)?;
        let at_most = wait.filter(|_| quota.waits()).map_or(0, micros);
        // Everything taken at the start of a window.
        let mut full = A::State::default();
        quota.charge(&mut full, 0, given.limit().saturating_add(debt));
        // Slots in use count alike under any quota.
        let id = match A::HOLDS_SLOTS {
            true => 1,
            false => hasher.quota_id(given, at_most, debt),
        };
        Some(Self {
            id,
            denial_id: id,
            limit: given.limit(),
            longest_reset: quota.fresh_at(&full).saturating_add(at_most),
            quota,
            at_most,
            debt,
            is_threshold: false,
        })
    }
}

/// A quota as a rule counts it: with its wait and its debt.
pub(super) fn counted<A: Algorithm>(given: &Quota, wait: Option<Duration>, debt: u64) -> Option<A> {
    let quota = A::new(given)?;
    let quota = match wait {
        Some(at_most) => quota.waiting(at_most),
        None => quota,
    };
    Some(match debt {
        0 => quota,
        debt => quota.with_debt(debt),
    })
}
