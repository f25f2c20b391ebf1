//! A rule set on the memory store: what it answers, and what is settled later.
//!
//! A request that is to pass is taken in [`take`](super::take) where it fits, and decided in [`decide`](super::decide) where it may not.

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
    time::Duration,
};

use crate::{
    algorithm::Algorithm,
    check::Check,
    credits::{Balance, CreditChange, CreditRefusal, CreditState},
    decision::Decision,
    error::StoreError,
    hold::{Hold, Settlement, Source},
    key::{Fingerprint, KeyBuf},
    memory::{
        hasher::Hasher,
        locked::{Counted, Locked},
        plan::Plan,
        rule_table::{AnyRuleTable, BoundRule, RuleTable, with_table},
        tables::Tables,
    },
    observe::{block_began, observer::blocks_evicted},
    rule::Rule,
    rule_set::RuleSet,
    slot_waiters,
    step::Step,
    store::rule_store::{PaidHook, ReservationStore, RuleStore, Usage},
    sync::{Ordering, lock},
    time::{Clock, Tick, micros},
};

/// How often who waits looks by itself while slots of reservations end by themselves.
const POLL_TERMS: Duration = Duration::from_millis(100);

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
        let bound = rules.rules().iter().map(|rule| BoundRule {
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
        for (index, rule) in made.rules.rules().iter().enumerate() {
            if made.shared.has_states(rule) {
                made.bind(index);
            }
        }
        made
    }

    /// The quota of a check, made ready: that of a plan, or one that the check has brought along; `None`: it has no limit.
    pub(super) fn plan_of<'a, A: Algorithm>(
        &self,
        rule: &'a RuleTable<A>,
        check: &Check,
    ) -> Option<Cow<'a, Plan<A>>> {
        match rule.plans.get(usize::from(check.plan())) {
            Some(plan) => plan.as_ref().map(Cow::Borrowed),
            None => {
                let rule = self.rules.rules().get(usize::from(check.rule()))?;
                let quota = rule.quota_under(usize::from(check.plan()));
                Plan::of_rule(&quota, rule, &self.hasher).map(Cow::Owned)
            }
        }
    }

    /// Binds the rule at this index to its table.
    fn bind(&self, index: usize) -> &AnyRuleTable {
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

    fn settle_hold<A: Algorithm>(&self, rule: &RuleTable<A>, hold: &Hold, how: Settlement) {
        let check = &hold.check;
        if let Some(plan) = self.plan_of(rule, check) {
            let mut locked = Locked::new(&rule.table, rule.table.place(check.key()));
            let now = self.clock.now();
            let mut at = locked.of(check.key(), &plan, now);
            let is_whole = match how {
                Settlement::Refund(units) => units >= check.cost(),
                Settlement::Cancel => true,
                Settlement::Charge(_) => false,
            };
            let comes_back = match rule.id_of(check).filter(|_| is_whole) {
                Some((rule, id)) => at.change_ids(|seen| rule.forget(seen, id, hold.taken.at, now)),
                None => true,
            };
            if comes_back {
                let how = match self.rules.has_credits() || hold.source == Source::Credits {
                    true => self.settle_credits(hold, how, now, || at.assess(0).remaining),
                    false => how,
                };
                at.settle(hold, how);
            }
            let block = rule.block.as_ref().filter(|_| hold.counts);
            let counted = block.map(|block| at.count_for_block(block));
            drop(locked);
            if !comes_back {
                self.paid.tell(hold, None);
            }
            if let Some(counted) = counted {
                self.report(check.rule(), &counted);
            }
        }
        slot_waiters::wake(check.key());
    }

    /// The rule at this index on its table.
    pub(super) fn rule(&self, rule: u16) -> Option<&AnyRuleTable> {
        let index = usize::from(rule);
        let bound = self.bound.get(index)?;
        Some(bound.table.get().unwrap_or_else(|| self.bind(index)))
    }
}

// What changes the balances of credits.

