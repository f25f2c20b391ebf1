//! Decides any request under its locks: its states are locked in one order, all checks are assessed, and then all or nothing is taken.

use std::time::Duration;

use smallvec::SmallVec;

use crate::{
    algorithm::{Algorithm, Assessment, Instant, Retry, Taken},
    block::ActiveBlock,
    check::Check,
    decision::{Decision, Outcome, Verdict},
    held_slots::HeldSlots,
    hold::{Hold, Source},
    memory::{
        balances::Balances,
        locked::{Counted, LockedKey},
        rule_store::MemoryRuleStore,
        rule_table::{AnyLocked, AnyRuleTable, RuleTable, with_locked, with_table},
    },
    rule::Mode,
    rule_set::RuleSet,
    sync::lock,
    time::Tick,
};

/// A check on its way through the step.
struct CheckStep {
    /// With the costs of all checks on its state, if it is the first of them.
    check: Check,
    is_enforced: bool,
    /// Index into the locks; `None`: there is nothing to decide.
    lock: Option<usize>,
    /// The first check on the same state; it stands for all of them.
    leader: usize,
    answer: Option<Assessment>,
    /// How long requests wait for its units at most, in µs, and when they fit.
    at_most: u64,
    instant: Option<Instant>,
    /// The number of the slots that it took.
    slot_number: Option<u64>,
    /// The block of its key.
    block: Option<ActiveBlock>,
    counted: Option<Counted>,
    /// The units that its key owes.
    debt: u64,
    /// Whether it repeats a request, at no cost.
    is_repeat: bool,
    /// Whether its key has a balance, and whether the cost is taken from there.
    has_balance: bool,
    is_on_credits: bool,
}

type Steps = SmallVec<[CheckStep; 4]>;
type Locks<'a> = SmallVec<[AnyLocked<'a>; 4]>;

/// Checks under the locks of their states.
struct UnderLocks<'a> {
    store: &'a MemoryRuleStore,
    locks: Locks<'a>,
    now: Tick,
}

/// Runs `$body` with the rule of a step, and its key under its lock.
macro_rules! with_step {
    ($under:expr, $step:expr, ($rule:ident, $at:ident) => $body:expr) => {
        if let (Some(lock), Some(rule)) = ($step.lock, $under.store.rule($step.check.rule())) {
            with_locked!(rule, &mut $under.locks[lock], ($rule, locked) => {
                if let Some(plan) = $under.store.plan_of($rule, &$step.check) {
                    let $at = &mut locked.of($step.check.key(), &plan, $under.now);
                    $body
                }
            }, else ())
        }
    };
}

