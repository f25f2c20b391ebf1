//! A request that is not decided in one step: this process decides some of its checks, or their states lie in several places. And units
//! that were taken, when they come back or more is charged.

use std::{collections::VecDeque, time::Duration};

use smallvec::SmallVec;
use tollgate_core::{
    Check, Decision, OnStoreError, Outcome, Retry, Rule, Source, Tick, Verdict,
    algorithm::{Algorithm, Assessment, Gcra},
    store::{Checks, Hold, Settlement},
};

use crate::engine::{
    limit::{Limit, after_taking},
    local_rules::{LocalRules, Step, has_twins},
};

/// A request that is not decided in one step.
#[derive(Debug)]
pub(crate) struct Request {
    checks: Checks,
    /// By index: the verdicts so far, with the time by the store's clock that each counts from.
    verdicts: SmallVec<[Option<(Tick, Verdict)>; 4]>,
    /// The step in flight, and those after it.
    step: Step,
    pub(crate) steps: VecDeque<Step>,
    /// When the request came, by this process's clock and by the store's.
    pub(crate) at: Tick,
    store_at: Tick,
    pub(crate) is_denied: bool,
    /// How long it waits, and its places in queues.
    delay: Duration,
    places: Vec<Hold>,
}

impl Request {
    /// A request before its first check is decided.
    pub(crate) fn new(bound: &LocalRules, checks: &[Check], now: Tick) -> Self {
        Self {
            checks: Checks::from_slice(checks),
            verdicts: SmallVec::from_elem(None, checks.len()),
            step: Step::new(),
            steps: VecDeque::new(),
            at: now,
            store_at: bound.engine.store_now(now),
            is_denied: false,
            delay: Duration::ZERO,
            places: Vec::new(),
        }
    }

    /// Reserves the units that this process may spend.
    ///
    /// Two checks on one state are one check for the store. The state that a threshold of the request reads is left to the store, which
    /// has to decide the threshold. So is the check that decides where the states of the others lie.
    pub(crate) fn reserve(&mut self, bound: &LocalRules) {
        if has_twins(&self.checks) {
            return;
        }
        for (index, check) in self.checks.iter().enumerate() {
            let limit = bound.limit(check);
            let counts = limit.is_some_and(|limit| limit.report_terms().is_some());
            if bound.places.with != Some(check.rule())
                && !(counts && self.has_threshold(bound, check))
            {
                let verdict = bound.reserve(check, self.at);
                self.verdicts[index] = verdict.map(|verdict| (self.store_at, verdict));
            }
        }
    }

    /// Whether a threshold of the request reads the state of one of its checks.
    fn has_threshold(&self, bound: &LocalRules, check: &Check) -> bool {
        let mut thresholds = bound.rules.thresholds_of(usize::from(check.rule()));
        let is_of = |threshold| move |other: &Check| usize::from(other.rule()) == threshold;
        bound.rules.has_thresholds() && thresholds.any(|it| self.checks.iter().any(is_of(it)))
    }

    /// Leaves what is not decided to the store, step by step. Gives how many checks these are.
    pub(crate) fn plan_steps(&mut self, bound: &LocalRules) -> usize {
        // A request has fewer than 65 536 checks.
        let indices = 0..self.checks.len() as u16;
        let is_undecided = |index: &u16| self.verdicts[usize::from(*index)].is_none();
        let undecided: Step = indices.filter(is_undecided).collect();
        let checks = undecided.iter().map(|it| self.checks[usize::from(*it)]);
        let checks: Checks = checks.collect();
        self.steps = (bound.places.steps(&checks, undecided)).collect();
        checks.len()
    }

    /// The checks of the next step. `None`: the request is decided.
    pub(crate) fn next_step(&mut self) -> Option<Checks> {
        if self.is_denied {
            return None;
        }
        self.step = self.steps.pop_front()?;
        let indices = self.step.iter().map(|index| usize::from(*index));
        Some(indices.map(|index| self.checks[index]).collect())
    }

