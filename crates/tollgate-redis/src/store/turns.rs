//! Requests whose states lie in several slots of a cluster: decided one slot after the other.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use tollgate_core::{
    Check, Checks, Decision, Fingerprint, Holding, Outcome, Settlement, Source, Verdict,
    algorithm::Taken,
};

use crate::{encode::Encoder, prefilter::filter::Asking, store::inner::Inner};

/// Checks that are decided in one step.
pub(super) struct Group {
    /// Their places in the request.
    pub(super) places: SmallVec<[usize; 4]>,
    checks: Checks,
}

impl Group {
    /// What of `asking` goes with this group.
    fn asking(&self, asking: &Asking) -> Asking {
        let at = |place: u16| {
            let mut places = self.places.iter();
            places.position(|other| *other == usize::from(place))
        };
        let of_group = |(place, ask): &(u16, _)| {
            // A request has fewer than 65 536 checks.
            Some((u16::try_from(at(*place)?).ok()?, *ask))
        };
        asking.iter().filter_map(of_group).collect()
    }
}

/// Checks beside which something was to be said, of groups that have not been asked. Where they never are, because an
/// earlier one denied or nobody waits any more, nothing came of it: otherwise no lot would be asked for again.
struct Unsaid {
    inner: Arc<Inner>,
    checks: Checks,
}

impl Unsaid {
    fn new(inner: &Arc<Inner>, groups: &[Group], asking: &Asking) -> Self {
        let of_group = |group: &Group| -> Checks {
            let asking = group.asking(asking);
            let places = asking.iter().map(|(place, _)| usize::from(*place));
            places
                .filter_map(|place| group.checks.get(place).copied())
                .collect()
        };
        Self {
            inner: Arc::clone(inner),
            checks: groups.iter().flat_map(of_group).collect(),
        }
    }

    /// The group is asked now.
    fn says(&mut self, group: &Group) {
        self.checks.retain(|check| !group.checks.contains(check));
    }
}

impl Drop for Unsaid {
    fn drop(&mut self) {
        for check in &self.checks {
            self.inner.prefilter.answered(check, (0, 0), None);
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
/// nothing is sent again, and the rest is asked all the same: the rules' answers to a store failure need to know.
pub(super) fn ask(
    inner: Arc<Inner>,
    groups: SmallVec<[Group; 2]>,
    asking: Asking,
    takes: bool,
) -> impl Future<Output = Decision> {
    let unsaid = Unsaid::new(&inner, &groups, &asking);
    ask_in_turn(inner, groups, asking, takes, unsaid)
}

async fn ask_in_turn(
    inner: Arc<Inner>,
    groups: SmallVec<[Group; 2]>,
    asking: Asking,
    takes: bool,
    mut unsaid: Unsaid,
) -> Decision {
    let count = groups.iter().map(|group| group.places.len()).sum();
    let mut verdicts: SmallVec<[Option<Verdict>; 4]> = smallvec![None; count];
    let (mut held, mut at, mut denied): (Vec<Holding>, _, _) = (Vec::new(), 0, false);
    for group in &groups {
        if denied {
            for (place, check) in group.places.iter().zip(&group.checks) {
                let not_asked = Verdict::unanswered(check.rule(), check.plan(), Outcome::NotAsked);
                verdicts[*place] = Some(not_asked);
            }
            continue;
        }
        unsaid.says(group);
        let decision = inner
            .ask(&group.checks, &group.asking(&asking), takes)
            .await;
        at = at.max(decision.at());
        for (place, verdict) in group.places.iter().zip(decision.verdicts()) {
            verdicts[*place] = Some(*verdict);
        }
        if !takes {
            continue;
        }
        denied = decision.outcome() == Outcome::Deny;
        if !denied {
            held.extend(taken(&inner, group, &decision));
        }
    }
    if denied && !held.is_empty() {
        for holding in &held {
            inner.settle(std::slice::from_ref(holding), Settlement::Cancel);
        }
    }
    Decision::new(at, verdicts.into_iter().flatten(), |verdict| {
        inner.rules.enforces(verdict.rule())
    })
}

/// What a group has taken.
fn taken(inner: &Inner, group: &Group, decision: &Decision) -> impl Iterator<Item = Holding> {
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
        .map(move |(check, verdict)| {
            let lasts = u64::try_from(verdict.reset_after().as_micros()).unwrap_or(u64::MAX);
            Holding {
                check: *check,
                taken: Taken {
                    at,
                    fresh_at: at.saturating_add(lasts),
                },
                source: Source::Store,
            }
        })
}
