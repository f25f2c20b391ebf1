//! What the memory store answers to a request.
//!
//! Most requests have few checks, which all fit: each is looked at once, under its lock, and taken when the rest has its answer.
//! Everything else is [decided step by step](MemoryRuleStore::decide).

use std::{cell::Cell, slice::from_ref, sync::Arc, time::Duration};

use crate::{
    algorithm::Algorithm,
    check::Check,
    credits::{Balance, CreditChange, CreditState},
    decision::{Decision, Verdict},
    error::StoreError,
    hold::{Hold, Settlement},
    key::{Fingerprint, KeyBuf},
    memory::{
        family::Family,
        locked::Locked,
        plan::Plan,
        rule_store::MemoryRuleStore,
        rule_table::{AnyRuleTable, RuleTable, with_table},
        table::Place,
    },
    rule_set::RuleSet,
    source::Source,
    step::Step,
    store::{
        rule_store::{PaidHook, ReservationStore, RuleStore, Usage},
        slot_waiters::SlotWaiters,
    },
    time::{Clock, Tick, micros},
};

/// As many checks as most requests have at most.
const FEW: usize = 4;

impl MemoryRuleStore {
    /// One check. Its rule is bound to its table when it is first decided.
    fn acquire_one(&self, check: &Check) -> Step<Decision> {
        if let Some(bound) = self.bound.get(usize::from(check.rule()))
            && let Some(rule) = bound.table.get().filter(|_| bound.is_enforced)
        {
            with_table!(rule, rule => return self.acquire_in(rule, check), else ());
        }
        Step::Ready(self.decide(from_ref(check), true, Tick::MAX))
    }

    /// One check of an enforced rule. A denial of a key that is over its limit, or blocked, takes no lock.
    // Not inlined: the six algorithms in one function have one frame, and too few registers.
    #[inline(never)]
    fn acquire_in<A: Algorithm>(&self, rule: &RuleTable<A>, check: &Check) -> Step<Decision> {
        if let Some(plan) = rule.plan(check) {
            let (now, place) = (self.clock.now(), rule.table.place(check.key()));
            let denials = place.denials(check.key());
            if !denials.is_empty()
                && let Some(verdict) = rule.deny_without_lock(plan, check, now, denials)
            {
                return Step::Ready(Decision::of_one(now, verdict, true));
            }
            if let Some(verdict) = self.take_in(rule, plan, check, now, place, Some) {
                return Step::Ready(Decision::allowed(now, verdict));
            }
        }
        Step::Ready(self.decide(from_ref(check), true, Tick::MAX))
    }

    /// Takes a check that fits, unless `then` says not to: those whose locks come later in the order do not fit. `None`: nothing was
    /// taken.
    ///
    /// The clock was read before the lock: an older time never lets more pass, and what does not fit is [decided](Self::decide) anew.
    #[inline(always)]
    fn take_in<A: Algorithm, T>(
        &self,
        rule: &RuleTable<A>,
        plan: &Plan<A>,
        check: &Check,
        now: Tick,
        place: &Place<A>,
        then: impl FnOnce(Verdict) -> Option<T>,
    ) -> Option<T> {
        let (key, cost) = (check.key(), check.cost());
        let mut locked = Locked::new(&rule.table, place);
        if let Some(block) = &rule.block {
            locked
                .shard
                .block_of(key, block, now)
                .is_none()
                .then_some(())?;
        }
        // Under the lock, so that numbers are in the order of the takes. One that is not used is left out.
        let number = match A::HOLDS_SLOTS && cost > 0 {
            true => locked.next_slot_number(&self.shared.slot_numbers),
            false => 0,
        };
        locked.take_fitting(check, plan, now, |answer| {
            let verdict = Verdict::new(check.rule(), check.plan(), answer, Source::Store);
            then(match A::HOLDS_SLOTS {
                true => verdict.with_slot_number(number),
                false => verdict,
            })
        })
    }

    /// A few enforced checks of several rules mostly all fit: they are taken under locks that are held together.
    // Not inlined: its frame would be that of each check (25 of 400 instructions).
    #[inline(never)]
    fn acquire_several(&self, checks: &[Check]) -> Step<Decision> {
        let mut numbers = [0; FEW];
        let order = numbers.get_mut(..checks.len()).and_then(|order| {
            self.order(checks, order)?;
            Some(&*order)
        });
        let (now, verdicts) = (self.clock.now(), [const { Cell::new(None) }; FEW]);
        let several = Several {
            store: self,
            checks,
            verdicts: &verdicts,
            now,
        };
        match order.and_then(|order| several.take(order)) {
            Some(()) => Step::Ready(Decision::all_allowed(now, &verdicts)),
            None => Step::Ready(self.decide(checks, true, Tick::MAX)),
        }
    }

