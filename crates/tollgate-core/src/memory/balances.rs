//! The balances of a store: apart from the tables, so that no reset, swap of rules or eviction touches them. A grant that finds no room
//! is refused.
//!
//! Their lock is taken last, under that of the shard of the key, and for requests whose units do not fit the quota.

use std::{collections::HashMap, sync::Arc};

use crate::{
    check::Check,
    credits::{Balance, CreditChange, CreditRefusal, CreditState},
    error::StoreError,
    hold::{Hold, Settlement},
    key::Fingerprint,
    memory::{
        locked::Locked,
        rule_store::MemoryRuleStore,
        rule_table::{AnyRuleTable, with_table},
    },
    rule::Rule,
    source::Source,
    sync::lock,
    time::Tick,
};

/// The memory of a balance without its grants, in a table that is half full.
const BYTES: usize = 2 * size_of::<(Fingerprint, CreditState)>();
/// The fewest balances of a rule before those that have ended are looked for.
const LEAST: usize = 64;

/// By the names of rules.
#[derive(Debug, Default)]
pub(super) struct Balances(HashMap<Arc<str>, OfRule>);

#[derive(Debug, Default)]
struct OfRule {
    by_key: HashMap<Fingerprint, CreditState>,
    bytes: usize,
    /// With how many balances those that have ended are removed.
    sweep_at: usize,
}

impl Balances {
    /// The units of a key.
    pub(super) fn units(&self, rule: &Rule, key: Fingerprint, now: Tick) -> u64 {
        let state = self.0.get(rule.name()).and_then(|it| it.by_key.get(&key));
        state.map_or(0, |state| state.units(now))
    }

    fn get_mut(&mut self, rule: &Rule, key: Fingerprint) -> Option<&mut CreditState> {
        self.0.get_mut(rule.name())?.by_key.get_mut(&key)
    }

    /// Takes up to `units`, and says how many.
    pub(super) fn take(&mut self, rule: &Rule, key: Fingerprint, now: Tick, units: u64) -> u64 {
        let state = self.get_mut(rule, key);
        state.map_or(0, |state| state.take(now, units))
    }

    /// Changes a balance within this bound in bytes of all of its rule.
    fn change(
        &mut self,
        rule: &Rule,
        key: Fingerprint,
        now: Tick,
        change: CreditChange,
        bound: usize,
    ) -> Result<Balance, CreditRefusal> {
        if change == CreditChange::Query {
            let state = self.get_mut(rule, key);
            return Ok(state.map_or(Balance::new(0, 0, now, 0), |state| state.balance(now, 0)));
        }
        let of_rule = self.0.entry(Arc::clone(rule.shared_name())).or_default();
        if of_rule.by_key.len() >= of_rule.sweep_at.max(LEAST) {
            of_rule.sweep(now);
        }
        let mut state = of_rule.by_key.get(&key).cloned().unwrap_or_default();
        let changed = state.change(now, change)?;
        if state.until() <= now {
            // It has ended, and goes with the next sweep.
            return Ok(state.balance(now, changed));
        }
        let bytes = |of_rule: &OfRule| of_rule.bytes - of_rule.bytes_of(key) + bytes_of(&state);
        if changed > 0 && matches!(change, CreditChange::Grant { .. }) && bytes(of_rule) > bound {
            of_rule.sweep(now);
            if bytes(of_rule) > bound {
                return Err(CreditRefusal::NoRoom);
            }
        }
        let balance = state.balance(now, changed);
        of_rule.bytes = bytes(of_rule);
        of_rule.by_key.insert(key, state);
        Ok(balance)
    }
}

fn bytes_of(state: &CreditState) -> usize {
    BYTES + state.heap_bytes()
}

impl OfRule {
    /// The bytes of a key's balance, if it has one.
    fn bytes_of(&self, key: Fingerprint) -> usize {
        self.by_key.get(&key).map_or(0, bytes_of)
    }

    fn sweep(&mut self, now: Tick) {
        self.by_key.retain(|_, state| state.until() > now);
        self.by_key.shrink_to(self.by_key.len() * 2);
        let states = self.by_key.values();
        self.bytes = states.map(bytes_of).sum();
        self.sweep_at = self.by_key.len() * 2;
    }
}

impl MemoryRuleStore {
    pub(super) fn change_credits(
        &self,
        check: &Check,
        change: CreditChange,
    ) -> Result<Balance, StoreError> {
        let rule = &self.rules.rules()[usize::from(check.rule())];
        let (key, bound) = (check.key(), self.shared.bytes_per_rule);
        let change = |now| lock(&self.shared.balances).change(rule, key, now, change, bound);
        let table = self.rule(check).unwrap_or(&AnyRuleTable::Unlimited);
        let balance = with_table!(table, rule => {
            // Meanwhile no denial is remembered.
            let mut locked = Locked::new(&rule.table, rule.table.shard_of(key));
            let balance = change(self.clock.now());
            locked.forget_denial(key);
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
            Settlement::Charge(units) if rule.has_credits() => {
                let more = units.saturating_sub(left());
                let paid = match more > 0 {
                    true => lock(&self.shared.balances).take(rule, key, now, more),
                    false => 0,
                };
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
}
