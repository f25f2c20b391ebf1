//! Units that were taken: they come back, or more is charged.

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::{
    AlgorithmKind, Check, Quota, Source, Tick,
    algorithm::{Algorithm, FixedWindow, SlidingBuckets, SlidingWindow},
    store::{Hold, Settlement},
};

use crate::{
    engine::{bound_rules::BoundRules, entry::Lease, limit::Limit, reply::NoReply},
    lease::grant::ReturnedLease,
};

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
        Settlement::Charge(units) if binding.has_debt(check) => {
            // When the next request fits is later now.
            binding.unlearn(check);
            let left = binding.leased(check, now).min(units);
            let spent = match left > 0 && binding.spend(&check.with_cost(left), now).is_ok() {
                true => left,
                false => 0,
            };
            return match units - spent {
                0 => counted,
                rest => Some((*receipt, Settlement::Charge(rest))),
            };
        }
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
    // The units of an id stay taken: its next request costs nothing.
    limit.filter(|limit| limit.windows.is_some() && !receipt.check.has_id())?;
    let mut receipt = *receipt;
    receipt.source = Source::Lease;
    let spent = binding.local().store_time.local(receipt.taken.at);
    give_back(binding, &receipt, (now, spent), receipt.check.cost())
}

/// A receipt for units that were spent locally, as the store has counted them: when it granted the lease, or with a report.
pub(crate) fn as_counted(limit: &Limit, receipt: &Hold) -> Hold {
    let mut receipt = *receipt;
    receipt.taken.fresh_at = match limit.windows {
        Some(windows) => {
            let window = windows.that_counts_until(receipt.taken.fresh_at);
            window.map_or(0, |window| windows.counts_until(window))
        }
        None => weighs_until(&limit.quota, &receipt),
    };
    receipt
}

/// Until when units weigh that were counted locally and reported. What the receipt says is from an earlier reply, and the store
/// refunds nothing to a window whose end is another.
fn weighs_until(quota: &Quota, receipt: &Hold) -> Tick {
    let taken = receipt.taken;
    let until = match quota.algorithm() {
        AlgorithmKind::FixedWindow => fresh_at::<FixedWindow>(quota, taken.at),
        AlgorithmKind::SlidingWindow => fresh_at::<SlidingWindow>(quota, taken.at),
        AlgorithmKind::SlidingBuckets => fresh_at::<SlidingBuckets>(quota, taken.at),
        _ => None,
    };
    until.unwrap_or(taken.fresh_at)
}

/// When a state is fresh after a unit was taken at `at`.
fn fresh_at<A: Algorithm>(quota: &Quota, at: Tick) -> Option<Tick> {
    let quota = A::new(quota)?;
    let mut state = A::State::default();
    quota.take(&mut state, at, 1);
    Some(quota.fresh_at(&state))
}

// A reset in flight.

/// States that are about to be forgotten. What this process holds and knows of them is taken out already.
#[derive(Debug)]
#[must_use = "denials that are decided meanwhile stay in the deny cache if the reply is not processed"]
pub struct Reset {
    binding: Arc<BoundRules>,
    checks: Vec<Check>,
    returned: Vec<(Check, ReturnedLease)>,
    was_counted: bool,
}

impl Reset {
    pub(crate) fn new(binding: &Arc<BoundRules>, checks: &[Check], now: Tick) -> Self {
        let mut reset = Self {
            binding: Arc::clone(binding),
            checks: checks.iter().filter(|it| it.cost() > 0).copied().collect(),
            returned: Vec::new(),
            was_counted: false,
        };
        let local = binding.local();
        for check in &reset.checks {
            local.forget(binding.at(check));
            for (plan, limit) in binding.limits.of_rule(check.rule()) {
                let check = check.with_plan(plan).with_cost(0);
                let (returned, unsent) = local.forget_held(limit, check.key(), now);
                let returned = returned.map(|returned| (check, returned));
                reset.returned.extend(returned);
                reset.was_counted |= unsent > 0;
            }
        }
        reset
    }

    /// Leases that go back to the store before the states are forgotten.
    pub fn returned(&self) -> &[(Check, ReturnedLease)] {
        &self.returned
    }

    /// Whether this process had counted units that the store does not know of.
    pub fn was_counted(&self) -> bool {
        self.was_counted
    }

    /// Processes the reply: `is_refused` says, by the index in [`returned`](Self::returned), whether the store certainly did
    /// not take a lease back.
    pub fn finish(self, reply: Result<&dyn Fn(usize) -> bool, NoReply>) {
        let is_back = |index: usize| match reply {
            Ok(is_refused) => is_refused(index),
            Err(NoReply::NotRun | NoReply::NothingToSend) => true,
            Err(NoReply::Unknown) => false,
        };
        for (index, (check, returned)) in self.returned.iter().enumerate() {
            if let (true, Some(limit)) = (is_back(index), self.binding.limit(check)) {
                let back = |lease: &mut Lease| lease.holder.on_not_sent(Some(*returned));
                self.binding.local().lease(limit, check.key(), back);
            }
        }
        // Denials that were decided before may have come in between.
        for check in &self.checks {
            self.binding.local().forget(self.binding.at(check));
        }
    }
}
