//! Units that come back, and what is forgotten.

use smallvec::SmallVec;
use tollgate_core::{
    AlgorithmKind, Check, Decision, Fingerprint, Outcome, Quota, RuleSet, Source, Tick, Verdict,
    algorithm::{Algorithm, FixedWindow, SlidingBuckets, SlidingWindow, Taken},
    store::{Receipt, Settlement},
};
use tollgate_prefilter::ReturnedLease;

use crate::prefilter::{
    filter::Prefilter,
    split::{Part, Refunds},
    table_key::{TableKey, table_key_of},
};

impl Prefilter {
    /// Puts the decision about a part of a request together with what is held here. What is held goes back if the store
    /// has denied: here, and what was reported meanwhile as the second of what this gives.
    pub(crate) fn conclude(
        &self,
        rules: &RuleSet,
        part: &Part,
        decision: &Decision,
    ) -> (Decision, Refunds) {
        let back = match decision.outcome() {
            Outcome::Deny => self.take_back(part),
            _ => Refunds::new(),
        };
        // Nobody has said a time where the store did not answer.
        let at = match decision.at() {
            0 => part.store_at,
            at => at,
        };
        let mut verdicts: SmallVec<[(u16, Verdict); 4]> = SmallVec::new();
        verdicts.extend(part.held.iter().map(|(place, _, verdict)| {
            // Told with that time. A refund finds the window by both.
            let until = part.store_at.saturating_add(lasts(verdict));
            let verdict = match verdict.source() {
                Source::Lease => verdict.with_reset_after(until.saturating_sub(at)),
                _ => *verdict,
            };
            (*place, verdict)
        }));
        let layout = part.places.iter().copied();
        verdicts.extend(layout.zip(decision.verdicts().iter().copied()));
        verdicts.sort_unstable_by_key(|(place, _)| *place);
        let verdicts = verdicts.into_iter().map(|(_, verdict)| verdict);
        let decision = Decision::new(at, verdicts, |verdict| rules.enforces(verdict.rule()));
        (decision, back)
    }

    /// Gives back what is held of a request that is not let through. Gives what has to go back to the store.
    pub(crate) fn take_back(&self, part: &Part) -> Refunds {
        let now = self.now();
        let back = part.held.iter().filter_map(|(_, check, verdict)| {
            let holding = holding(check, verdict, part.store_at);
            let rest = self.give_back(&holding, (now, part.at), check.cost());
            (rest > 0).then(|| (self.as_counted(&holding), rest))
        });
        back.collect()
    }

    /// What the store has taken of a window that is granted, for a request that nobody waits for any more: it stays here, or gives what
    /// the store has to settle, and how.
    pub(crate) fn take_over(&self, holding: &Receipt) -> Option<(Receipt, Settlement)> {
        self.plan(&holding.check)?.windows?;
        let mut holding = *holding;
        holding.source = Source::Lease;
        let times = (self.now(), self.store_time.local(holding.taken.at));
        self.unlearn(holding.check.key());
        match self.give_back(&holding, times, holding.check.cost()) {
            0 => None,
            rest => Some((self.as_counted(&holding), Settlement::Refund(rest))),
        }
    }

    /// Gives units that were spent at `spent` back to where they came from. Gives those that have to go back to the store.
    fn give_back(&self, holding: &Receipt, (now, spent): (Tick, Tick), units: u64) -> u64 {
        let (check, taken) = (&holding.check, holding.taken);
        let slot = table_key_of(check);
        match (holding.source, &self.leases, &self.reports) {
            (Source::Lease, Some(leases), _) => {
                let Some(windows) = self.plan(check).and_then(|plan| plan.windows) else {
                    leases.give_back(slot, now, spent, units);
                    return 0;
                };
                match windows.that_weighs_until(taken.fresh_at) {
                    Some(window) if taken.fresh_at > taken.at => {
                        leases.give_back_to(slot, window, (now, spent), units)
                    }
                    // They weigh nowhere any more.
                    _ => 0,
                }
            }
            (Source::Local, _, Some(reports)) => {
                let terms = self.report_terms(slot);
                let back = terms.map_or(0, |terms| reports.give_back(slot, spent, units, terms));
                units - back
            }
            _ => units,
        }
    }

