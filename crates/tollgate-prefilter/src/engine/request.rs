//! A request that is not decided in one step: this process decides some of its checks, or their states lie in several places.

use std::{collections::VecDeque, time::Duration};

use smallvec::SmallVec;
use tollgate_core::{
    Check, Decision, Outcome, Source, Tick, Verdict,
    store::{Checks, Hold, Settlement},
};

use crate::{
    engine::{
        bound_rules::{BoundRules, Step, has_twins},
        reply::IndexSet,
        settle::{Settlements, release},
    },
    table::key_table::Miss,
};

/// A request that is not decided in one step.
#[derive(Debug)]
pub(crate) struct Request {
    checks: Checks,
    /// By index: the verdicts so far, with the time by the store's clock that each counts from.
    verdicts: SmallVec<[Option<(Tick, Verdict)>; 4]>,
    /// Checks whose keys are in no table.
    pub(crate) new_keys: IndexSet,
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
}

impl Request {
    /// A request before its first check is decided.
    pub(crate) fn new(bound: &BoundRules, checks: &[Check], now: Tick) -> Self {
        Self {
            checks: Checks::from_slice(checks),
            verdicts: SmallVec::from_elem(None, checks.len()),
            new_keys: IndexSet::default(),
            step: Step::new(),
            steps: VecDeque::new(),
            at: now,
            store_at: bound.engine.store_now(now),
            is_denied: false,
            taken: Step::new(),
            delay: Duration::ZERO,
            places: Vec::new(),
        }
    }

    /// Reserves the units that this process may spend.
    ///
    /// Two checks on one state are one check for the store. A key that only comes in such requests is never decided locally. The state
    /// that a threshold of the request reads is left to the store, which has to decide the threshold. So is the check that decides where
    /// the states of the others lie.
    pub(crate) fn reserve(&mut self, bound: &BoundRules) {
        let has_twins = has_twins(&self.checks);
        for (index, check) in self.checks.iter().enumerate() {
            let limit = bound.limit(check);
            let counts = limit.filter(|limit| limit.report_terms().is_some());
            let reserved = if has_twins {
                let is_new = counts.is_some() && bound.usage(check, |_| ()).is_none();
                Err(Miss { is_new })
            } else if bound.places.with == Some(check.rule()) {
                Err(Miss { is_new: true })
            } else if let Some(limit) = counts.filter(|_| self.has_threshold(bound, check)) {
                // It was seen.
                let at = limit.at(check.key());
                bound.engine.keys.look(at, |_| None::<Verdict>)
            } else {
                bound.reserve(check, self.at)
            };
            match reserved {
                Ok(verdict) => self.verdicts[index] = Some((self.store_at, verdict)),
                Err(miss) if miss.is_new => self.new_keys.insert(index),
                Err(_) => {}
            }
        }
    }

    /// Whether a threshold of the request reads the state of one of its checks.
    fn has_threshold(&self, bound: &BoundRules, check: &Check) -> bool {
        let mut thresholds = bound.rules.thresholds_of(usize::from(check.rule()));
        let is_of = |threshold| move |other: &Check| usize::from(other.rule()) == threshold;
        bound.rules.has_thresholds() && thresholds.any(|it| self.checks.iter().any(is_of(it)))
    }

    /// Leaves what is not decided to the store, step by step. Gives how many checks these are.
    pub(crate) fn plan_steps(&mut self, bound: &BoundRules) -> usize {
        // A request has fewer than 65 536 checks.
        let indices = 0..self.checks.len() as u16;
        let is_undecided = |index: &u16| self.verdicts[usize::from(*index)].is_none();
        let undecided: Step = indices.filter(is_undecided).collect();
        let checks = undecided
            .iter()
            .map(|index| self.checks[usize::from(*index)]);
        let steps = bound.places.steps(&checks.collect::<Checks>());
        let of_request = |step: Step| step.iter().map(|it| undecided[usize::from(*it)]).collect();
        self.steps = steps.into_iter().map(of_request).collect();
        undecided.len()
    }

    /// The checks of the next step, and those whose keys are in no table. `None`: the request is decided.
    pub(crate) fn next_step(&mut self) -> Option<(Checks, IndexSet)> {
        if self.is_denied {
            return None;
        }
        self.step = self.steps.pop_front()?;
        let (mut checks, mut new_keys) = (Checks::new(), IndexSet::default());
        for index in self.step.iter().map(|index| usize::from(*index)) {
            if self.new_keys.contains(index) {
                new_keys.insert(checks.len());
            }
            checks.push(self.checks[index]);
        }
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
    pub(crate) fn decision(&self, bound: &BoundRules) -> Decision {
        let times = self.verdicts.iter().flatten();
        let at_store = times.filter(|(_, verdict)| !is_of_process(verdict.source()));
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
        let decision = bound.decision(at, verdicts);
        match self.delay {
            Duration::ZERO => decision,
            delay => decision.delayed(delay, self.places.iter().copied()),
        }
    }

    /// The request is denied by the store: units that earlier steps took are cancelled.
    pub(crate) fn cancel(&self, bound: &BoundRules, settlements: &mut Settlements) {
        for hold in self.taken(bound) {
            bound.unlearn(&hold.check);
            settlements.push((hold, Settlement::Cancel));
        }
    }

    /// What the store has taken for it.
    pub(crate) fn taken<'a>(&'a self, bound: &'a BoundRules) -> impl Iterator<Item = Hold> + 'a {
        let indices = self.taken.iter().map(|index| usize::from(*index));
        indices.filter_map(|index| self.hold(bound, index))
    }

    /// The request is not admitted: units that this process has reserved for it go back to where they came from. Returns what the
    /// store has to refund of them.
    pub(crate) fn release_local(&self, bound: &BoundRules, now: Tick) -> Settlements {
        let reserved = (0..self.checks.len()).filter_map(|index| self.hold(bound, index));
        let reserved = reserved.filter(|hold| is_of_process(hold.source));
        let refunds =
            reserved.filter_map(|hold| release(bound, &hold, now, self.at, hold.check.cost()));
        refunds.collect()
    }

    /// For the units of a check that its verdict says are taken.
    fn hold(&self, bound: &BoundRules, index: usize) -> Option<Hold> {
        let (check, (at, verdict)) = (self.checks.get(index)?, self.verdicts.get(index)?.as_ref()?);
        let hold = taken_by(verdict, check, *at);
        hold.filter(|_| bound.rules.enforces(verdict.rule()))
    }
}

/// Whether units come from what this process may spend.
fn is_of_process(source: Source) -> bool {
    matches!(source, Source::Lease | Source::Local)
}

/// What the store has taken for a check, but for slots.
pub(crate) fn taken_by(verdict: &Verdict, check: &Check, at: Tick) -> Option<Hold> {
    let is_taken =
        check.cost() > 0 && !verdict.is_of_slots() && verdict.outcome() == Outcome::Allow;
    is_taken.then(|| verdict.hold(*check, at))
}