impl MemoryRuleStore {
    /// Decides all checks under their locks, then takes all or nothing. The request waits for at most `patience` µs.
    pub(super) fn decide_under_locks(
        &self,
        checks: &[Check],
        take: bool,
        patience: u64,
    ) -> Decision {
        if let Some(denied) = Check::deny_two_plans(&self.rules, checks) {
            return denied;
        }
        self.end_reservations();
        let (mut under, mut steps) = self.lock_all(checks);
        let now = under.now;
        for index in 0..steps.len() {
            let step = &mut steps[index];
            if step.leader == index {
                with_step!(under, step, (rule, at) => step.assess(rule, at, now));
            }
        }
        let mut is_denied = steps.iter().any(CheckStep::is_denied);
        let mut balances = None;
        if is_denied && self.rules.has_credits() {
            let balances = balances.insert(lock(&self.shared.balances));
            for step in steps.iter_mut().filter(|step| step.is_denied()) {
                step.look_at_balance(&self.rules, balances, now);
            }
            is_denied = steps.iter().any(CheckStep::is_denied);
        }
        let start = match is_denied && self.rules.has_waits() {
            true => queue(&mut steps, now, patience),
            false => None,
        };
        is_denied &= start.is_none();
        let (mut places, mut slots) = (Vec::new(), None);
        for step in &mut steps {
            if is_denied && step.is_enforced && step.fits() == Some(true) {
                // A rule that would have let a denied request pass keeps its units: its numbers are those before a take.
                under.look(step);
            }
            match start {
                _ if !take => {}
                Some(start) => places.extend(under.queue_up(step, start)),
                None => {
                    let held = under.write(step, balances.as_deref_mut(), is_denied);
                    slots = HeldSlots::both(slots, held);
                }
            }
        }
        drop((balances, under));
        for step in &steps {
            if let Some(counted) = &step.counted {
                self.report(step.check.rule(), counted);
            }
        }
        let rules = self.rules.rules();
        let verdicts = steps.iter().map(|step| {
            let (rule, plan, leader) = (step.check.rule(), step.check.plan(), &steps[step.leader]);
            let Some(answer) = leader.answer else {
                return Verdict::unanswered(rule, plan, Outcome::NotDecided);
            };
            let source = match leader.is_on_credits {
                true => Source::Credits,
                false => Source::Store,
            };
            let mut verdict = Verdict::new(rule, plan, answer, source);
            if leader.debt > 0 && !take {
                verdict = verdict.with_debt(leader.debt);
            }
            if let Some(active) = leader.block {
                verdict = verdict.with_block_level(active.level);
            } else if leader.is_repeat {
                verdict = verdict.as_repeat();
            }
            match rules[usize::from(rule)].has_slots() {
                true => verdict.of_slots(leader.slot_number),
                false => verdict,
            }
        });
        let mut decision =
            Decision::new(now, verdicts, |verdict| self.rules.enforces(verdict.rule()));
        decision.set_slots(slots);
        match start {
            Some(start) => decision.delayed(Duration::from_micros(start.start - now), places),
            None => decision,
        }
    }

    /// Locks the shards of all checks in one order, and folds checks on one state into the first.
    fn lock_all(&self, checks: &[Check]) -> (UnderLocks<'_>, Steps) {
        let positions = checks.iter().map(|check| {
            let rule = self.rules.rules().get(usize::from(check.rule()))?;
            if *rule.mode() == Mode::Off {
                return None;
            }
            // A check without a limit never stands for one with a limit.
            with_table!(self.rule(check.rule())?, rule => {
                self.plan_of(rule, check)?;
                Some((rule.table.id, rule.table.shard_of(check.key())))
            }, else None)
        });
        let positions: SmallVec<[Option<(u64, usize)>; 4]> = positions.collect();
        let order = positions
            .iter()
            .zip(checks)
            .filter_map(|(position, check)| Some(((*position)?, check.rule())));
        let mut order: SmallVec<[((u64, usize), u16); 4]> = order.collect();
        order.sort_unstable();
        order.dedup_by_key(|(position, _)| *position);
        let locks = order
            .iter()
            .filter_map(|((_, shard), rule)| self.rule(*rule)?.lock(*shard))
            .collect();
        // Only then: a thread that had to wait for a lock would see what others have done since as the future, and its denial would
        // repair it into a window that is over.
        let now = self.clock.now();
        let store = self;
        let under = UnderLocks { store, locks, now };
        let mut steps = Steps::new();
        for (index, (check, position)) in checks.iter().zip(positions).enumerate() {
            let lock = position.and_then(|it| order.binary_search_by_key(&it, |(p, _)| *p).ok());
            // A threshold has a limit of its own on the state, so it is never folded into the rule it reads.
            let is_same = |other: &CheckStep| {
                let there = &other.check;
                other.lock == lock && there.rule() == check.rule() && there.key() == check.key()
            };
            let leader = lock.and_then(|_| steps.iter().position(is_same));
            if let Some(leader) = leader {
                let folded = &mut steps[leader].check;
                let cost = folded.cost().saturating_add(check.cost());
                *folded = folded.with_cost(cost).without_id();
            }
            steps.push(CheckStep {
                check: *check,
                is_enforced: self.rules.enforces(usize::from(check.rule())),
                lock,
                leader: leader.unwrap_or(index),
                answer: None,
                at_most: 0,
                instant: None,
                slot_number: None,
                block: None,
                counted: None,
                debt: 0,
                is_repeat: false,
                has_balance: false,
                is_on_credits: false,
            });
        }
        (under, steps)
    }
}