    /// Settles what was held here. Gives what the store has to settle, and how.
    pub(crate) fn settle(
        &self,
        holding: &Receipt,
        how: Settlement,
    ) -> Option<(Receipt, Settlement)> {
        let check = &holding.check;
        let now = self.now();
        let back = match how {
            Settlement::Refund(units) => units.min(check.cost()),
            Settlement::Cancel => check.cost(),
            Settlement::Charge(units) => {
                // What this process holds is as good as what the store has.
                let more = check.with_cost(units);
                return match self.hold(&more, now) {
                    Ok(_) => None,
                    Err(_) => Some((*holding, how)),
                };
            }
            _ => return None,
        };
        self.unlearn(check.key());
        if !matches!(holding.source, Source::Lease | Source::Local) {
            // As it is: a ticket is settled as a whole where one of its rules says where the states of the others are.
            return Some((*holding, how));
        }
        let times = (now, self.store_time.local(holding.taken.at));
        match self.give_back(holding, times, back) {
            0 => None,
            rest => Some((self.as_counted(holding), Settlement::Refund(rest))),
        }
    }

    /// What was spent here as the store has it, which has granted it, or was told of it in a report.
    fn as_counted(&self, holding: &Receipt) -> Receipt {
        let mut holding = *holding;
        if let Some(plan) = self.plan(&holding.check) {
            holding.taken.fresh_at = match plan.windows {
                Some(windows) => {
                    let window = windows.that_weighs_until(holding.taken.fresh_at);
                    window.map_or(0, |window| windows.weigh_until(window))
                }
                None => weighs_until(&plan.quota, &holding),
            };
        }
        holding
    }

    /// Forgets what is known of a key: what it has used is about to be forgotten. Gives the leases that are to be handed back
    /// with that, and whether units were counted here.
    pub(crate) fn forget(
        &self,
        rule: u16,
        key: Fingerprint,
    ) -> (SmallVec<[(TableKey, ReturnedLease); 1]>, bool) {
        self.unlearn(key);
        let (mut grants, mut was_counted) = (SmallVec::new(), false);
        // A rule has fewer than 65 535 plans.
        for plan in 0..self.plans.count(rule) as u16 {
            let slot = TableKey::new(rule, plan, key);
            if let Some(leases) = &self.leases {
                let grant = leases.forget(slot, self.now());
                grants.extend(grant.map(|returned| (slot, returned)));
            }
            if let Some(reports) = &self.reports {
                was_counted |= reports.unsent(slot) > 0;
                reports.forget(slot, self.now());
            }
        }
        (grants, was_counted)
    }

    /// Forgets what denials have taught of a key: more of it may be left by now.
    pub(crate) fn unlearn(&self, key: Fingerprint) {
        if let Some(deny) = &self.deny {
            deny.forget(key);
        }
    }
}

/// What was taken for a check at a time by the store's clock.
pub(crate) fn holding(check: &Check, verdict: &Verdict, at: Tick) -> Receipt {
    Receipt {
        check: *check,
        taken: Taken {
            at,
            fresh_at: at.saturating_add(lasts(verdict)),
        },
        source: verdict.source(),
    }
}

/// For how many µs what a verdict says lasts.
pub(crate) fn lasts(verdict: &Verdict) -> Tick {
    u64::try_from(verdict.reset_after().as_micros()).unwrap_or(u64::MAX)
}

/// Until when units weigh that were counted here and reported: what was told with them is what the store said earlier, and
/// it gives nothing back to a window whose end is another.
fn weighs_until(quota: &Quota, holding: &Receipt) -> Tick {
    let taken = holding.taken;
    let until = match quota.algorithm() {
        AlgorithmKind::FixedWindow => fresh_at::<FixedWindow>(quota, taken.at),
        AlgorithmKind::SlidingWindow => fresh_at::<SlidingWindow>(quota, taken.at),
        AlgorithmKind::SlidingBuckets => fresh_at::<SlidingBuckets>(quota, taken.at),
        _ => None,
    };
    until.unwrap_or(taken.fresh_at)
}

/// When a state is fresh of which a unit was taken at `at`.
fn fresh_at<A: Algorithm>(quota: &Quota, at: Tick) -> Option<Tick> {
    let quota = A::new(quota)?;
    let mut state = A::State::default();
    quota.take(&mut state, at, 1);
    Some(quota.fresh_at(&state))
}
