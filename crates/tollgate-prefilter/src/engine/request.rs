//! A request that is not decided in one step.

use std::collections::VecDeque;

use smallvec::SmallVec;
use tollgate_core::{
    Check, Checks, Decision, Outcome, Source, Tick, Verdict,
    store::{Receipt, Settlement},
};

use crate::engine::{
    bound_rules::BoundRules, follow_up::FollowUp, index_set::IndexSet, local::as_counted,
};

/// Indices of checks that are decided in one step.
pub(crate) type Step = SmallVec<[u16; 4]>;

/// A request that is not decided in one step: this process has decided some of its checks, or their states lie in several
/// places.
#[derive(Debug)]
pub(crate) struct Request {
    checks: Checks,
    /// By index: the verdicts so far, with the time by the store's clock that each counts from.
    verdicts: SmallVec<[Option<(Tick, Verdict)>; 4]>,
    /// Checks of whose keys nothing is kept.
    uncached: IndexSet,
    /// The step in flight, and those after it.
    step: Step,
    steps: VecDeque<Step>,
    /// When the request came, by this process's clock and by the store's.
    at: Tick,
    store_at: Tick,
    is_denied: bool,
    /// Checks of steps that were not denied.
    taken: Step,
    /// What earlier steps leave to send.
    pub(crate) follow_up: FollowUp,
}

impl Request {
    pub(crate) fn new(
        checks: &[Check],
        verdicts: SmallVec<[Option<(Tick, Verdict)>; 4]>,
        uncached: IndexSet,
        steps: VecDeque<Step>,
        (at, store_at): (Tick, Tick),
    ) -> Self {
        Self {
            checks: Checks::from_slice(checks),
            verdicts,
            uncached,
            step: Step::new(),
            steps,
            at,
            store_at,
            is_denied: false,
            taken: Step::new(),
            follow_up: FollowUp::default(),
        }
    }

    /// The checks of the next step, and those of them of whose keys nothing is kept. `None`: the request is decided.
    pub(crate) fn next_step(&mut self) -> Option<(Checks, IndexSet)> {
        if self.is_denied {
            return None;
        }
        self.step = self.steps.pop_front()?;
        let indices = self.step.iter().map(|index| usize::from(*index));
        let mut uncached = IndexSet::default();
        let checks = indices.enumerate().map(|(place, index)| {
            if self.uncached.contains(index) {
                uncached.insert(place);
            }
            self.checks[index]
        });
        let checks = checks.collect();
        Some((checks, uncached))
    }

    /// The store has decided the step in flight, or failed to.
    pub(crate) fn on_decision(&mut self, decision: &Decision, takes: bool) {
        for (index, verdict) in self.step.iter().zip(decision.verdicts()) {
            self.verdicts[usize::from(*index)] = Some((decision.at(), *verdict));
        }
        self.is_denied = takes && decision.outcome() == Outcome::Deny;
        // A step that denies takes nothing.
        if takes && !self.is_denied {
            self.taken.extend_from_slice(&self.step);
        }
    }

    /// The decision about the whole request.
    pub(crate) fn decision(&self, rules: &BoundRules) -> Decision {
        let times = self.verdicts.iter().flatten();
        let at_store = times.filter(|(_, verdict)| !is_local(verdict));
        let at = match at_store.map(|(at, _)| *at).max() {
            // The store has not replied.
            None | Some(0) => self.store_at,
            Some(at) => at,
        };
        let verdicts = self.checks.iter().zip(&self.verdicts);
        let verdicts = verdicts.map(|(check, verdict)| match verdict {
            None => Verdict::unanswered(check.rule(), check.plan(), Outcome::NotAsked),
            Some((_, verdict)) if verdict.source() == Source::Local => *verdict,
            // All have one time. A refund finds its window by that time and the time until the reset.
            Some((then, verdict)) => {
                let fresh_at = then.saturating_add(verdict.reset_after_ticks());
                verdict.with_reset_after(fresh_at.saturating_sub(at))
            }
        });
        let enforces = |verdict: &Verdict| rules.rules().enforces(verdict.rule());
        Decision::new(at, verdicts, enforces)
    }

    /// The request is denied by the store: units that earlier steps took are cancelled.
    pub(crate) fn cancel(&self, rules: &BoundRules, follow_up: &mut FollowUp) {
        let taken = self.taken(rules);
        follow_up
            .settle
            .extend(taken.map(|receipt| (receipt, Settlement::Cancel)));
    }

    /// What the store has taken for it.
    pub(crate) fn taken<'a>(&'a self, rules: &'a BoundRules) -> impl Iterator<Item = Receipt> + 'a {
        let indices = self.taken.iter().map(|index| usize::from(*index));
        indices.filter_map(|index| self.receipt(rules, index))
    }

    /// The request is not admitted: units that this process has spent for it go back to where they came from.
    pub(crate) fn take_back(&self, rules: &BoundRules, now: Tick, follow_up: &mut FollowUp) {
        let spent = (0..self.checks.len()).filter_map(|index| self.receipt(rules, index));
        let spent = spent.filter(|receipt| is_of_process(receipt.source));
        for receipt in spent {
            let Some(limit) = rules.limit(&receipt.check) else {
                continue;
            };
            let cost = receipt.check.cost();
            let times = (now, self.at);
            match rules.local().give_back(limit, &receipt, times, cost) {
                0 => {}
                rest => {
                    let receipt = as_counted(limit, &receipt);
                    rules.refund(follow_up, receipt, rest);
                }
            }
        }
    }

    /// For the units of a check that its verdict says are taken.
    fn receipt(&self, rules: &BoundRules, index: usize) -> Option<Receipt> {
        let check = self.checks.get(index)?;
        let (at, verdict) = self.verdicts.get(index)?.as_ref()?;
        let is_taken = check.cost() > 0
            && verdict.outcome() == Outcome::Allow
            && rules.rules().enforces(verdict.rule());
        is_taken.then(|| Receipt::new(*check, verdict, *at))
    }

    pub(crate) fn has_more_steps(&self) -> bool {
        !self.steps.is_empty()
    }

    pub(crate) fn is_denied(&self) -> bool {
        self.is_denied
    }

    pub(crate) fn came_at(&self) -> Tick {
        self.at
    }
}

fn is_local(verdict: &Verdict) -> bool {
    is_of_process(verdict.source())
}

/// Whether units come from what this process may spend.
pub(crate) fn is_of_process(source: Source) -> bool {
    matches!(source, Source::Lease | Source::Local)
}
