//! What this process decides of a request of several checks, and what is left to the store.

use std::ops::ControlFlow;

use smallvec::SmallVec;
use tollgate_core::{Check, Decision, Outcome, RuleSet, Tick, Verdict};

use crate::{
    engine::{
        bound_rules::{BoundRules, has_twins},
        reply::IndexSet,
    },
    table::key_table::Miss,
};

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
