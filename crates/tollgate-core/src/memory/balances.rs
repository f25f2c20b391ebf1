//! The balances of a store: apart from the tables, so that no reset, swap of rules or eviction touches them. A grant that finds no room
//! is refused.
//!
//! Their lock is taken last, under that of the shard of the key, and for requests whose units do not fit the quota.

use std::{collections::HashMap, sync::Arc};

use crate::{
    credits::{Balance, CreditRefusal, CreditState},
    key::Fingerprint,
    rule::Rule,
    time::Tick,
};

/// The memory of a balance without its grants, in a table that is half full.
const BYTES: usize = 2 * size_of::<(Fingerprint, CreditState)>();
/// The fewest balances of a rule before those that have ended are looked for.
const LEAST: usize = 64;

/// By the names of rules.
#[derive(Default)]
pub(super) struct Balances(HashMap<Arc<str>, OfRule>);

#[derive(Default)]
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

    pub(super) fn get_mut(&mut self, rule: &Rule, key: Fingerprint) -> Option<&mut CreditState> {
        self.0.get_mut(rule.name())?.by_key.get_mut(&key)
    }

    /// Takes up to `units`, and says how many.
    pub(super) fn take(&mut self, rule: &Rule, key: Fingerprint, now: Tick, units: u64) -> u64 {
        let state = self.get_mut(rule, key);
        state.map_or(0, |state| state.take(now, units))
    }

    /// Changes a balance within this bound in bytes of all of its rule.
    pub(super) fn change(
        &mut self,
        rule: &Rule,
        key: Fingerprint,
        now: Tick,
        bound: usize,
        change: impl FnOnce(&mut CreditState) -> Result<u64, CreditRefusal>,
    ) -> Result<Balance, CreditRefusal> {
        let of_rule = self.0.entry(Arc::clone(rule.shared_name())).or_default();
        if of_rule.by_key.len() >= of_rule.sweep_at.max(LEAST) {
            of_rule.sweep(now);
        }
        let mut state = of_rule.by_key.get(&key).cloned().unwrap_or_default();
        let changed = change(&mut state)?;
        if state.until() <= now {
            // It has ended, and goes with the next sweep.
            return Ok(state.balance(now, changed));
        }
        let bytes = |of_rule: &OfRule| of_rule.bytes - of_rule.bytes_of(key) + bytes_of(&state);
        if bytes_of(&state) > of_rule.bytes_of(key) && bytes(of_rule) > bound {
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
