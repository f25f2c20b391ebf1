//! A rule set on the memory store: the atomic step.

use std::{slice::from_ref, sync::Arc, time::Duration};

use smallvec::SmallVec;

use crate::{
    algorithm::{Algorithm, Assessment, Instant, Retry, Taken},
    block::ActiveBlock,
    check::Check,
    claim::{Places, QueuePlace},
    decision::{Decision, Outcome, Verdict, Verdicts},
    error::StoreError,
    held_slots::HeldSlot,
    key::{Fingerprint, KeyBuf},
    memory::{
        bound_rule::BoundRule,
        family::Family,
        hasher::Hasher,
        locked::{Counted, Locked},
        rule_table::{AnyLocked, AnyRuleTable, MadeReady, RuleTable, with_locked, with_table},
        tables::Tables,
    },
    observe::{block_began, blocks::blocks_evicted},
    rule::Mode,
    rule_set::RuleSet,
    source::Source,
    step::Step,
    store::{
        receipt::{Receipt, Settlement},
        rule_store::{RuleStore, Usage},
        slot_waiters::SlotWaiters,
    },
    time::{Clock, Tick, micros},
};

/// As many checks as a decision holds without an allocation.
const FEW: usize = 4;

#[derive(Debug)]
pub(super) struct MemoryRuleStore {
    rules: Arc<RuleSet>,
    bound: Box<[BoundRule]>,
    clock: Clock,
    hasher: Hasher,
    shared: Arc<Tables>,
    /// Whether all rules are enforced, and none blocks keys.
    is_plain: bool,
}

/// A check on its way through the atomic step.
struct Slot {
    check: Check,
    /// Index into the locks; `None`: there is nothing to decide.
    lock: Option<usize>,
    /// The first check on the same state; it stands for all of them.
    leader: usize,
    answer: Option<Assessment>,
    /// When its units fit, where requests wait for them.
    instant: Option<Instant>,
    /// The number of the slots that it took.
    slot_number: Option<u64>,
    /// The block of its key.
    block: Option<ActiveBlock>,
    counted: Option<Counted>,
}

impl MemoryRuleStore {
    pub(super) fn new(rules: Arc<RuleSet>, shared: Arc<Tables>) -> Self {
        let bound = rules.rules().iter();
        let bound =
            bound.map(|rule| BoundRule::new(rule.is_enforced() && rule.block_setting().is_none()));
        let made = Self {
            clock: shared.clock.clone(),
            hasher: shared.hasher.clone(),
            bound: bound.collect(),
            is_plain: rules.all_enforced() && !rules.has_blocks(),
            rules,
            shared,
        };
        // States that are there stay in a table when the rules that have used them go.
        let rules = made.rules.rules().iter().enumerate();
        for index in made.shared.with_states(rules) {
            made.bind(index);
        }
        made
    }

