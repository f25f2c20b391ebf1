//! What is counted of a rule, added up.

use tollgate::observe::RuleCounts;

/// Checks of a rule, by what became of them. An array, because it is added and subtracted as a whole.
pub(crate) type Tally = [u64; 8];

pub(crate) const ALLOWED: usize = 0;
/// By the rule's numbers.
pub(crate) const DENIED: usize = 1;
/// By a block.
pub(crate) const BLOCKED: usize = 2;
/// Let through because the store failed.
pub(crate) const DEGRADED: usize = 3;
/// Allowed here, denied by another rule.
pub(crate) const WITHHELD: usize = 4;
pub(crate) const SHADOW_ALLOWED: usize = 5;
pub(crate) const SHADOW_DENIED: usize = 6;
/// Decided in this process because the store failed; counted among the others as well.
pub(crate) const FALLBACK: usize = 7;

pub(crate) fn tally(counts: &RuleCounts) -> Tally {
    let mut sum = Tally::default();
    for count in &counts.requests {
        let kind = match (count.decision, count.reason) {
            ("allowed" | "repeated", _) => ALLOWED,
            ("denied", "blocked") => BLOCKED,
            ("denied", _) => DENIED,
            ("degraded", _) => DEGRADED,
            ("withheld", _) => WITHHELD,
            ("shadow_allowed", _) => SHADOW_ALLOWED,
            ("shadow_denied", _) => SHADOW_DENIED,
            _ => continue,
        };
        sum[kind] += count.requests;
        if count.source == "fallback" || count.reason == "store_failed" {
            sum[FALLBACK] += count.requests;
        }
    }
    sum
}

pub(crate) fn add(sum: &mut Tally, more: &Tally) {
    sum.iter_mut()
        .zip(more)
        .for_each(|(sum, more)| *sum += more);
}

/// What was decided by the rule itself, and how much of it was denied.
pub(crate) fn share_denied(tally: &Tally) -> (u64, u64) {
    let denied = tally[DENIED] + tally[BLOCKED];
    (
        denied,
        denied + tally[ALLOWED] + tally[DEGRADED] + tally[WITHHELD],
    )
}

/// The same of a shadow.
pub(crate) fn share_shadowed(tally: &Tally) -> (u64, u64) {
    (
        tally[SHADOW_DENIED],
        tally[SHADOW_DENIED] + tally[SHADOW_ALLOWED],
    )
}