    /// The store has decided the step in flight, or failed to.
    pub(crate) fn on_decision(&mut self, bound: &LocalRules, decision: &Decision, takes: bool) {
        for (index, verdict) in self.step.iter().zip(decision.verdicts()) {
            let index = usize::from(*index);
            self.verdicts[index] = Some((decision.at(), *verdict));
            let check = &self.checks[index];
            let denies = |rule: &Rule| {
                rule.is_enforced() && rule.answer_to_failure(check) == OnStoreError::Deny
            };
            // What later steps took would only come back if the store can be told.
            if takes
                && verdict.outcome() == Outcome::Failed
                // A ledger has its sum, and the store is asked once more.
                && !verdict.is_forgotten()
                && bound.rules.rule_of(check).is_some_and(denies)
            {
                self.steps.clear();
            }
        }
        self.is_denied = takes && decision.outcome() == Outcome::Deny;
        // Only a request that is decided in one step waits.
        self.delay = decision.delay();
        self.places = decision.queue_places().to_vec();
    }

    /// The decision about the whole request.
    pub(crate) fn decision(&self, bound: &LocalRules) -> Decision {
        let times = self.verdicts.iter().flatten();
        let at_store = times.filter(|(_, verdict)| !is_of_process(verdict.source()));
        let at = match at_store.map(|(at, _)| *at).max() {
            // The store has not replied.
            None | Some(0) => self.store_at,
            Some(at) => at,
        };
        let verdicts = self.checks.iter().zip(&self.verdicts).enumerate();
        let verdicts = verdicts.map(|(index, (check, verdict))| {
            let Some((then, verdict)) = verdict else {
                return Verdict::unanswered(check.rule(), check.plan(), Outcome::NotDecided);
            };
            let goes_back = match self.is_denied {
                true => self.hold(bound, index),
                false => None,
            };
            let verdict = match goes_back.map_or(0, |hold| hold.check.cost()) {
                // Those of a balance are in no number.
                units if units > 0 && verdict.source() != Source::Credits => {
                    // The state is fresh no later than with them.
                    let reset_after = verdict.reset_after_ticks();
                    let left = verdict.remaining().saturating_add(units);
                    let answer = Assessment::new(true, left, reset_after, Retry::Now);
                    Verdict::new(check.rule(), check.plan(), answer, verdict.source())
                }
                _ => *verdict,
            };
            if verdict.source() == Source::Local || verdict.is_of_slots() {
                return verdict;
            }
            // All have one time. A refund finds its window by that time and the time until the reset.
            let fresh_at = then.saturating_add(verdict.reset_after_ticks());
            verdict.with_reset_after(fresh_at.saturating_sub(at))
        });
        let decision = bound.decision(at, verdicts);
        match self.delay {
            Duration::ZERO => decision,
            delay => decision.delayed(delay, self.places.iter().copied()),
        }
    }

    /// The request is denied by the store: units that earlier steps took are cancelled.
    pub(crate) fn cancel(&self, bound: &LocalRules, settlements: &mut Settlements) {
        let holds = (0..self.checks.len()).filter_map(|index| self.hold(bound, index));
        for hold in holds.filter(|hold| !is_of_process(hold.source)) {
            bound.unlearn(&hold.check);
            settlements.push((hold, Settlement::Cancel));
        }
    }

    /// The request is not admitted: units that this process has reserved for it go back to where they came from. Returns what the
    /// store has to refund of them.
    pub(crate) fn release_local(&self, bound: &LocalRules, now: Tick) -> Settlements {
        let reserved = (0..self.checks.len())
            .filter_map(|index| self.hold(bound, index))
            .filter(|hold| is_of_process(hold.source));
        let refunds =
            reserved.filter_map(|hold| give_back(bound, &hold, now, self.at, hold.check.cost()));
        refunds.collect()
    }

