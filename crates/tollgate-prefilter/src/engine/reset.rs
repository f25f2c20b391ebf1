//! A reset in flight.

use std::sync::Arc;

use tollgate_core::{Check, Tick};

use crate::{
    engine::{bound_rules::BoundRules, entry::Lease, reply::NoReply},
    lease::grant::ReturnedLease,
};

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
