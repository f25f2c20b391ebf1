//! Units that were taken: they come back, or more is charged.

use smallvec::SmallVec;
use tollgate_core::{
    Source, Tick,
    store::{Hold, Settlement},
};

use crate::engine::{bound_rules::BoundRules, local::as_counted};

/// What the store has to settle.
pub(crate) type Settlements = SmallVec<[(Hold, Settlement); 1]>;

/// Settles units that were taken. Those that this process may spend again stay here; the store has to settle the others.
pub(crate) fn settle(
    binding: &BoundRules,
    receipts: &[Hold],
    how: Settlement,
    now: Tick,
) -> Settlements {
    let mut settlements = Settlements::new();
    let mut others: SmallVec<[Hold; 4]> = SmallVec::new();
    for receipt in receipts {
        match settle_one(binding, receipt, how, now) {
            None => {}
            // As it was: a ticket is settled as a whole where one of its rules says where the states of the others are.
            Some((receipt, same)) if same == how => others.push(receipt),
            Some(settlement) => settlements.push(settlement),
        }
    }
    settlements.extend(others.into_iter().map(|receipt| (receipt, how)));
    settlements
}

/// What the store has to settle for units that this process may have spent.
fn settle_one(
    binding: &BoundRules,
    receipt: &Hold,
    how: Settlement,
    now: Tick,
) -> Option<(Hold, Settlement)> {
    let check = &receipt.check;
    if check.cost() == 0 {
        // It says where the states of the others lie.
        return Some((*receipt, how));
    }
    // The store counts a request that stays.
    let counted = receipt.counts.then_some((*receipt, Settlement::Refund(0)));
    let back = match how {
        Settlement::Refund(0) if receipt.counts => return counted,
        Settlement::Refund(units) => units.min(check.cost()),
        Settlement::Cancel => check.cost(),
        Settlement::Charge(units) => {
            // What this process may spend is as good as what the store has.
            let more = check.with_cost(units);
            return match binding.spend(&more, now) {
                Ok(_) => counted,
                Err(_) => Some((*receipt, how)),
            };
        }
        _ => return None,
    };
    binding.unlearn(check);
    if !matches!(receipt.source, Source::Lease | Source::Local) || binding.limit(check).is_none() {
        return Some((*receipt, how));
    }
    let spent = binding.local().store_time.local(receipt.taken.at);
    give_back(binding, receipt, (now, spent), back).or(counted)
}

/// Units that this process spent at `spent` go back to where they came from. Returns what the store has to refund of them.
pub(crate) fn give_back(
    binding: &BoundRules,
    receipt: &Hold,
    times: (Tick, Tick),
    units: u64,
) -> Option<(Hold, Settlement)> {
    binding.unlearn(&receipt.check);
    let limit = binding.limit(&receipt.check)?;
    let rest = binding.local().give_back(limit, receipt, times, units);
    if rest > 0 && receipt.source == Source::Local {
        binding.engine.wait_for_reports();
    }
    (rest > 0).then(|| (as_counted(limit, receipt), Settlement::Refund(rest)))
}

/// Units of a window that can be leased, which the store has taken for an abandoned request, stay in this process. Returns
/// what the store has to refund of them.
pub(crate) fn keep_abandoned(
    binding: &BoundRules,
    receipt: &Hold,
    now: Tick,
) -> Option<(Hold, Settlement)> {
    let limit = binding.limit(&receipt.check);
    limit.filter(|limit| limit.windows.is_some())?;
    let mut receipt = *receipt;
    receipt.source = Source::Lease;
    let spent = binding.local().store_time.local(receipt.taken.at);
    give_back(binding, &receipt, (now, spent), receipt.check.cost())
}