    fn quotas(&self) -> MadeReady<'_> {
        MadeReady {
            rules: &self.rules,
            hasher: &self.hasher,
        }
    }

    /// The rule at this index on its table.
    #[cold]
    fn bind(&self, index: usize) -> &AnyRuleTable {
        self.bound[index].table_or(self.shared.bind_rule(&self.rules, index))
    }

    /// One enforced check: the same step with one lock, and a denial without any.
    ///
    /// The clock is read before the lock: an older time never lets more pass, and a denial is decided anew.
    ///
    /// Not inlined, so that each algorithm's step is compiled as a whole.
    #[inline(never)]
    fn acquire_one<A: Algorithm>(&self, rule: &RuleTable<A>, check: &Check) -> Step<Decision> {
        let Some(plan) = rule.plan(check) else {
            return Step::Ready(self.decide(from_ref(check), true, Tick::MAX));
        };
        let (key, cost) = (check.key(), check.cost());
        let shard = rule.table.shard_of(key);
        let now = self.clock.now();
        if let Some(answer) = rule.table.deny_from_cache(shard, key, plan, now, cost) {
            let verdict = Verdict::new(check.rule(), check.plan(), answer, Source::DenyCache);
            return Step::Ready(Decision::single(now, verdict, true));
        }
        let mut locked = Locked::new(&rule.table, shard);
        if let Some((answer, _)) = locked.try_acquire(key, plan, now, cost) {
            let mut verdict = Verdict::new(check.rule(), check.plan(), answer, Source::Store);
            if A::HOLDS_SLOTS {
                verdict = self.with_slots(&mut locked, verdict, cost);
            }
            drop(locked);
            return Step::Ready(Decision::single(now, verdict, true));
        }
        if plan.at_most > 0 {
            drop(locked);
            return Step::Ready(self.decide(from_ref(check), true, Tick::MAX));
        }
        let (now, answer) = locked.acquire_anew(key, plan, &self.clock, cost);
        let mut verdict = Verdict::new(check.rule(), check.plan(), answer, Source::Store);
        if A::HOLDS_SLOTS {
            verdict = self.with_slots(&mut locked, verdict, cost);
        }
        Step::Ready(Decision::single(now, verdict, true))
    }

    /// The same of a rule that blocks keys. A key that is blocked is denied without the lock.
    fn acquire_unless_blocked<A: Algorithm>(
        &self,
        rule: &RuleTable<A>,
        check: &Check,
    ) -> Step<Decision> {
        let (key, cost) = (check.key(), check.cost());
        let (Some(block), Some(plan)) = (&rule.block, rule.plan(check)) else {
            return Step::Ready(self.decide(from_ref(check), true, Tick::MAX));
        };
        if cost == 0 || cost > plan.limit || plan.at_most > 0 {
            return Step::Ready(self.decide(from_ref(check), true, Tick::MAX));
        }
        let shard = rule.table.shard_of(key);
        let now = self.clock.now();
        let verdict = |answer, source| Verdict::new(check.rule(), check.plan(), answer, source);
        let blocked = |now, active: ActiveBlock, answer, source| {
            let verdict = verdict(active.deny(answer, cost), source);
            let verdict = verdict.with_block_level(active.level);
            Step::Ready(Decision::new(now, [verdict], |_| true))
        };
        if let Some(active) = rule.table.block_from_cache(shard, key, plan, block, now) {
            let fresh = Assessment::new(true, plan.limit, 0, Retry::Now);
            return blocked(now, active, fresh, Source::DenyCache);
        }
        // Denials that count are decided under the lock.
        if block.counts_settled()
            && let Some(answer) = rule.table.deny_from_cache(shard, key, plan, now, cost)
        {
            let verdict = verdict(answer, Source::DenyCache);
            return Step::Ready(Decision::single(now, verdict, true));
        }
        let mut locked = Locked::new(&rule.table, shard);
        if let Some(active) = locked.block_of(key, block, now) {
            locked.blocked(key, plan, block, active, now);
            let answer = locked.assess(key, plan, now, cost);
            return blocked(now, active, answer, Source::Store);
        }
        if let Some((answer, _)) = locked.try_acquire(key, plan, now, cost) {
            let verdict = verdict(answer, Source::Store);
            return Step::Ready(Decision::single(now, verdict, true));
        }
        let (now, answer) = locked.acquire_anew(key, plan, &self.clock, cost);
        if !answer.fits && !block.counts_settled() {
            let counted = locked.count_for_block(key, plan, block, now);
            drop(locked);
            self.report(check.rule(), &counted);
            if let Some(active) = counted.began {
                return blocked(now, active, answer, Source::Store);
            }
        }
        let verdict = verdict(answer, Source::Store);
        Step::Ready(Decision::single(now, verdict, true))
    }

    /// Tells operators of a block that began, and of those that had to go for it.
    fn report(&self, rule: u16, counted: &Counted) {
        let Some(rule) = self.rules.rules().get(usize::from(rule)) else {
            return;
        };
        if let Some(began) = counted.began {
            block_began(rule, counted.key, began);
        }
        if let Some(evicted) = counted.evicted {
            blocks_evicted(rule, evicted);
        }
    }

    /// A verdict about slots, with their number if it took some. The lock is held, so that numbers are in the order of the
    /// takes.
    #[inline]
    fn with_slots<A: Algorithm>(
        &self,
        locked: &mut Locked<'_, A>,
        verdict: Verdict,
        cost: u64,
    ) -> Verdict {
        match verdict.outcome() {
            Outcome::Allow if cost > 0 => {
                verdict.with_slot_number(locked.next_slot_number(&self.shared.slot_numbers))
            }
            _ => verdict.of_slots(),
        }
    }

    /// A few enforced checks that all fit, on states that are there: one look at each, under locks that are taken in one
    /// order and held together. False where that is not so; then nothing was taken, and [`decide`](Self::decide) goes step
    /// by step.
    #[inline(always)]
    fn acquire_few(&self, checks: &[Check], decision: &mut Decision) -> bool {
        if checks.len() > FEW || !self.is_plain {
            return false;
        }
        let mut order = [0; FEW];
        let mut ranks = [0; FEW];
        for (index, check) in checks.iter().enumerate() {
            let rank = self.rank(check);
            // It has no table yet, or no limit.
            if rank == 0 {
                return false;
            }
            let mut at = index;
            while at > 0 && ranks[at - 1] >= rank {
                // Two checks of one rule, and perhaps of one state.
                if ranks[at - 1] == rank {
                    return false;
                }
                (order[at], ranks[at]) = (order[at - 1], ranks[at - 1]);
                at -= 1;
            }
            (order[at], ranks[at]) = (index, rank);
        }
        let order = &order[..checks.len()];
        if !self.take_next(order, checks, decision) {
            return false;
        }
        // Verdicts came in the order of the locks, which mostly is that of the checks.
        if !order.is_sorted() {
            let taken = std::mem::take(decision.verdicts_mut());
            for index in 0..checks.len() {
                let verdict = order.iter().position(|at| *at == index);
                decision.verdicts_mut().extend(verdict.map(|at| taken[at]));
            }
        }
        true
    }

    /// Where the rule of a check stands in the order of locks. Rules have tables of their own, but for thresholds.
    #[inline]
    fn rank(&self, check: &Check) -> u64 {
        self.bound
            .get(usize::from(check.rule()))
            .map_or(0, BoundRule::rank)
    }

    /// Takes the first of the checks in `order` under its lock, then the rest within it. What was taken is put back if
    /// one of the rest cannot be.
    #[inline]
    fn take_next(&self, order: &[usize], checks: &[Check], decision: &mut Decision) -> bool {
        let Some((&index, rest)) = order.split_first() else {
            return true;
        };
        let bound = self.bound.get(usize::from(checks[index].rule()));
        match bound.and_then(BoundRule::table) {
            Some(AnyRuleTable::Gcra(rule)) => self.take_in(rule, index, rest, checks, decision),
            Some(AnyRuleTable::FixedWindow(rule)) => {
                self.take_in(rule, index, rest, checks, decision)
            }
            Some(AnyRuleTable::SlidingWindow(rule)) => {
                self.take_in(rule, index, rest, checks, decision)
            }
            Some(AnyRuleTable::Concurrent(rule)) => {
                self.take_in(rule, index, rest, checks, decision)
            }
            // What is on the heap is not put back.
            _ => false,
        }
    }

    fn take_in<A: Algorithm>(
        &self,
        rule: &RuleTable<A>,
        index: usize,
        rest: &[usize],
        checks: &[Check],
        decision: &mut Decision,
    ) -> bool {
        let check = &checks[index];
        let Some(plan) = rule.plan(check) else {
            return false;
        };
        let mut locked = Locked::new(&rule.table, rule.table.shard_of(check.key()));
        let Some((answer, before)) =
            locked.try_acquire(check.key(), plan, decision.at(), check.cost())
        else {
            return false;
        };
        let mut verdict = Verdict::new(check.rule(), check.plan(), answer, Source::Store);
        if A::HOLDS_SLOTS {
            verdict = self.with_slots(&mut locked, verdict, check.cost());
        }
        decision.verdicts_mut().push(verdict);
        let all = self.take_next(rest, checks, decision);
        if !all {
            locked.put_back(before);
        }
        all
    }

    /// Locks the shards of all checks in one order.
    fn lock_all(&self, checks: &[Check]) -> (SmallVec<[AnyLocked<'_>; 4]>, SmallVec<[Slot; 4]>) {
        let positions: SmallVec<[Option<(u64, usize)>; 4]> = checks
            .iter()
            .map(|check| self.rule(check)?.lock_position(check, &self.quotas()))
            .collect();
        let mut order: SmallVec<[((u64, usize), u16); 4]> = positions
            .iter()
            .zip(checks)
            .filter_map(|(position, check)| position.map(|position| (position, check.rule())))
            .collect();
        order.sort_unstable();
        order.dedup_by_key(|(position, _)| *position);
        let locks = order
            .iter()
            .filter_map(|((_, shard), rule)| self.table(usize::from(*rule))?.lock(*shard))
            .collect();
        let mut slots: SmallVec<[Slot; 4]> = SmallVec::with_capacity(checks.len());
        for (index, (check, position)) in checks.iter().zip(&positions).enumerate() {
            let lock = position
                .and_then(|position| order.binary_search_by_key(&position, |(p, _)| *p).ok());
            // A threshold has a limit of its own on the state, so it is never folded into the rule it reads.
            let leader = (0..index)
                .find(|other| {
                    let (there, other) = (positions[*other], &checks[*other]);
                    position.is_some()
                        && there == *position
                        && other.rule() == check.rule()
                        && other.key() == check.key()
                })
                .unwrap_or(index);
            slots.push(Slot {
                check: *check,
                lock,
                leader,
                answer: None,
                instant: None,
                slot_number: None,
                block: None,
                counted: None,
            });
        }
        for index in 0..slots.len() {
            let leader = slots[index].leader;
            if leader != index {
                let cost = slots[leader]
                    .check
                    .cost()
                    .saturating_add(slots[index].check.cost());
                slots[leader].check = slots[leader].check.with_cost(cost);
            }
        }
        (locks, slots)
    }

    #[inline]
    fn rule(&self, check: &Check) -> Option<&AnyRuleTable> {
        self.table(usize::from(check.rule()))
    }

    /// The rule at this index on its table.
    #[inline(always)]
    fn table(&self, index: usize) -> Option<&AnyRuleTable> {
        let bound = self.bound.get(index)?;
        Some(match bound.table() {
            Some(table) => table,
            None => self.bind(index),
        })
    }

    /// Decides all checks under their locks, then takes all or nothing. The request waits for at most `patience` µs.
    fn decide(&self, checks: &[Check], take: bool, patience: u64) -> Decision {
        if let Some(denied) = Check::deny_two_plans(&self.rules, checks) {
            return denied;
        }
        let (mut locks, mut slots) = self.lock_all(checks);
        // Under the locks, as in `acquire_one`.
        let now = self.clock.now();
        let mut denied: SmallVec<[u16; 4]> = SmallVec::new();
        for (index, slot) in slots.iter_mut().enumerate() {
            let Some(lock) = slot.lock.filter(|_| slot.leader == index) else {
                continue;
            };
            let check = &slot.check;
            let Some(rule) = self.rule(check).filter(|_| !self.is_off(check)) else {
                continue;
            };
            with_locked!(rule, &locks[lock], (rule, locked) => {
                if let Some(plan) = rule.plan_of(check, &self.quotas()) {
                    let (key, cost) = (check.key(), check.cost());
                    let mut answer = locked.assess(key, &plan, now, cost);
                    let block = rule.block.as_ref();
                    slot.block = block.and_then(|block| locked.block_of(key, block, now));
                    if let Some(active) = slot.block {
                        // Its own queue says when the units fit, not the quota that wrote the state.
                        if plan.at_most > 0
                            && let Some(instant) = locked.instant(key, &plan, now, cost)
                            && !answer.fits
                            && answer.retry != Retry::Never
                            && self.rules.enforces(usize::from(check.rule()))
                        {
                            answer.retry = Retry::after_micros(instant.start - now);
                        }
                        answer = active.deny(answer, cost);
                    }
                    slot.answer = Some(answer);
                }
            }, else ());
            let fits = slot.answer.is_none_or(|answer| answer.fits);
            if !fits && self.rules.enforces(usize::from(check.rule())) {
                denied.push(check.rule());
            }
        }
        let start = match denied.is_empty() || !self.rules.has_waits() {
            true => None,
            false => self.queue(&mut slots, &locks, &mut denied, now, patience),
        };
        if !denied.is_empty() {
            for slot in &mut slots {
                self.tell_what_is_left(slot, &locks, now);
            }
        }
        let mut places = Places::new();
        match start {
            Some(start) if take => {
                for (index, slot) in slots.iter_mut().enumerate() {
                    places.extend(self.write_place(index, slot, &mut locks, start, now));
                }
            }
            None if take => {
                for slot in &mut slots {
                    self.write(slot, &mut locks, &denied, now);
                }
            }
            _ => {}
        }
        drop(locks);
        for slot in &slots {
            if let Some(counted) = &slot.counted {
                self.report(slot.check.rule(), counted);
            }
        }
        let verdicts: Verdicts = slots
            .iter()
            .map(|slot| {
                let (rule, plan) = (slot.check.rule(), slot.check.plan());
                let leader = &slots[slot.leader];
                let Some(answer) = leader.answer else {
                    return Verdict::unanswered(rule, plan, Outcome::NotDecided);
                };
                let mut verdict = Verdict::new(rule, plan, answer, Source::Store);
                if let Some(active) = leader.block {
                    verdict = verdict.with_block_level(active.level);
                }
                match (self.rule(&slot.check), leader.slot_number) {
                    (Some(AnyRuleTable::Concurrent(_)), Some(number)) => {
                        verdict.with_slot_number(number)
                    }
                    (Some(AnyRuleTable::Concurrent(_)), None) => verdict.of_slots(),
                    _ => verdict,
                }
            })
            .collect();
        let decision = Decision::new(now, verdicts, |verdict| self.rules.enforces(verdict.rule()));
        match start {
            Some(start) => decision.delayed(Duration::from_micros(start.start - now), places),
            None => decision,
        }
    }

    /// When a request starts that does not fit now: at the latest instant of the rules that wait for it. `None`: it does not, by
    /// then; the checks that wait too long, or that cannot, are in `denied`.
    fn queue(
        &self,
        slots: &mut [Slot],
        locks: &[AnyLocked<'_>],
        denied: &mut SmallVec<[u16; 4]>,
        now: Tick,
        patience: u64,
    ) -> Option<Instant> {
        let (mut start, mut at_most) = (Instant::new(now, now), patience);
        for slot in slots.iter_mut() {
            let (check, Some(lock), Some(_)) = (slot.check, slot.lock, slot.answer) else {
                continue;
            };

            let Some(rule) = self.rule(&check) else {
                continue;
            };
            with_locked!(rule, &locks[lock], (rule, locked) => {
                if let Some(plan) = rule.plan_of(&check, &self.quotas())
                    && plan.at_most > 0
                {
                    // A blocked key waits for nothing.
                    if slot.block.is_none() {
                        slot.instant = locked.instant(check.key(), &plan, now, check.cost());
                    }
                    if check.cost() > 0 && self.rules.enforces(usize::from(check.rule())) {
                        at_most = at_most.min(plan.at_most);
                        start = slot.instant.map_or(start, |instant| start.or_later(instant));
                    }
                }
            }, else ());
        }
        denied.clear();
        for slot in slots.iter_mut() {
            let rule = usize::from(slot.check.rule());
            let Some(answer) = slot.answer.as_mut().filter(|answer| !answer.fits) else {
                continue;
            };
            if !self.rules.enforces(rule) {
                continue;
            }
            match slot.instant.map(|instant| instant.start - now) {
                Some(wait) if wait <= at_most => {
                    answer.fits = true;
                    answer.retry = Retry::after_micros(wait);
                }
                Some(wait) => {
                    answer.retry = Retry::after_micros(wait - at_most);
                    denied.push(slot.check.rule());
                }
                None => denied.push(slot.check.rule()),
            }
        }
        denied.is_empty().then_some(start)
    }

    /// Takes the place of a check in a queue that begins at `start`. Rules that do not wait are charged when the request
    /// starts.
    fn write_place(
        &self,
        index: usize,
        slot: &mut Slot,
        locks: &mut [AnyLocked<'_>],
        start: Instant,
        now: Tick,
    ) -> Option<QueuePlace> {
        let (lock, check) = (slot.lock?, slot.check);
        let answer = slot.answer.as_mut()?;
        let rule = self.rule(&check)?;
        let is_enforced = self.rules.enforces(usize::from(check.rule()));
        let Some(instant) = slot.instant.filter(|_| check.cost() > 0) else {
            if is_enforced && answer.fits {
                with_locked!(rule, &locks[lock], (rule, locked) => {
                    if let Some(plan) = rule.plan_of(&check, &self.quotas()) {
                        *answer = locked.assess(check.key(), &plan, now, 0);
                    }
                }, else ());
            }
            return None;
        };
        // A shadow is decided at the instant of the others, and never moves it.
        answer.fits = instant.start <= start.start;
        if !answer.fits {
            self.count_denial(slot, locks, now);
            return None;
        }
        with_locked!(rule, &mut locks[lock], (rule, locked) => {
            let plan = rule.plan_of(&check, &self.quotas())?;
            let (before, then) = locked.take_from(check.key(), &plan, now, start, check.cost())?;
            *answer = then;
            let fresh_at = start.start.saturating_add(then.reset_after);
            let taken = Taken::new(now, fresh_at);
            // A request has few checks.
            is_enforced.then(|| QueuePlace::new(index as u16, check.cost(), taken, before))
        }, else None)
    }

    /// A rule that would have let a denied request pass keeps its units: its numbers are those before a take.
    #[cold]
    fn tell_what_is_left(&self, slot: &mut Slot, locks: &[AnyLocked<'_>], now: Tick) {
        let (Some(lock), Some(answer)) = (slot.lock, &mut slot.answer) else {
            return;
        };
        let check = &slot.check;
        if !answer.fits || slot.block.is_some() || !self.rules.enforces(usize::from(check.rule())) {
            return;
        }
        let Some(rule) = self.rule(check) else { return };
        with_locked!(rule, &locks[lock], (rule, locked) => {
            if let Some(plan) = rule.plan_of(check, &self.quotas()) {
                *answer = locked.assess(check.key(), &plan, now, 0);
            }
        }, else ());
    }

    /// Takes the units of a check, or what a denial leaves to be done.
    fn write(&self, slot: &mut Slot, locks: &mut [AnyLocked<'_>], denied: &[u16], now: Tick) {
        let (Some(lock), Some(answer)) = (slot.lock, slot.answer) else {
            return;
        };
        let check = &slot.check;
        let Some(rule) = self.rule(check) else { return };
        let index = usize::from(check.rule());
        let takes = match self.rules.rules()[index].mode() {
            Mode::Threshold { .. } | Mode::Off => return,
            // Only what runs holds slots, and a denied request does not.
            Mode::Shadow if matches!(rule, AnyRuleTable::Concurrent(_)) => {
                answer.fits && denied.is_empty()
            }
            // As if it were alone.
            Mode::Shadow => answer.fits,
            Mode::Enforce => denied.is_empty(),
        };
        if takes
            && check.cost() > 0
            && let AnyLocked::Concurrent(locked) = &mut locks[lock]
        {
            slot.slot_number = Some(locked.next_slot_number(&self.shared.slot_numbers));
        }
        let check = &slot.check;
        with_locked!(rule, &mut locks[lock], (rule, locked) => {
            if let Some(plan) = rule.plan_of(check, &self.quotas()) {
                if takes {
                    locked.take(check.key(), &plan, now, check.cost());
                } else if !answer.fits && slot.block.is_none() {
                    locked.denied(check.key(), &plan, now);
                }
            }
        }, else ());
        if let Some(active) = slot.block {
            let check = &slot.check;
            with_locked!(rule, &mut locks[lock], (rule, locked) => {
                if let Some((block, plan)) = rule.block.as_ref().zip(rule.plan_of(check, &self.quotas())) {
                    locked.blocked(check.key(), &plan, block, active, now);
                }
            }, else ());
        } else if !takes && !answer.fits {
            self.count_denial(slot, locks, now);
        }
    }

    /// Counts a denial for want of units towards the block of its key.
    fn count_denial(&self, slot: &mut Slot, locks: &mut [AnyLocked<'_>], now: Tick) {
        let (Some(lock), Some(answer), None) = (slot.lock, slot.answer, slot.block) else {
            return;
        };
        let check = slot.check;
        let Some(rule) = self.rule(&check) else {
            return;
        };
        slot.counted = with_locked!(rule, &mut locks[lock], (rule, locked) => {
            let block = rule.block.as_ref().filter(|block| !block.counts_settled());
            let plan = rule.plan_of(&check, &self.quotas());
            block
                .filter(|_| answer.retry != Retry::Never)
                .zip(plan)
                .map(|(block, plan)| locked.count_for_block(check.key(), &plan, block, now))
        }, else None);
        slot.block = slot.counted.as_ref().and_then(|counted| counted.began);
        if let Some(active) = slot.block {
            slot.answer = Some(active.deny(answer, check.cost()));
        }
    }

    #[inline]
    fn is_off(&self, check: &Check) -> bool {
        matches!(
            self.rules
                .rules()
                .get(usize::from(check.rule()))
                .map(crate::rule::Rule::mode),
            None | Some(Mode::Off)
        )
    }
}

impl Drop for MemoryRuleStore {
    /// The last one that uses a name leaves its states packed.
    fn drop(&mut self) {
        self.shared.release(&self.rules, &mut self.bound);
    }
}

impl RuleStore for MemoryRuleStore {
    fn rules(&self) -> &Arc<RuleSet> {
        &self.rules
    }

    fn can_fail(&self) -> bool {
        false
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    #[inline]
    fn fingerprint(&self, _rule: u16, key: &KeyBuf) -> Fingerprint {
        self.hasher.fingerprint(key)
    }

    #[inline]
    fn acquire(&self, checks: &[Check]) -> Step<Decision> {
        if let [check] = checks
            && let index = usize::from(check.rule())
            && let Some(bound) = self.bound.get(index)
            && bound.is_plain
        {
            let rule = match bound.table() {
                Some(table) => table,
                None => self.bind(index),
            };
            return with_table!(rule, rule => self.acquire_one(rule, check), else {
                Step::Ready(self.decide(checks, true, Tick::MAX))
            });
        }
        // Filled where it lies: a decision is large to move.
        let mut step = Step::Ready(Decision::unlimited(self.clock.now()));
        if let Step::Ready(decision) = &mut step
            && self.acquire_few(checks, decision)
        {
            return step;
        }
        if let [check] = checks
            && self.rules.enforces(usize::from(check.rule()))
            && let Some(rule) = self.rule(check)
        {
            return with_table!(rule, rule => self.acquire_unless_blocked(rule, check), else {
                Step::Ready(self.decide(checks, true, Tick::MAX))
            });
        }
        Step::Ready(self.decide(checks, true, Tick::MAX))
    }

    fn acquire_within(&self, checks: &[Check], patience: Duration) -> Step<Decision> {
        Step::Ready(self.decide(checks, true, micros(patience)))
    }

    fn supports_wait(&self) -> bool {
        true
    }

    fn peek(&self, checks: &[Check]) -> Step<Decision> {
        Step::Ready(self.decide(checks, false, Tick::MAX))
    }

    fn settle(&self, receipts: &[Receipt], how: Settlement) {
        for receipt in receipts.iter().filter(|receipt| receipt.check.cost() > 0) {
            let check = &receipt.check;
            let Some(rule) = self.rule(check) else {
                continue;
            };
            with_table!(rule, rule => {
                if let Some(plan) = rule.plan_of(check, &self.quotas()) {
                    let mut locked = Locked::new(&rule.table, rule.table.shard_of(check.key()));
                    let now = self.clock.now();
                    locked.settle(check.key(), &plan, now, receipt, how);
                    if let Some(block) = rule.block.as_ref().filter(|_| receipt.counts) {
                        let counted = locked.count_for_block(check.key(), &plan, block, now);
                        drop(locked);
                        self.report(check.rule(), &counted);
                    }
                }
                self.shared.slot_waiters.wake(receipt.check.key());
            }, else ());
        }
    }

    fn reset(&self, checks: &[Check]) -> Step<Result<bool, StoreError>> {
        let now = self.clock.now();
        let mut was_kept = false;
        for check in checks.iter().filter(|check| check.cost() > 0) {
            let Some(rule) = self.rule(check) else {
                continue;
            };
            was_kept |= with_table!(rule, rule => {
                Locked::new(&rule.table, rule.table.shard_of(check.key())).reset(check.key(), now)
            }, else false);
            self.shared.slot_waiters.wake(check.key());
        }
        Step::Ready(Ok(was_kept))
    }

    fn supports_slots(&self) -> bool {
        true
    }

    fn release(&self, slots: &[HeldSlot]) {
        for slot in slots {
            if let Some(AnyRuleTable::Concurrent(rule)) = self.table(usize::from(slot.rule)) {
                let table = &rule.table;
                Locked::new(table, table.shard_of(slot.key)).release(slot.key, slot.slots);
                self.shared.slot_waiters.wake(slot.key);
            }
        }
    }

    fn slot_waiters(&self) -> Option<&SlotWaiters> {
        Some(&self.shared.slot_waiters)
    }

    fn carry_over(&self, replaced: &RuleSet) {
        for (index, after) in self.rules.given().iter().enumerate() {
            let before = replaced.given_as(after.name());
            let before = before.filter(|before| Family::of(before) != Family::of(after));
            if let Some(before) = before
                && (self.shared.has_states(before) || self.shared.has_states(after))
            {
                self.bind(index);
                self.shared.carry_over(before, after);
            }
        }
    }

    fn usage(&self, rule: u16) -> Option<Usage> {
        match self.bound.get(usize::from(rule))?.table() {
            Some(rule) => {
                with_table!(rule, rule => Some(rule.table.usage(self.clock.now())), else None)
            }
            None => Some(Usage::default()),
        }
    }

    fn lapsed_units(&self, rule: u16) -> u64 {
        match self.table(usize::from(rule)) {
            Some(rule) => with_table!(rule, rule => rule.table.lapsed_units(), else 0),
            None => 0,
        }
    }
}
