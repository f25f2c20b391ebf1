//! What the memory store answers to a request.
//!
//! Most requests have few checks, which all fit: each is looked at once, under its lock, and taken when the rest has its answer.
//! Everything else is [decided step by step](MemoryRuleStore::decide).

use std::{slice::from_ref, sync::Arc, time::Duration};

use crate::{
    algorithm::Algorithm,
    check::Check,
    decision::{Decision, Outcome, Verdict},
    error::StoreError,
    hold::{Hold, Settlement},
    key::{Fingerprint, KeyBuf},
    memory::{
        family::Family,
        locked::Locked,
        rule_store::MemoryRuleStore,
        rule_table::{AnyRuleTable, RuleTable, with_table},
    },
    rule_set::RuleSet,
    source::Source,
    step::Step,
    store::{
        rule_store::{RuleStore, Usage},
        slot_waiters::SlotWaiters,
    },
    time::{Clock, Tick, micros},
};

/// As many checks as most requests have at most.
const FEW: usize = 4;

impl MemoryRuleStore {
    /// One check. Its rule is bound to its table when it is first decided.
    fn acquire_one(&self, check: &Check) -> Decision {
        if let Some(bound) = self.bound.get(usize::from(check.rule()))
            && let Some(rule) = bound.table().filter(|_| bound.is_enforced)
        {
            with_table!(rule, rule => return self.acquire_in(rule, check), else ());
        }
        self.decide(from_ref(check), true, Tick::MAX)
    }

    /// One check of an enforced rule. A denial of a key that is over its limit, or blocked, takes no lock.
    fn acquire_in<A: Algorithm>(&self, rule: &RuleTable<A>, check: &Check) -> Decision {
        let now = self.clock.now();
        if let Some(verdict) = rule.deny_without_lock(check, now) {
            return Decision::of_one(now, verdict, true);
        }
        match self.take_in(rule, check, now, Some) {
            Some(verdict) => Decision::allowed(now, verdict),
            None => self.decide(from_ref(check), true, Tick::MAX),
        }
    }

    /// Takes a check that fits, if `then` has an answer to it: that of the whole request, or of the checks whose locks come later in
    /// the order. `None`: nothing was taken.
    ///
    /// The clock was read before the lock: an older time never lets more pass, and what does not fit is [decided](Self::decide) anew.
    #[inline(always)]
    fn take_in<A: Algorithm, T>(
        &self,
        rule: &RuleTable<A>,
        check: &Check,
        now: Tick,
        then: impl FnOnce(Verdict) -> Option<T>,
    ) -> Option<T> {
        let plan = rule.plan(check)?;
        let (key, cost) = (check.key(), check.cost());
        let mut locked = Locked::new(&rule.table, rule.table.shard_of(key));
        if let Some(block) = &rule.block {
            locked.block_of(key, block, now).is_none().then_some(())?;
        }
        let (answer, after) = locked.fitting(key, plan, now, cost)?;
        let mut verdict = Verdict::new(check.rule(), check.plan(), answer, Source::Store);
        if A::HOLDS_SLOTS {
            // Under the lock, so that numbers are in the order of the takes.
            verdict = match cost {
                0 => verdict.of_slots(),
                _ => verdict.with_slot_number(locked.next_slot_number(&self.shared.slot_numbers)),
            };
        }
        let answered = then(verdict)?;
        locked.write(key, plan, now, cost, after);
        Some(answered)
    }

    /// A few enforced checks of several rules that all fit, under locks that are taken in one order and held together.
    fn acquire_few(&self, checks: &[Check]) -> Option<Decision> {
        let mut order = [(0, 0); FEW];
        let order = order.get_mut(..checks.len())?;
        for (index, (check, at)) in checks.iter().zip(&mut *order).enumerate() {
            let bound = self.bound.get(usize::from(check.rule()))?;
            // One that has no table yet, or no limit, has no rank.
            let rank = Some(bound.rank()).filter(|rank| *rank > 0 && bound.is_enforced)?;
            *at = (rank, index);
        }
        order.sort_unstable();
        // Two checks of one rule are perhaps of one state.
        if order.windows(2).any(|two| two[0].0 == two[1].0) {
            return None;
        }
        let now = self.clock.now();
        let nothing = Verdict::unanswered(0, 0, Outcome::NotDecided);
        let mut verdicts = vec![nothing; checks.len()].into_boxed_slice();
        self.take_next(order, checks, now, &mut verdicts)?;
        Some(Decision::allowed_all(now, verdicts))
    }

    /// Takes the first of the checks in `order` under its lock, if the rest can be taken within it.
    fn take_next(
        &self,
        order: &[(u64, usize)],
        checks: &[Check],
        now: Tick,
        verdicts: &mut [Verdict],
    ) -> Option<()> {
        let Some((&(_, index), rest)) = order.split_first() else {
            return Some(());
        };
        let check = &checks[index];
        with_table!(self.rule(check)?, rule => {
            self.take_in(rule, check, now, |verdict| {
                verdicts[index] = verdict;
                self.take_next(rest, checks, now, verdicts)
            })
        }, else None)
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
        Step::Ready(match checks {
            [check] => self.acquire_one(check),
            _ => self
                .acquire_few(checks)
                .unwrap_or_else(|| self.decide(checks, true, Tick::MAX)),
        })
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
                    let mut locked = Locked::new(&rule.table, rule.table.shard_of(check.key()));
                    let now = self.clock.now();
                    locked.settle(check.key(), &plan, now, hold, how);
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
                Locked::new(&rule.table, rule.table.shard_of(check.key())).reset(check.key(), now)
            }, else false);
            self.shared.slot_waiters.wake(check.key());
        }
        Step::Ready(Ok(was_kept))
    }

    fn supports_slots(&self) -> bool {
        true
    }

    fn release(&self, slots: &[Hold]) {
        for slot in slots {
            let key = slot.check.key();
            if let Some(AnyRuleTable::Concurrent(rule)) = self.rule(&slot.check) {
                let table = &rule.table;
                Locked::new(table, table.shard_of(key)).release(key, slot.check.cost());
                self.shared.slot_waiters.wake(key);
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
