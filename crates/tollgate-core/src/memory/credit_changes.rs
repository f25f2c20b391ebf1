//! What changes the [balances](super::balances) of a store: grants, and settlements of what they have paid.

use crate::{
    check::Check,
    credits::{Balance, CreditRefusal, CreditState},
    error::StoreError,
    hold::{Hold, Settlement},
    memory::{
        locked::Locked,
        rule_store::MemoryRuleStore,
        rule_table::{AnyRuleTable, with_table},
    },
    source::Source,
    sync::lock,
    time::Tick,
};

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
        let table = self.rule(check).unwrap_or(&AnyRuleTable::Unlimited);
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
            // What a memory begins with, and what a ledger corrects, is of the quota alone.
            Settlement::Charge(units) if rule.has_credits() && hold.taken.fresh_at > 0 => {
                let more = units.saturating_sub(left());
                let paid = match more > 0 {
                    true => lock(&self.shared.balances).take(rule, key, now, more),
                    false => 0,
                };
                if paid > 0 && rule.is_durable() {
                    self.paid.tell(&hold.check, paid);
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
}