    /// For the units of a check that its verdict says are taken. The step that denies has taken nothing.
    fn hold(&self, bound: &LocalRules, index: usize) -> Option<Hold> {
        let (check, (at, verdict)) = (self.checks.get(index)?, self.verdicts.get(index)?.as_ref()?);
        let hold = taken_by(verdict, check, *at);
        let is_taken = !self.step.contains(&(index as u16)) && bound.rules.enforces(verdict.rule());
        hold.filter(|_| is_taken)
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

/// Why there is no reply to a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoReply {
    /// The query certainly was not carried out.
    NotSent,
    /// No check of the query has a limit, so it was not sent.
    NothingToSend,
    /// It is unknown whether it was carried out. It must not be sent again.
    NoAnswer,
}

// Units that were taken: they come back, or more is charged.

/// What the store has to settle.
pub(crate) type Settlements = SmallVec<[(Hold, Settlement); 1]>;

/// What the store has to settle for units that this process may have spent.
pub(crate) fn settle_one(
    bound: &LocalRules,
    hold: &Hold,
    how: Settlement,
    now: Tick,
) -> Option<(Hold, Settlement)> {
    let check = &hold.check;
    if check.cost() == 0 {
        // It says where the states of the others lie.
        return Some((*hold, how));
    }
    // The store counts a request that stays.
    let counted = hold.counts.then_some((*hold, Settlement::Refund(0)));
    let back = match how {
        Settlement::Refund(0) if hold.counts => return counted,
        Settlement::Refund(units) => units.min(check.cost()),
        Settlement::Cancel => check.cost(),
        Settlement::Charge(units) => {
            let mut here = units;
            if bound.has_debt(check) {
                // When the next request fits is later now.
                bound.unlearn(check);
                here = bound.leased(check, now).min(units);
            }
            // What this process may spend is as good as what the store has.
            let is_spent = here > 0 && bound.reserve(&check.with_cost(here), now).is_some();
            return match units - if is_spent { here } else { 0 } {
                0 => counted,
                rest => Some((*hold, Settlement::Charge(rest))),
            };
        }
        _ => return None,
    };
    bound.unlearn(check);
    if !matches!(hold.source, Source::Lease | Source::Local) || bound.limit(check).is_none() {
        return Some((*hold, how));
    }
    let spent = bound.engine.store_time.local(hold.taken.at);
    give_back(bound, hold, now, spent, back).or(counted)
}

/// Units that this process reserved at `spent` go back to where they came from. Returns what the store has to refund of them.
pub(crate) fn give_back(
    bound: &LocalRules,
    hold: &Hold,
    now: Tick,
    spent: Tick,
    units: u64,
) -> Option<(Hold, Settlement)> {
    let (check, taken) = (&hold.check, hold.taken);
    bound.unlearn(check);
    let limit = bound.limit(check)?;
    let rest = match (hold.source, limit.windows, limit.report_terms()) {
        (Source::Lease, None, _) => {
            bound.lease(check, |it| it.holder.give_back(now, spent, units));
            0
        }
        (Source::Lease, Some(windows), _) => match windows.that_counts_until(taken.fresh_at) {
            Some(window) if taken.fresh_at > taken.at => {
                let back = bound.lease(check, |it| {
                    (it.holder).give_back_to(window, (now, spent), units)
                });
                back.unwrap_or(units)
            }
            // They do not weigh any more.
            _ => 0,
        },
        (Source::Local, _, Some(terms)) => {
            let back = bound.usage(check, |usage| {
                // What was counted before the last report was in it, and only the store knows whether it still weighs. What was
                // counted at the same time may have been in it or not: other unreported units take its place.
                if spent < usage.reported_at {
                    return 0;
                }
                let back = usage.give_back(units);
                usage.fresh_at = usage.fresh_at.saturating_sub(terms.puts_off(back));
                back
            });
            units - back.unwrap_or(0)
        }
        _ => units,
    };
    if rest > 0 && hold.source == Source::Local {
        // The units of reports can only be refunded after they were sent.
        drop(bound.engine.sending.write());
    }
    (rest > 0).then(|| (as_counted(limit, hold), Settlement::Refund(rest)))
}

/// A hold of units that were spent locally, as the store has counted them: when it granted the lease, or with a report.
pub(crate) fn as_counted(limit: &Limit, hold: &Hold) -> Hold {
    let mut counted = *hold;
    counted.taken.fresh_at = match limit.windows {
        Some(windows) => {
            let window = windows.that_counts_until(hold.taken.fresh_at);
            window.map_or(0, |window| windows.counts_until(window))
        }
        // A bucket's units come back one after the other.
        None if Gcra::new(&limit.terms.quota).is_some() => hold.taken.fresh_at,
        // Units that were counted locally and reported weigh until then. What the hold says is from an earlier reply, and the store
        // refunds nothing to a window whose end is another.
        None => {
            let taken = after_taking(&limit.terms.quota, hold.taken.at, 1, 0);
            taken.map_or(hold.taken.fresh_at, |(fresh_at, _)| fresh_at)
        }
    };
    counted
}
