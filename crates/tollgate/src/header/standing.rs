//! What a client is told of one rule.

use std::{cmp::Reverse, time::Duration};

use smallvec::SmallVec;
use tollgate_core::{Outcome, Retry, RuleSet, Verdict};

pub(super) type Standings = SmallVec<[Standing; 4]>;

/// How a client stands with one rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) rule: usize,
    pub(super) plan: usize,
    pub(super) denied: bool,
    pub(super) limit: u64,
    pub(super) remaining: u64,
    /// How long `remaining` is the word: the draft's effective window.
    pub(super) lasts: Duration,
}

impl Standing {
    /// `None` where there is nothing to tell: the rule is not enforced, was not counted, or has no limit. Or it is not known
    /// what is left.
    #[inline]
    fn of(verdict: &Verdict, rules: &RuleSet) -> Option<Self> {
        if !verdict.has_numbers() || !verdict.knows_remaining() || !rules.enforces(verdict.rule()) {
            return None;
        }
        let quota = rules.rules().get(verdict.rule())?.quota_of(verdict.plan());
        if quota.is_unlimited() {
            return None;
        }
        Some(Self {
            rule: verdict.rule(),
            plan: verdict.plan(),
            denied: verdict.outcome() == Outcome::Deny,
            limit: quota.limit(),
            remaining: verdict.remaining(),
            lasts: lasts(verdict),
        })
    }

    #[inline]
    pub(super) fn all(verdicts: &[Verdict], rules: &RuleSet) -> impl Iterator<Item = Self> + Clone {
        verdicts
            .iter()
            .filter_map(|verdict| Self::of(verdict, rules))
    }

    /// The one that speaks where a field has room for one: a denial first, then the fewest units left, then the longest
    /// to wait.
    pub(super) fn closest_to_its_limit(standings: &[Self]) -> Option<&Self> {
        standings.iter().min_by_key(|standing| {
            (
                !standing.denied,
                standing.remaining,
                Reverse(standing.lasts),
            )
        })
    }
}

/// Until the same request passes, after a denial and where less is left than it cost: a client that has nothing left waits
/// for as long. So `Retry-After` is never earlier, even where a dear request was denied and cheaper ones would still pass.
/// Everything else lasts until the quota is whole again.
fn lasts(verdict: &Verdict) -> Duration {
    match verdict.retry() {
        Retry::After(delay) => delay,
        Retry::Now | Retry::Never | Retry::Unknown => verdict.reset_after(),
    }
}