    /// The checks in the order of their locks: each a number whose remainder is its index. `None`: a rule is not enforced or has no
    /// table yet, or two checks are of one rule, and perhaps of one state.
    fn order(&self, checks: &[Check], order: &mut [u64]) -> Option<()> {
        for (index, check) in checks.iter().enumerate() {
            let bound = self.bound.get(usize::from(check.rule()))?;
            let table = bound.table.get().filter(|_| bound.is_enforced)?;
            order[index] = table.rank() * FEW as u64 + index as u64;
        }
        let is_next = |two: &[u64]| two[0] / (FEW as u64) < two[1] / FEW as u64;
        if !order.windows(2).all(is_next) {
            order.sort_unstable();
            return order.windows(2).all(is_next).then_some(());
        }
        Some(())
    }
}

/// Checks whose locks are held together.
struct Several<'a> {
    store: &'a MemoryRuleStore,
    checks: &'a [Check],
    /// In the order of the checks.
    verdicts: &'a [Cell<Option<Verdict>>; FEW],
    now: Tick,
}

impl Several<'_> {
    /// Takes the first of the checks in `order` under its lock, if the rest can be taken within it.
    fn take(&self, order: &[u64]) -> Option<()> {
        let Some((first, rest)) = order.split_first() else {
            return Some(());
        };
        let index = *first as usize % FEW;
        with_table!(self.store.rule(&self.checks[index])?, rule => {
            self.take_first(rule, index, rest)
        }, else None)
    }

    fn take_first<A: Algorithm>(
        &self,
        rule: &RuleTable<A>,
        index: usize,
        rest: &[u64],
    ) -> Option<()> {
        let check = &self.checks[index];
        let place = rule.table.place(check.key());
        let plan = rule.plan(check)?;
        (self.store).take_in(rule, plan, check, self.now, place, |verdict| {
            self.verdicts[index].set(Some(verdict));
            match rest.is_empty() {
                true => Some(()),
                false => self.take(rest),
            }
        })
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

    fn fingerprint(&self, _rule: u16, key: &KeyBuf) -> Fingerprint {
        self.hasher.fingerprint(key)
    }

    fn acquire(&self, checks: &[Check]) -> Step<Decision> {
        match checks {
            [check] => self.acquire_one(check),
            _ => self.acquire_several(checks),
        }
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

    fn settle(&self, holds: &[Hold], how: Settlement) {
        for hold in holds.iter().filter(|hold| hold.check.cost() > 0) {
            let check = &hold.check;
            let Some(rule) = self.rule(check) else {
                continue;
            };
            with_table!(rule, rule => {
                if let Some(plan) = rule.plan_of(check, &self.quotas()) {
                    let mut locked = Locked::new(&rule.table, rule.table.place(check.key()));
                    let now = self.clock.now();
                    let is_whole = match how {
                        Settlement::Refund(units) => units >= check.cost(),
                        Settlement::Cancel => true,
                        Settlement::Charge(_) => false,
                    };
                    let comes_back = match rule.id_of(check).filter(|_| is_whole) {
                        Some((rule, id)) => (locked.shard).change_ids(check.key(), now, |seen| {
                            rule.forget(seen, id, hold.taken.at, now)
                        }),
                        None => true,
                    };
                    if comes_back {
                        let left = || locked.assess(check.key(), &plan, now, 0).remaining;
                        let how = match self.rules.has_credits() || hold.source == Source::Credits {
                            true => self.settle_credits(hold, how, now, left),
                            false => how,
                        };
                        locked.settle(check.key(), &plan, now, hold, how);
                    }
                    if let Some(block) = rule.block.as_ref().filter(|_| hold.counts) {
                        let counted = locked.count_for_block(check.key(), &plan, block, now);
                        drop(locked);
                        self.report(check.rule(), &counted);
                    }
                }
                self.shared.slot_waiters.wake(hold.check.key());
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
                Locked::new(&rule.table, rule.table.place(check.key())).reset(check.key(), now)
            }, else false);
            self.shared.slot_waiters.wake(check.key());
        }
        Step::Ready(Ok(was_kept))
    }

    fn supports_credits(&self) -> bool {
        true
    }

    fn credits(&self, check: &Check, change: CreditChange) -> Step<Result<Balance, StoreError>> {
        Step::Ready(self.change_credits(check, |state, now| state.change(now, change)))
    }

    fn restore_credits(
        &self,
        check: &Check,
        state: &CreditState,
    ) -> Step<Result<Balance, StoreError>> {
        Step::Ready(self.change_credits(check, |present, now| {
            if present.until() > now {
                return Ok(0);
            }
            *present = state.clone();
            Ok(state.units(now))
        }))
    }

    fn paid(&self) -> Option<&PaidHook> {
        Some(&self.paid)
    }

    fn supports_slots(&self) -> bool {
        true
    }

    fn release(&self, slots: &[Hold]) {
        for slot in slots {
            let key = slot.check.key();
            if let Some(AnyRuleTable::Concurrent(rule)) = self.rule(&slot.check) {
                let table = &rule.table;
                Locked::new(table, table.place(key)).release(key, slot.check.cost());
                self.shared.slot_waiters.wake(key);
            }
        }
    }

    fn slot_waiters(&self) -> Option<&SlotWaiters> {
        Some(&self.shared.slot_waiters)
    }

    fn reservations(&self) -> Option<&dyn ReservationStore> {
        Some(self)
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
        match self.bound.get(usize::from(rule))?.table.get() {
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
