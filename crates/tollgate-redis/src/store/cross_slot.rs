//! Requests whose states lie in several slots of a cluster: decided one slot after the other.

use std::{collections::VecDeque, sync::Arc};

use smallvec::{SmallVec, smallvec};
use tokio::time::Instant;
use tollgate_core::{
    Check, Checks, Decision, Fingerprint, Outcome, Tick, Verdict,
    store::{Receipt, Settlement},
};

use crate::{
    encode::Encoder,
    prefilter::{
        refunds::{holding, lasts},
        split::QueryExtras,
    },
    store::inner::Inner,
};

/// Checks that are decided in one step.
pub(super) struct Group {
    /// Their places in the request.
    pub(super) places: SmallVec<[usize; 4]>,
    checks: Checks,
}

impl Group {
    pub(super) fn into_checks(self) -> Checks {
        self.checks
    }

    /// What of `asking` goes with this group.
    fn extras(&self, extras: &QueryExtras) -> QueryExtras {
        let mut of_group = QueryExtras::default();
        // A request has fewer than 65 536 checks.
        for (at, place) in (0_u16..).zip(&self.places) {
            let mut grants = extras.grants.iter();
            let grant = grants.find(|(other, _)| usize::from(*other) == *place);
            of_group.grants.extend(grant.map(|(_, query)| (at, *query)));
            if extras.uncached.contains(*place) {
                of_group.uncached.insert(usize::from(at));
            }
        }
        of_group
    }
}

/// What groups before have taken. What of it is granted goes back to this process where nobody waits any more.
struct HeldLease {
    inner: Arc<Inner>,
    holdings: Vec<Receipt>,
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        for holding in &self.holdings {
            self.inner.take_over(holding);
        }
    }
}

/// What would go with groups that are not asked yet. Nothing comes of it where they are not, or nobody waits any more.
struct NotSent {
    inner: Arc<Inner>,
    groups: VecDeque<(Group, QueryExtras)>,
}

impl Drop for NotSent {
    fn drop(&mut self) {
        for (group, extras) in &self.groups {
            for (place, query) in &extras.grants {
                if let Some(check) = group.checks.get(usize::from(*place)) {
                    self.inner.prefilter.on_not_sent(check, query.returned);
                }
            }
        }
    }
}

/// What is decided in one step each, in the order of the rules.
pub(super) fn groups(encoder: &Encoder, checks: &[Check]) -> SmallVec<[Group; 2]> {
    let mut groups: SmallVec<[(Option<Fingerprint>, Group); 2]> = SmallVec::new();
    for (place, check) in checks.iter().enumerate() {
        let slot = encoder.slot_of(checks, check);
        match groups.iter_mut().find(|(other, _)| *other == slot) {
            Some((_, group)) => {
                group.places.push(place);
                group.checks.push(*check);
            }
            None => groups.push((
                slot,
                Group {
                    places: smallvec![place],
                    checks: Checks::from_slice(&[*check]),
                },
            )),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Asks group after group. What was taken goes back when a later one is known to deny; after an answer that did not come,
/// nothing is sent again, and the rest is asked all the same, as long as there is time: the rules' answers to a store failure
/// need to know. However many groups there are, the request has one deadline.
pub(super) fn query(
    inner: Arc<Inner>,
    groups: SmallVec<[Group; 2]>,
    extras: &QueryExtras,
    takes: bool,
) -> impl Future<Output = Decision> + use<> {
    let groups = groups.into_iter().map(|group| {
        let extras = group.extras(extras);
        (group, extras)
    });
    let groups = groups.collect();
    // Not within the future: one that is dropped before it runs has asked nobody either.
    let by = Instant::now() + inner.shared.deadline;
    query_all(NotSent { inner, groups }, takes, by)
}

async fn query_all(mut on_not_sent: NotSent, takes: bool, by: Instant) -> Decision {
    let inner = Arc::clone(&on_not_sent.inner);
    let groups = on_not_sent.groups.iter();
    let count = groups.map(|(group, _)| group.places.len()).sum();
    let mut verdicts: SmallVec<[Option<(Tick, Verdict)>; 4]> = smallvec![None; count];
    let mut held = HeldLease {
        inner: Arc::clone(&inner),
        holdings: Vec::new(),
    };
    let (mut at, mut denied) = (0, false);
    while !denied && let Some((group, extras)) = on_not_sent.groups.pop_front() {
        let decision = inner.query(&group.checks, &extras, takes, Some(by)).await;
        at = at.max(decision.at());
        for (place, verdict) in group.places.iter().zip(decision.verdicts()) {
            verdicts[*place] = Some((decision.at(), *verdict));
        }
        if !takes {
            continue;
        }
        denied = decision.outcome() == Outcome::Deny;
        if !denied {
            held.holdings.extend(taken(&inner, &group, &decision));
        }
    }
    for (group, _) in &on_not_sent.groups {
        for (place, check) in group.places.iter().zip(&group.checks) {
            let not_asked = Verdict::unanswered(check.rule(), check.plan(), Outcome::NotAsked);
            verdicts[*place] = Some((at, not_asked));
        }
    }
    let holdings = std::mem::take(&mut held.holdings);
    if denied {
        for holding in &holdings {
            inner.settle(std::slice::from_ref(holding), Settlement::Cancel);
        }
    }
    // All are told with one time. A refund finds a window by that and by what is told.
    let verdicts = verdicts.into_iter().flatten();
    let verdicts = verdicts.map(|(then, verdict)| {
        let fresh_at = then.saturating_add(lasts(&verdict));
        verdict.with_reset_after(fresh_at.saturating_sub(at))
    });
    Decision::new(at, verdicts, |verdict| inner.rules.enforces(verdict.rule()))
}

/// What a group has taken.
fn taken(inner: &Inner, group: &Group, decision: &Decision) -> impl Iterator<Item = Receipt> {
    let at = decision.at();
    group
        .checks
        .iter()
        .zip(decision.verdicts())
        .filter(|(check, verdict)| {
            check.cost() > 0
                && verdict.outcome() == Outcome::Allow
                && inner.rules.enforces(verdict.rule())
        })
        .map(move |(check, verdict)| holding(check, verdict, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_with_a_check_goes_with_it_to_the_group_that_has_it() {
        let check = Check::new(0, Fingerprint::from_bits(7), 1);
        let group = Group {
            places: smallvec![1, 3, 70],
            checks: Checks::from_slice(&[check; 3]),
        };
        let query = |tracked| tollgate_prefilter::LeaseQuery {
            tracked,
            ..Default::default()
        };
        let mut extras = QueryExtras::default();
        extras
            .grants
            .extend([(0, query(10)), (3, query(13)), (70, query(80))]);
        extras.uncached.insert(0);
        extras.uncached.insert(1);
        let of_group = group.extras(&extras);
        assert_eq!(of_group.grants.as_slice(), [(1, query(13)), (2, query(80))]);
        let uncached = [0, 1, 2].map(|place| of_group.uncached.contains(place));
        // Of the 65th and those behind it nothing is kept.
        assert_eq!(uncached, [true, false, true]);
    }
}
