//! A recheck in flight.

use tollgate_core::Tick;

use crate::{
    script::{
        call::{Call, RequestLayout},
        reply::Reply,
    },
    store::meter::{
        rechecks::{LONGEST, Recheck, Why},
        reference::Reference,
        tolerance::UncertainLayout,
    },
};

/// A recheck in flight, with the places of its answers in the reply.
pub(super) struct RecheckQuery {
    recheck: Recheck,
    reference: RequestLayout,
    tolerance: UncertainLayout,
}

impl RecheckQuery {
    /// Puts a recheck into a call. `None`: it does not fit any more.
    pub(super) fn write(reference: &Reference, call: &mut Call, recheck: Recheck) -> Option<Self> {
        let check = recheck.entry.event.check();
        Some(Self {
            reference: reference.look(call, check)?,
            tolerance: reference.tolerance.query(call, check)?,
            recheck,
        })
    }

    /// Counts the decision as wrong if it still looks wrong. `now` by this process's clock, `at` by the store's.
    pub(super) fn on_reply(&self, reference: &Reference, (now, at): (Tick, Tick), reply: &Reply) {
        let entry = &self.recheck.entry;
        let check = entry.event.check();
        let is_late = now.saturating_sub(entry.since) > LONGEST;
        let Some(plan) = reference.plan(check).filter(|_| !is_late) else {
            return;
        };
        let Some(uncertain) = self.tolerance.units(reply, check, &reference.rules) else {
            return;
        };
        match self.recheck.why {
            Why::Over(units) => plan.counts.audited(0, units.saturating_sub(uncertain), 0),
            Why::False(tolerance) => {
                let Some(answer) = reference.answer(reply, &self.reference, check) else {
                    return;
                };
                let cost = check.cost().saturating_add(uncertain);
                let times = (entry.at, at);
                if plan.knows_of_all(now) && plan.audit.was_false(times, cost, &answer, tolerance) {
                    plan.counts.audited(0, 0, entry.event.requests());
                }
            }
        }
    }
}
