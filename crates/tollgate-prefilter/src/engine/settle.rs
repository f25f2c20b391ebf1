//! Units that were taken: they come back, or more is charged.

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::{
    Check, Source, Tick,
    algorithm::{Algorithm, Gcra},
    store::{Hold, Settlement},
};

use crate::{
    engine::{bound_rules::BoundRules, limit::Limit, reply::NoReply, wait::after_taking},
    lease::grant::ReturnedLease,
};

/// What the store has to settle.
pub(crate) type Settlements = SmallVec<[(Hold, Settlement); 1]>;

/// Settles units that were taken. Those that this process may spend again stay here; the store has to settle the others.
pub(crate) fn settle(
    bound: &BoundRules,
    holds: &[Hold],
    how: Settlement,
    now: Tick,
) -> Settlements {
    let settled = holds.iter();
    let mut settled: Settlements = settled
        .filter_map(|hold| settle_one(bound, hold, how, now))
        .collect();
    // As it was: a ticket is settled as a whole where one of its rules says where the states of the others are.
    settled.sort_by_key(|(_, settlement)| *settlement == how);
    settled
}

/// What the store has to settle for units that this process may have spent.
fn settle_one(
    bound: &BoundRules,
    hold: &Hold,
    how: Settlement,
    now: Tick,
) -> Option<(Hold, Settlement)> {
    let check = &hold.check;
    if check.cost() == 0 {
        // It says where the states of the others lie.
        return Some((*hold, how));
    }
    // The store counts a request that stays.
    let counted = hold.counts.then_some((*hold, Settlement::Refund(0)));
    let back = match how {
        Settlement::Refund(0) if hold.counts => return counted,
        Settlement::Refund(units) => units.min(check.cost()),
        Settlement::Cancel => check.cost(),
        Settlement::Charge(units) => {
            let mut here = units;
            if bound.has_debt(check) {
                // When the next request fits is later now.
                bound.unlearn(check);
                here = bound.leased(check, now).min(units);
            }
            // What this process may spend is as good as what the store has.
            let is_spent = here > 0 && bound.reserve(&check.with_cost(here), now).is_ok();
            return match units - if is_spent { here } else { 0 } {
                0 => counted,
                rest => Some((*hold, Settlement::Charge(rest))),
            };
        }
        _ => return None,
    };
    bound.unlearn(check);
    if !matches!(hold.source, Source::Lease | Source::Local) || bound.limit(check).is_none() {
        return Some((*hold, how));
    }
    let spent = bound.engine.store_time.local(hold.taken.at);
    release(bound, hold, now, spent, back).or(counted)
}

/// Units that this process reserved at `spent` go back to where they came from. Returns what the store has to refund of them.
pub(crate) fn release(
    bound: &BoundRules,
    hold: &Hold,
    now: Tick,
    spent: Tick,
    units: u64,
) -> Option<(Hold, Settlement)> {
    bound.unlearn(&hold.check);
    let limit = bound.limit(&hold.check)?;
    let rest = bound.release(hold, now, spent, units);
    if rest > 0 && hold.source == Source::Local {
        bound.engine.wait_for_reports();
    }
    (rest > 0).then(|| (as_counted(limit, hold), Settlement::Refund(rest)))
}

/// Units of a window that can be leased, which the store has taken for an abandoned request, stay in this process. Returns
/// what the store has to refund of them.
pub(crate) fn keep_abandoned(
    bound: &BoundRules,
    hold: &Hold,
    now: Tick,
) -> Option<(Hold, Settlement)> {
    let limit = bound.limit(&hold.check);
    // The units of an id stay taken: its next request costs nothing.
    limit.filter(|limit| limit.windows.is_some() && !hold.check.has_id())?;
    let mut hold = *hold;
    hold.source = Source::Lease;
    let spent = bound.engine.store_time.local(hold.taken.at);
    release(bound, &hold, now, spent, hold.check.cost())
}

/// A hold of units that were spent locally, as the store has counted them: when it granted the lease, or with a report.
pub(crate) fn as_counted(limit: &Limit, hold: &Hold) -> Hold {
    let mut counted = *hold;
    counted.taken.fresh_at = match limit.windows {
        Some(windows) => {
            let window = windows.that_counts_until(hold.taken.fresh_at);
            window.map_or(0, |window| windows.counts_until(window))
        }
        // A bucket's units come back one after the other.
        None if Gcra::new(&limit.quota).is_some() => hold.taken.fresh_at,
        // Units that were counted locally and reported weigh until then. What the hold says is from an earlier reply, and the store
        // refunds nothing to a window whose end is another.
        None => {
            let taken = after_taking(&limit.quota, hold.taken.at, 1, 0);
            taken.map_or(hold.taken.fresh_at, |(fresh_at, _)| fresh_at)
        }
    };
    counted
}

// A reset in flight.

/// States that are about to be forgotten. What this process holds and knows of them is taken out already.
#[derive(Debug)]
#[must_use = "denials that are decided meanwhile stay in the deny cache if the reply is not processed"]
pub struct Reset {
    bound: Arc<BoundRules>,
    checks: Vec<Check>,
    returned: Vec<(Check, ReturnedLease)>,
    was_counted: bool,
}

impl BoundRules {
    /// Forgets what this process knows of states that are about to be forgotten. Checks with a cost of 0 are left out.
    pub fn begin_reset(self: &Arc<Self>, checks: &[Check], now: Tick) -> Reset {
        let mut reset = Reset {
            bound: Arc::clone(self),
            checks: checks.iter().filter(|it| it.cost() > 0).copied().collect(),
            returned: Vec::new(),
            was_counted: false,
        };
        for check in &reset.checks {
            self.forget(check);
            for (_, plan, _) in self.limits().filter(|(rule, ..)| *rule == check.rule()) {
                let check = check.with_plan(plan).with_cost(0);
                let returned = self.lease(&check, |lease| {
                    (lease.left, lease.fresh_at) = (0, 0);
                    // A query in flight stays so.
                    let returned = lease.holder.take_out(now);
                    lease.holder.forget(now);
                    returned
                });
                (reset.returned).extend(returned.flatten().map(|returned| (check, returned)));
                let order = self.engine.order(now);
                let unsent = self.usage(&check, |usage| {
                    let unsent = usage.counted.unsent();
                    usage.counted.forget(order);
                    unsent
                });
                reset.was_counted |= unsent.unwrap_or(0) > 0;
            }
        }
        reset
    }

    /// Forgets the denials and the block of a state that is forgotten.
    fn forget(&self, check: &Check) {
        self.unlearn(check);
        (self.engine.keys).with(self.at(check), |entry| entry.block = None);
    }
}

impl Reset {
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
            Err(why) => why != NoReply::Unknown,
        };
        for (index, (check, returned)) in self.returned.iter().enumerate() {
            if is_back(index) {
                self.bound
                    .lease(check, |lease| lease.holder.on_not_sent(Some(*returned)));
            }
        }
        // Denials that were decided before may have come in between.
        for check in &self.checks {
            self.bound.forget(check);
        }
    }
}