impl MemoryRuleStore {
    pub(super) fn change_credits(
        &self,
        check: &Check,
        change: impl FnOnce(&mut CreditState, Tick) -> Result<u64, CreditRefusal>,
    ) -> Result<Balance, StoreError> {
        let rule = &self.rules.rules()[usize::from(check.rule())];
        let (key, bound) = (check.key(), self.shared.bytes_per_rule);
        let change = |now| {
            let mut balances = lock(&self.shared.balances);
            balances.change(rule, key, now, bound, |state| change(state, now))
        };
        let table = self.rule(check.rule()).unwrap_or(&AnyRuleTable::Unlimited);
        let balance = with_table!(table, rule => {
            // Meanwhile no denial is remembered.
            let place = rule.table.place(key);
            let _locked = Locked::new(&rule.table, place);
            let balance = change(self.clock.now());
            // It may pass now.
            place.denials(key).clear();
            balance
        }, else change(self.clock.now()));
        Ok(balance?)
    }

    /// What a settlement leaves to the quota, where the balance of the key has its part of it. `left` is what is left of the quota.
    pub(super) fn settle_credits(
        &self,
        hold: &Hold,
        how: Settlement,
        now: Tick,
        left: impl FnOnce() -> u64,
    ) -> Settlement {
        let rule = &self.rules.rules()[usize::from(hold.check.rule())];
        let (key, cost) = (hold.check.key(), hold.check.cost());
        let back = match how {
            // What a memory begins with, what a ledger corrects, and what a shadow counts is of the quota alone.
            Settlement::Charge(units)
                if rule.has_credits() && rule.is_enforced() && hold.taken.fresh_at > 0 =>
            {
                let more = units.saturating_sub(left());
                let paid = match more > 0 {
                    true => lock(&self.shared.balances).take(rule, key, now, more),
                    false => 0,
                };
                if paid > 0 && rule.is_durable() {
                    self.paid.tell(hold, Some(paid));
                }
                return Settlement::Charge(units - paid);
            }
            Settlement::Refund(units) if hold.source == Source::Credits => units.min(cost),
            Settlement::Cancel if hold.source == Source::Credits => cost,
            _ => return how,
        };
        if let Some(state) = lock(&self.shared.balances).get_mut(rule, key) {
            state.give_back(now, back);
        }
        Settlement::Refund(0)
    }

    fn usage_at(&self, rule: u16, now: Option<Tick>) -> Option<Usage> {
        match self.bound.get(usize::from(rule))?.table.get() {
            Some(rule) => with_table!(rule, rule => Some(rule.table.usage(now)), else None),
            None => Some(Usage::default()),
        }
    }
}

crate::debug_fields!(MemoryRuleStore, it => rules: it.rules);

impl Drop for MemoryRuleStore {
    /// States stay without the last one that uses their name.
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

    fn supports(&self, _: &Rule) -> bool {
        true
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

    fn acquire_within(
        &self,
        checks: &[Check],
        patience: Duration,
        _: &[(Check, u64)],
    ) -> Step<Decision> {
        Step::Ready(self.decide_under_locks(checks, true, micros(patience)))
    }

    fn peek(&self, checks: &[Check]) -> Step<Decision> {
        Step::Ready(self.decide_under_locks(checks, false, Tick::MAX))
    }

    fn settle(&self, holds: &[Hold], how: Settlement) {
        for hold in holds.iter().filter(|hold| hold.check.cost() > 0) {
            if let Some(rule) = self.rule(hold.check.rule()) {
                with_table!(rule, rule => self.settle_hold(rule, hold, how), else ());
            }
        }
    }

    fn reset(&self, checks: &[Check]) -> Step<Result<bool, StoreError>> {
        let now = self.clock.now();
        let mut was_kept = false;
        for check in checks.iter().filter(|check| check.cost() > 0) {
            let Some(rule) = self.rule(check.rule()) else {
                continue;
            };
            was_kept |= with_table!(rule, rule => {
                Locked::new(&rule.table, rule.table.place(check.key())).reset(check.key(), now)
            }, else false);
            slot_waiters::wake(check.key());
        }
        Step::Ready(Ok(was_kept))
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

    fn usage(&self, rule: u16) -> Option<Usage> {
        self.usage_at(rule, Some(self.clock.now()))
    }

    fn usage_counters(&self, rule: u16) -> Option<Usage> {
        self.usage_at(rule, None)
    }

    fn lapsed_units(&self, rule: u16) -> u64 {
        match self.rule(rule) {
            Some(rule) => with_table!(rule, rule => rule.table.lapsed_units(), else 0),
            None => 0,
        }
    }
}
