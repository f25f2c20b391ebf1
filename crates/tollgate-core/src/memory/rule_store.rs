//! A rule set on the memory store: what it answers, and what is settled later.
//!
//! A request that is to pass is taken in [`take`](super::take) where it fits, and decided in [`decide`](super::decide) where it may not.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use crate::{
    check::Check,
    credits::{Balance, CreditChange, CreditState},
    decision::Decision,
    error::StoreError,
    hold::{Hold, Settlement},
    key::{Fingerprint, KeyBuf},
    memory::{
        family::Family,
        hasher::Hasher,
        locked::{Counted, Locked},
        rule_table::{AnyRuleTable, BoundRule, MadeReady, with_table},
        tables::Tables,
    },
    observe::{block_began, observer::blocks_evicted},
    rule_set::RuleSet,
    slot_waiters,
    source::Source,
    step::Step,
    store::rule_store::{PaidHook, ReservationStore, RuleStore, Usage},
    sync::Ordering,
    time::{Clock, Tick, micros},
};

/// How often who waits looks by itself while slots of reservations end by themselves.
const POLL_TERMS: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct MemoryRuleStore {
    pub(super) rules: Arc<RuleSet>,
    pub(super) bound: Box<[BoundRule]>,
    pub(super) clock: Clock,
    pub(super) hasher: Hasher,
    pub(super) shared: Arc<Tables>,
    pub(super) paid: PaidHook,
}

impl MemoryRuleStore {
    pub(super) fn new(rules: Arc<RuleSet>, shared: Arc<Tables>) -> Self {
        let bound = rules.rules().iter();
        let bound = bound.map(|rule| BoundRule {
            is_enforced: rule.is_enforced(),
            table: OnceLock::new(),
        });
        let made = Self {
            clock: shared.clock.clone(),
            hasher: shared.hasher.clone(),
            bound: bound.collect(),
            paid: PaidHook::default(),
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

    pub(super) fn quotas(&self) -> MadeReady<'_> {
        MadeReady {
            rules: &self.rules,
            hasher: &self.hasher,
        }
    }

    /// The rule at this index on its table.
    pub(super) fn bind(&self, index: usize) -> &AnyRuleTable {
        let table = self.shared.bind_rule(&self.rules, index);
        self.bound[index].table.get_or_init(|| table)
    }

    /// Tells operators of a block that began, and of those that had to go for it.
    pub(super) fn report(&self, rule: u16, counted: &Counted) {
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

    pub(super) fn rule(&self, check: &Check) -> Option<&AnyRuleTable> {
        self.table(usize::from(check.rule()))
    }

    /// The rule at this index on its table.
    pub(super) fn table(&self, index: usize) -> Option<&AnyRuleTable> {
        let bound = self.bound.get(index)?;
        Some(bound.table.get().unwrap_or_else(|| self.bind(index)))
    }
}

impl Drop for MemoryRuleStore {
    /// The last one that uses a name leaves its states packed.
    fn drop(&mut self) {
        self.shared.release(&mut self.bound);
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
            [check] => self.take_one(check),
            _ => self.take_several(checks),
        }
    }

    fn acquire_within(&self, checks: &[Check], patience: Duration) -> Step<Decision> {
        Step::Ready(self.decide_under_locks(checks, true, micros(patience)))
    }

    fn supports_wait(&self) -> bool {
        true
    }

    fn peek(&self, checks: &[Check]) -> Step<Decision> {
        Step::Ready(self.decide_under_locks(checks, false, Tick::MAX))
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
                slot_waiters::wake(hold.check.key());
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
            slot_waiters::wake(check.key());
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

    fn releases_slots(&self) -> bool {
        false
    }

    fn asks_for_slots_every(&self) -> Option<Duration> {
        let have_terms = self.shared.reservations.slots.load(Ordering::Relaxed) > 0;
        have_terms.then_some(POLL_TERMS)
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
