//! Whether a decision was right, by the reference's first answer.

use tollgate_core::{Check, Tick};

use crate::{
    script::reply::Reply,
    store::meter::{
        event_queue::{Entry, Event},
        rechecks::{Recheck, Why},
        reference::{Placed, Reference},
    },
};

/// What a decision looks like by the reference's first answer.
pub(super) enum FirstLook {
    Right,
    /// It is rechecked.
    Suspected(Recheck),
    /// The reference knows of as many units as a check costs, but not of their time.
    Missed(Check),
    /// The event did not reach the reference.
    Lost,
}

impl FirstLook {
    /// Audits an event that was sent.
    pub(super) fn new(
        reference: &Reference,
        now: Tick,
        reply: &Reply,
        entry: &Entry,
        placed: &Placed,
    ) -> Self {
        let Some(plan) = reference.plan(entry.event.check()) else {
            return Self::Right;
        };
        let (layout, debit) = match placed {
            Placed::Audited(layout, debit) => (layout, debit),
            Placed::Sent => return Self::Right,
            Placed::Nowhere => return Self::Lost,
        };
        let is_counted = debit.is_none_or(|debit| reply.left(debit).is_some());
        let check = entry.event.check();
        let answer = reference.answer(reply, layout, check);
        let Some(answer) = answer.filter(|_| is_counted) else {
            // A value that is not ours.
            return Self::Lost;
        };
        let took = now.saturating_sub(entry.since);
        let (at, units) = (entry.at, check.cost());
        let tolerance = plan.audit.tolerance().saturating_add(took);
        let entry = *entry;
        match entry.event {
            Event::Admitted(check, requests) => {
                plan.counts.audited(requests, 0, 0);
                if plan.audit.counts_later(at, &answer) || plan.audit.is_late(took) {
                    return Self::Missed(check);
                }
                let why = Why::Over(plan.audit.over(at, units, &answer, tolerance));
                match why {
                    Why::Over(0) => Self::Right,
                    why => Self::Suspected(Recheck { entry, why }),
                }
            }
            Event::Refused(_, requests) => {
                plan.counts.audited(requests, 0, 0);
                let why = Why::False(tolerance);
                match plan.audit.is_false(at, units, &answer, tolerance) {
                    true if plan.knows_of_all(now) => Self::Suspected(Recheck { entry, why }),
                    _ => Self::Right,
                }
            }
            Event::Settled(..) | Event::Forgotten(_) => Self::Right,
        }
    }
}
