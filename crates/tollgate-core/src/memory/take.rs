//! Checks that all fit, as those of most requests: each is looked at once, under its lock, and taken when the rest has its answer.
//!
//! Where one does not fit, or there is more to look at than the state under its own quota, nothing is taken, and the request is
//! [decided](super::decide) anew.

use std::{mem, slice::from_ref};

use crate::{
    algorithm::Algorithm,
    check::Check,
    decision::{Decision, Outcome, Verdict},
    held_slots::HeldSlots,
    hold::Source,
    memory::{
        locked::Locked,
        rule_store::MemoryRuleStore,
        rule_table::{AnyRuleTable, RuleTable, with_table},
        table::Place,
    },
    step::Step,
    time::Tick,
};

/// As many checks as most requests have at most.
const FEW: usize = 4;

impl MemoryRuleStore {
    /// One check. A denial of a key that is over its limit, or blocked, takes no lock.
    #[inline(always)]
    pub(super) fn take_one(&self, check: &Check) -> Step<Decision> {
        if let Some(rule) = self.enforced(check) {
            with_table!(rule, rule => return self.take_of(rule, check), else ());
        }
        Step::Ready(self.decide_under_locks(from_ref(check), true, Tick::MAX))
    }

    /// The table of an enforced rule that was decided before: it is bound to its table then.
    fn enforced(&self, check: &Check) -> Option<&AnyRuleTable> {
        let bound = self.bound.get(usize::from(check.rule()))?;
        bound.table.get().filter(|_| bound.is_enforced)
    }

    fn take_of<A: Algorithm>(&self, rule: &RuleTable<A>, check: &Check) -> Step<Decision> {
        let (now, place) = (self.clock.now(), rule.table.place(check.key()));
        let denials = place.denials(check.key());
        if !denials.is_empty()
            && let Some(plan) = rule.plan(check)
            && let Some(verdict) = rule.deny_without_lock(plan, check, now, denials)
        {
            return Step::Ready(Decision::of_one(now, verdict, true));
        }
        let mut slots = None;
        if let Some(verdict) = self.take_in(rule, check, now, place, &mut slots, Some) {
            let mut decision = Decision::allowed(now, verdict);
            match A::HOLDS_SLOTS {
                true => decision.set_slots(slots),
                // There are none, which the compiler does not know.
                false => mem::forget(slots),
            }
            return Step::Ready(decision);
        }
        Step::Ready(self.decide_under_locks(from_ref(check), true, Tick::MAX))
    }

    /// Takes a check that fits, unless `then` says not to: those whose locks come later in the order do not fit. `None`: nothing was
    /// taken.
    ///
    /// The clock was read before the lock: an older time never lets more pass, and what does not fit, or has no state since, is decided
    /// anew.
    #[inline(always)]
    fn take_in<A: Algorithm, T>(
        &self,
        rule: &RuleTable<A>,
        check: &Check,
        now: Tick,
        place: &Place<A>,
        slots: &mut Option<HeldSlots>,
        then: impl FnOnce(Verdict) -> Option<T>,
    ) -> Option<T> {
        let (plan, key, cost) = (rule.plan(check)?, check.key(), check.cost());
        let mut locked = Locked::new(&rule.table, place);
        if let Some(block) = &rule.block
            && locked.shard.block_of(key, block, now).is_some()
        {
            return None;
        }
        // Under the lock, so that numbers are in the order of the takes. One that is not used is left out.
        let number = match A::HOLDS_SLOTS && cost > 0 {
            true => locked.shard.next_slot_number(&self.shared.last_slot_number),
            false => 0,
        };
        let taken = locked.take_fitting(check, plan, now, slots, |answer| {
            let verdict = Verdict::new(check.rule(), check.plan(), answer, Source::Store);
            then(match A::HOLDS_SLOTS {
                true => verdict.of_slots(Some(number)),
                false => verdict,
            })
        })?;
        drop(locked);
        Some(taken)
    }

    /// A few enforced checks of several rules, under locks that are held together.
    pub(super) fn take_several(&self, checks: &[Check]) -> Step<Decision> {
        let mut several = Several {
            store: self,
            now: self.clock.now(),
            verdicts: [const { Verdict::unanswered(0, 0, Outcome::NotDecided) }; FEW],
            slots: None,
        };
        match self.take_in_order(checks, &mut several) {
            Some(()) => {
                let verdicts = &several.verdicts[..checks.len()];
                let mut decision = Decision::all_allowed(several.now, verdicts);
                if let Some(slots) = several.slots {
                    decision.set_slots(Some(slots));
                }
                Step::Ready(decision)
            }
            None => Step::Ready(self.decide_under_locks(checks, true, Tick::MAX)),
        }
    }

    /// `None`: nothing was taken. They do not all fit, a rule is not enforced or has no table yet, or two checks are of one rule, and
    /// perhaps of one state.
    fn take_in_order<'a>(&'a self, checks: &'a [Check], several: &mut Several<'_>) -> Option<()> {
        let place = |(index, check)| {
            let rule = self.enforced(check)?;
            Some(LockPlace { rule, check, index })
        };
        let mut order = [place((0, checks.first()?))?; FEW];
        let order = order.get_mut(..checks.len())?;
        for (to, check) in order.iter_mut().zip(checks.iter().enumerate()).skip(1) {
            *to = place(check)?;
        }
        let is_next = |two: &[LockPlace<'_>]| two[0].rule.rank() < two[1].rule.rank();
        if !order.windows(2).all(is_next) {
            order.sort_unstable_by_key(|place| place.rule.rank());
            order.windows(2).all(is_next).then_some(())?;
        }
        several.take(order)
    }
}

/// A check and its table, in the order of locks.
#[derive(Clone, Copy)]
struct LockPlace<'a> {
    rule: &'a AnyRuleTable,
    check: &'a Check,
    index: usize,
}

/// Checks whose locks are held together.
struct Several<'a> {
    store: &'a MemoryRuleStore,
    now: Tick,
    /// In the order of the checks.
    verdicts: [Verdict; FEW],
    slots: Option<HeldSlots>,
}

impl Several<'_> {
    /// Takes the first of the checks in `order` under its lock, if the rest can be taken within it.
    fn take(&mut self, order: &[LockPlace<'_>]) -> Option<()> {
        let Some((first, rest)) = order.split_first() else {
            return Some(());
        };
        with_table!(first.rule, rule => self.take_first(rule, first, rest), else None)
    }

    // Not inlined: the six algorithms in one function have one frame, and too few registers.
    #[inline(never)]
    fn take_first<A: Algorithm>(
        &mut self,
        rule: &RuleTable<A>,
        first: &LockPlace<'_>,
        rest: &[LockPlace<'_>],
    ) -> Option<()> {
        let (store, now, check) = (self.store, self.now, first.check);
        let place = rule.table.place(check.key());
        let mut slots = None;
        store.take_in(rule, check, now, place, &mut slots, |verdict| {
            self.verdicts[first.index] = verdict;
            self.take(rest)
        })?;
        match A::HOLDS_SLOTS {
            true => self.slots = HeldSlots::both(self.slots.take(), slots),
            // There are none, which the compiler does not know.
            false => mem::forget(slots),
        }
        Some(())
    }
}