impl UnderLocks<'_> {
    /// The numbers of a check that takes nothing.
    fn look(&mut self, step: &mut CheckStep) {
        if std::mem::take(&mut step.is_on_credits) || step.block.is_some() {
            // Its numbers are those of the quota already, or of the block.
            return;
        }
        with_step!(self, step, (_rule, at) => step.answer = Some(at.assess(0)));
    }

    /// Takes the place of a check in a queue that begins at `start`. Rules that do not wait are charged when the request
    /// starts.
    fn queue_up(&mut self, step: &mut CheckStep, start: Instant) -> Option<Hold> {
        let fits = step.fits()?;
        let Some(instant) = step.instant.filter(|_| step.check.cost() > 0) else {
            if step.is_enforced && fits {
                self.look(step);
            }
            return None;
        };
        let mut place = None;
        with_step!(self, step, (rule, at) => {
            // A shadow is decided at the instant of the others, and never moves it.
            let starts = instant.start <= start.start;
            if let Some(answer) = &mut step.answer {
                answer.fits = starts;
            }
            if starts {
                let check = step.check;
                if let Some((before, then)) = at.take_from(start, check.cost()) {
                    step.answer = Some(then);
                    let fresh_at = start.start.saturating_add(then.reset_after);
                    place = Some(Hold::in_queue(check, Taken::new(self.now, fresh_at), before));
                }
            } else {
                step.count(rule, at);
            }
        });
        place.filter(|_| step.is_enforced)
    }

    /// Takes the units of a check, or what a denial leaves to be done.
    fn write(
        &mut self,
        step: &mut CheckStep,
        balances: Option<&mut Balances>,
        is_denied: bool,
    ) -> Option<HeldSlots> {
        let (fits, now, mut slots) = (step.fits()?, self.now, None);
        let rule = &self.store.rules.rules()[usize::from(step.check.rule())];
        let takes = match rule.mode() {
            Mode::Threshold { .. } | Mode::Off => return None,
            // As if it were alone; but only what runs holds slots, and a denied request does not.
            Mode::Shadow => fits && !(is_denied && rule.has_slots()),
            Mode::Enforce => !is_denied,
        };
        with_step!(self, step, (of_table, at) => {
            let cost = step.check.cost();
            if takes && step.is_on_credits {
                if let Some(balances) = balances {
                    balances.take(rule, step.check.key(), now, cost);
                }
                // Its numbers are those of a denial, and a state that lies in the future is repaired.
                at.denied(false);
            } else if takes {
                if rule.has_slots() && cost > 0 {
                    step.slot_number = Some(at.next_slot_number(&self.store.shared.last_slot_number));
                }
                if !step.is_repeat {
                    slots = at.take(cost);
                }
            }
            let id = of_table.id_of(&step.check);
            if let Some((rule, id)) = id.filter(|_| takes && cost > 0) {
                at.change_ids(|seen| rule.admit(seen, id, now));
            }
            match (step.block, &of_table.block) {
                (Some(active), Some(block)) => at.blocked(block, active),
                _ if !takes && !fits => {
                    // A shadow does not look at the balance, which a rule that is enforced may have.
                    let is_final = step.is_enforced || !rule.has_credits();
                    at.denied(is_final && !step.has_balance);
                    step.count(of_table, at);
                }
                _ => {}
            }
        });
        slots
    }
}

impl CheckStep {
    /// Whether its units fit; `None` where another check stands for it, or nothing is decided.
    fn fits(&self) -> Option<bool> {
        Some(self.answer?.fits)
    }

