//! A request that is not decided in one step.

use std::{collections::VecDeque, ops::ControlFlow, time::Duration};

use smallvec::SmallVec;
use tollgate_core::{
    Check, Decision, Outcome, RuleSet, Source, Tick, Verdict,
    store::{Checks, Hold, Settlement},
};

use crate::{
    engine::{
        bound_rules::{BoundRules, Step, has_twins},
        exchange::Exchange,
        reply::IndexSet,
        settle::{Settlements, give_back},
    },
    table::key_table::Miss,
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

// What this process decides of a request of several checks, and what is left to the store.

/// What this process decides of a request of several checks, and what is left to the store.
#[derive(Debug, Default)]
pub(crate) struct Split {
    /// By index: the verdicts of this process. Empty: it decides none.
    pub(crate) verdicts: SmallVec<[Option<Verdict>; 4]>,
    /// Checks whose keys are in no table.
    pub(crate) new_keys: IndexSet,
}

impl Split {
    /// Takes the units that this process may spend. `Break`: it decides the request.
    pub(crate) fn new(
        binding: &BoundRules,
        checks: &[Check],
        patience: Tick,
        now: Tick,
    ) -> ControlFlow<Decision, Self> {
        if let Some(decision) = Check::deny_two_plans(&binding.rules, checks) {
            return ControlFlow::Break(decision);
        }
        if let Some(decision) = deny(binding, checks, patience, now) {
            return ControlFlow::Break(decision);
        }
        let mut split = Self::default();
        if binding.pause.is_some() && has_twins(checks) {
            split.see_twins(binding, checks);
        } else if binding.pause.is_some() {
            for (index, check) in checks.iter().enumerate() {
                let spent = spend(binding, checks, check, now);
                if spent.as_ref().is_err_and(|miss| miss.is_new) {
                    split.new_keys.insert(index);
                }
                split.verdicts.push(spent.ok());
            }
            if split.verdicts.iter().all(Option::is_some) {
                let verdicts = split.verdicts.iter().flatten().copied();
                return ControlFlow::Break(binding.decision(verdicts, now));
            }
        }
        ControlFlow::Continue(split)
    }

    /// Two checks on one state are one check for the store. A key that only comes in such requests is never decided locally.
    fn see_twins(&mut self, binding: &BoundRules, checks: &[Check]) {
        for (index, check) in checks.iter().enumerate() {
            if let Some(limit) = binding.limit(check)
                && limit.report_terms().is_some()
                && binding.local().usage(limit, check.key(), |_| ()).is_none()
            {
                self.new_keys.insert(index);
            }
        }
    }

    /// The checks that the store decides, by index.
    pub(crate) fn undecided(&self, checks: &[Check]) -> impl Iterator<Item = u16> {
        // A request has fewer than 65 536 checks.
        (0..checks.len() as u16).filter(|index| {
            let verdict = self.verdicts.get(usize::from(*index));
            verdict.is_none_or(Option::is_none)
        })
    }
}

/// Takes what one of several checks costs from what this process may spend.
///
/// The state that a threshold of the request reads is left to the store, which has to decide the threshold. So is the check that
/// decides where the states of the others lie.
fn spend(
    binding: &BoundRules,
    checks: &[Check],
    check: &Check,
    now: Tick,
) -> Result<Verdict, Miss> {
    if binding.places.with == Some(check.rule()) {
        return Err(Miss { is_new: true });
    }
    if binding.rules.has_thresholds()
        && let Some(limit) = binding.limit(check)
        && limit.report_terms().is_some()
        && has_threshold(&binding.rules, checks, check)
    {
        return Err(binding.local().see(limit, check.key()));
    }
    binding.spend(check, now)
}

/// Denies a request of several checks if the deny cache denies one. The others are not decided.
///
/// A shadow counts what is denied as well, and a threshold reports on it, so a request with one of them goes to the store.
fn deny(binding: &BoundRules, checks: &[Check], patience: Tick, now: Tick) -> Option<Decision> {
    let is_enforced = |check: &Check| binding.rules.enforces(usize::from(check.rule()));
    if !checks.iter().all(is_enforced) {
        return None;
    }
    let answers = checks.iter().map(|check| {
        let limit = binding.limit(check)?;
        let denied = binding.local().deny(limit, check, now, patience)?;
        // What this process may spend is taken already.
        let leased = match check.policy().is_exact() {
            true => 0,
            false => binding.local().leased(limit, check.key(), now),
        };
        (leased < check.cost()).then_some(denied)
    });
    let answers: SmallVec<[_; 4]> = answers.collect();
    if answers.iter().all(Option::is_none) {
        return None;
    }
    if binding.rules.has_blocks() {
        // All or none: what the store decides it counts itself.
        let may_deny = |counts: bool| {
            checks.iter().zip(&answers).all(|(check, answer)| {
                let limit = binding.limit(check).zip(answer.as_ref());
                limit.is_none_or(|(limit, denied)| {
                    binding.local().may_deny(limit, check, denied, counts)
                })
            })
        };
        if !may_deny(false) {
            return None;
        }
        may_deny(true);
    }
    let verdicts = checks.iter().zip(answers).map(|(check, answer)| {
        let (rule, plan) = (check.rule(), check.plan());
        answer.unwrap_or_else(|| Verdict::unanswered(rule, plan, Outcome::NotDecided))
    });
    Some(binding.decision(verdicts, now))
}

/// Whether a threshold of a request reads the state of one of its checks.
fn has_threshold(rules: &RuleSet, checks: &[Check], check: &Check) -> bool {
    let mut thresholds = rules.thresholds_of(usize::from(check.rule()));
    thresholds.any(|threshold| {
        let mut others = checks.iter();
        others.any(|other| usize::from(other.rule()) == threshold)
    })
}
