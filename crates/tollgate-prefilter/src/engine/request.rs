//! A request that is not decided in one step.

use std::{collections::VecDeque, time::Duration};

use smallvec::SmallVec;
use tollgate_core::{
    Check, Decision, Outcome, Source, Tick, Verdict,
    store::{Checks, Hold, Settlement},
};

use crate::engine::{
    bound_rules::BoundRules,
    exchange::Exchange,
    places::Step,
    reply::IndexSet,
    settle::{Settlements, give_back},
    split::Split,
};

/// A request that is not decided in one step: this process has decided some of its checks, or their states lie in several
/// places.
#[derive(Debug)]
pub(crate) struct Request {
    checks: Checks,
    /// By index: the verdicts so far, with the time by the store's clock that each counts from.
    verdicts: SmallVec<[Option<(Tick, Verdict)>; 4]>,
    /// Checks whose keys are in no table.
    new_keys: IndexSet,
    /// The step in flight, and those after it.
    step: Step,
    pub(crate) steps: VecDeque<Step>,
    /// When the request came, by this process's clock and by the store's.
    pub(crate) at: Tick,
    store_at: Tick,
    pub(crate) is_denied: bool,
    /// Checks of steps that were not denied.
    taken: Step,
    /// How long it waits, and its places in queues.
    delay: Duration,
    places: Vec<Hold>,
    /// Leases that go back, after earlier steps.
    pub(crate) returned: Vec<Exchange>,
}

impl Request {
    /// A request whose checks with these indices are decided in steps by the store, after this process has decided others.
    pub(crate) fn new(
        checks: &[Check],
        split: Split,
        steps: VecDeque<Step>,
        (at, store_at): (Tick, Tick),
    ) -> Self {
        let verdicts = split.verdicts.into_iter();
        let verdicts = verdicts.map(|verdict| verdict.map(|verdict| (store_at, verdict)));
        let mut verdicts: SmallVec<_> = verdicts.collect();
        verdicts.resize(checks.len(), None);
        Self {
            checks: Checks::from_slice(checks),
            verdicts,
            new_keys: split.new_keys,
            step: Step::new(),
            steps,
            at,
            store_at,
            is_denied: false,
            taken: Step::new(),
            delay: Duration::ZERO,
            places: Vec::new(),
            returned: Vec::new(),
        }
    }

    /// The checks with these indices, by the place of their states.
    pub(crate) fn steps(
        binding: &BoundRules,
        checks: &[Check],
        undecided: &[u16],
    ) -> VecDeque<Step> {
        let together: Checks = undecided
            .iter()
            .map(|index| checks[usize::from(*index)])
            .collect();
        let steps = binding.places.steps(&together).into_iter();
        let of_request = |step: Step| step.iter().map(|it| undecided[usize::from(*it)]).collect();
        steps.map(of_request).collect()
    }

    /// The checks of the next step, and those whose keys are in no table. `None`: the request is decided.
    pub(crate) fn next_step(&mut self) -> Option<(Checks, IndexSet)> {
        if self.is_denied {
            return None;
        }
        self.step = self.steps.pop_front()?;
        let indices = self.step.iter().map(|index| usize::from(*index));
        let mut new_keys = IndexSet::default();
        let checks = indices.enumerate().map(|(position, index)| {
            if self.new_keys.contains(index) {
                new_keys.insert(position);
            }
            self.checks[index]
        });
        let checks = checks.collect();
        Some((checks, new_keys))
    }

    /// The store has decided the step in flight, or failed to.
    pub(crate) fn on_decision(&mut self, decision: &Decision, takes: bool) {
        for (index, verdict) in self.step.iter().zip(decision.verdicts()) {
            self.verdicts[usize::from(*index)] = Some((decision.at(), *verdict));
        }
        self.is_denied = takes && decision.outcome() == Outcome::Deny;
        // Only a request that is decided in one step waits.
        self.delay = decision.delay();
        self.places = decision.queue_places().to_vec();
        // A step that denies takes nothing.
        if takes && !self.is_denied {
            self.taken.extend_from_slice(&self.step);
        }
    }

    /// The decision about the whole request.
    pub(crate) fn decision(&self, binding: &BoundRules) -> Decision {
        let times = self.verdicts.iter().flatten();
        let at_store = times.filter(|(_, verdict)| !is_local(verdict));
        let at = match at_store.map(|(at, _)| *at).max() {
            // The store has not replied.
            None | Some(0) => self.store_at,
            Some(at) => at,
        };
        let verdicts = self.checks.iter().zip(&self.verdicts);
        let verdicts = verdicts.map(|(check, verdict)| match verdict {
            None => Verdict::unanswered(check.rule(), check.plan(), Outcome::NotDecided),
            Some((_, verdict)) if verdict.source() == Source::Local || verdict.is_of_slots() => {
                *verdict
            }
            // All have one time. A refund finds its window by that time and the time until the reset.
            Some((then, verdict)) => {
                let fresh_at = then.saturating_add(verdict.reset_after_ticks());
                verdict.with_reset_after(fresh_at.saturating_sub(at))
            }
        });
        let enforces = |verdict: &Verdict| binding.rules.enforces(verdict.rule());
        let decision = Decision::new(at, verdicts, enforces);
        match self.delay {
            Duration::ZERO => decision,
            delay => decision.delayed(delay, self.places.iter().copied()),
        }
    }

    /// The request is denied by the store: units that earlier steps took are cancelled.
    pub(crate) fn cancel(&self, binding: &BoundRules, settlements: &mut Settlements) {
        for receipt in self.taken(binding) {
            binding.unlearn(&receipt.check);
            settlements.push((receipt, Settlement::Cancel));
        }
    }

    /// What the store has taken for it.
    pub(crate) fn taken<'a>(&'a self, binding: &'a BoundRules) -> impl Iterator<Item = Hold> + 'a {
        let indices = self.taken.iter().map(|index| usize::from(*index));
        indices.filter_map(|index| self.receipt(binding, index))
    }

    /// The request is not admitted: units that this process has spent for it go back to where they came from. Returns what the
    /// store has to refund of them.
    pub(crate) fn give_back_local(&self, binding: &BoundRules, now: Tick) -> Settlements {
        let spent = (0..self.checks.len()).filter_map(|index| self.receipt(binding, index));
        let spent = spent.filter(|receipt| is_of_process(receipt.source));
        let refunds = spent.filter_map(|receipt| {
            give_back(binding, &receipt, (now, self.at), receipt.check.cost())
        });
        refunds.collect()
    }

    /// For the units of a check that its verdict says are taken.
    fn receipt(&self, binding: &BoundRules, index: usize) -> Option<Hold> {
        let check = self.checks.get(index)?;
        let (at, verdict) = self.verdicts.get(index)?.as_ref()?;
        let is_taken = check.cost() > 0
            && !verdict.is_of_slots()
            && verdict.outcome() == Outcome::Allow
            && binding.rules.enforces(verdict.rule());
        is_taken.then(|| verdict.hold(*check, *at))
    }
}

fn is_local(verdict: &Verdict) -> bool {
    is_of_process(verdict.source())
}

/// Whether units come from what this process may spend.
pub(crate) fn is_of_process(source: Source) -> bool {
    matches!(source, Source::Lease | Source::Local)
}
