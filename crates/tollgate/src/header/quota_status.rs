//! The status of one quota for a client.

use std::{cmp::Reverse, time::Duration};

use smallvec::SmallVec;
use tollgate_core::{Outcome, Retry, RuleSet, Verdict};

pub(super) type Standings = SmallVec<[QuotaStatus; 4]>;

/// The status of one quota for a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuotaStatus {
    pub(super) rule: usize,
    pub(super) plan: usize,
    pub(super) denied: bool,
    pub(super) limit: u64,
    pub(super) remaining: u64,
    /// How long `remaining` is valid: the draft's effective window.
    pub(super) lasts: Duration,
    /// Whether the units are slots: requests give them back when they end, so that no time is known.
    pub(super) is_of_slots: bool,
}

impl QuotaStatus {
    /// `None` if there is nothing to report: the rule is not enforced, was not checked or has no limit, or the remaining units are
    /// unknown.
    #[inline]
    pub(super) fn of(verdict: &Verdict, rules: &RuleSet) -> Option<Self> {
        if !verdict.has_numbers() || !verdict.knows_remaining() || !rules.enforces(verdict.rule()) {
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
            lasts: lasts(verdict),
            is_of_slots: verdict.is_of_slots(),
        })
    }

    #[inline]
    pub(super) fn all(verdicts: &[Verdict], rules: &RuleSet) -> impl Iterator<Item = Self> {
        verdicts
            .iter()
            .filter_map(|verdict| Self::of(verdict, rules))
    }

    /// The one for fields that report one rule: a denial first, then the fewest units left, then the longest reset. Such fields
    /// need a time.
    pub(super) fn closest_to_its_limit(statuses: &[Self]) -> Option<&Self> {
        statuses
            .iter()
            .min_by_key(|status| (!status.denied, status.remaining, Reverse(status.lasts)))
    }
}

/// After a denial, and if less is left than the request cost: the time until the same request passes, so that `Retry-After` is
/// never earlier, even if cheaper requests would still pass. Otherwise: the time until the quota is full.
#[inline]
fn lasts(verdict: &Verdict) -> Duration {
    match verdict.retry() {
        Retry::After(delay) => delay,
        _ => verdict.reset_after(),
    }
}