    fn is_denied(&self) -> bool {
        self.is_enforced && self.fits() == Some(false)
    }

    fn assess<A: Algorithm>(&mut self, rule: &RuleTable<A>, at: &LockedKey<'_, '_, A>, now: Tick) {
        let cost = self.check.cost();
        let id = rule.id_of(&self.check);
        let seen = id.and_then(|_| at.ids());
        self.is_repeat =
            (id.zip(seen)).is_some_and(|((rule, id), seen)| rule.is_free(seen, id, now));
        let units = if self.is_repeat { 0 } else { cost };
        let mut answer = at.assess(units);
        self.at_most = at.plan.at_most;
        if self.at_most > 0 {
            self.instant = at.instant(cost);
        }
        self.block = (rule.block.as_ref()).and_then(|block| at.block_of(block));
        if let Some(active) = self.block {
            // A blocked key waits for nothing. Its own queue says when the units fit, not the quota that wrote the state.
            if let Some(instant) = self.instant.take()
                && !answer.fits
                && answer.retry != Retry::Never
                && self.is_enforced
            {
                answer.retry = Retry::after_micros(instant.start - now);
            }
            answer = active.deny(answer, cost);
        } else if at.plan.debt > 0 && units == 0 && answer.remaining == 0 {
            self.debt = at.debt();
        }
        self.answer = Some(answer);
    }

    /// Lets it pass on the balance of its key, if that has its whole cost and no block denies it.
    fn look_at_balance(&mut self, rules: &RuleSet, balances: &Balances, now: Tick) {
        let rule = &rules.rules()[usize::from(self.check.rule())];
        let Some(answer) = (self.answer.as_mut()).filter(|_| rule.has_credits()) else {
            return;
        };
        let units = balances.units(rule, self.check.key(), now);
        self.has_balance = units > 0;
        if units >= self.check.cost() && self.block.is_none() {
            (answer.fits, self.is_on_credits) = (true, true);
            if answer.retry == Retry::Never {
                answer.retry = Retry::Now;
            }
        }
    }

    /// Counts a denial for want of units towards the block of its key.
    fn count<A: Algorithm>(&mut self, rule: &RuleTable<A>, at: &mut LockedKey<'_, '_, A>) {
        let block = rule.block.as_ref().filter(|block| !block.counts_settled());
        let (Some(answer), Some(block), None) = (self.answer, block, self.block) else {
            return;
        };
        if answer.retry != Retry::Never {
            let counted = at.count_for_block(block);
            self.block = counted.began;
            self.counted = Some(counted);
        }
        if let Some(active) = self.block {
            self.answer = Some(active.deny(answer, self.check.cost()));
        }
    }
}

/// When a request starts that does not fit now: at the latest instant of the rules that wait for it. `None`: it does not, by
/// then, and the answers of the checks that wait too long say when they would.
fn queue(steps: &mut [CheckStep], now: Tick, patience: u64) -> Option<Instant> {
    let (mut start, mut at_most) = (Instant::new(now, now), patience);
    let waits = |step: &&CheckStep| step.at_most > 0 && step.is_enforced && step.check.cost() > 0;
    for step in steps.iter().filter(waits) {
        at_most = at_most.min(step.at_most);
        start = step
            .instant
            .map_or(start, |instant| start.or_later(instant));
    }
    let mut all_start = true;
    for step in steps.iter_mut().filter(|step| step.is_denied()) {
        let (wait, answer) = (step.instant.map(|it| it.start - now), step.answer.as_mut());
        let starts = wait.is_some_and(|wait| wait <= at_most);
        if let (Some(wait), Some(answer)) = (wait, answer) {
            answer.fits = starts;
            let until_then = if starts { wait } else { wait - at_most };
            answer.retry = Retry::after_micros(until_then);
        }
        all_start &= starts;
    }
    all_start.then_some(start)
}
