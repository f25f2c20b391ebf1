//! Whether a decision was right: at the first look, and at the recheck.

use tollgate_core::{Check, Outcome, RuleSet, Tick, Verdict};

use crate::{
    call::{Call, RequestLayout},
    reply::Reply,
    store::meter::{
        Meter, Placed, Plan,
        line::{Entry, Event},
        rechecks::{LONGEST, Recheck, Why},
        tolerance::UncertainLayout,
    },
};

/// What a decision looks like at the first look.
pub(in crate::store) enum Looks {
    Well,
    /// It is rechecked.
    Wrong(Recheck),
    /// The reference knows of so many units, but not of their time.
    Miss(Check),
    /// It is unknown.
    Lost,
}

/// Where the replies to a recheck are.
pub(in crate::store) struct QueriedAgain {
    reference: RequestLayout,
    tolerance: UncertainLayout,
}

impl Meter {
    /// Audits an event that was sent.
    pub(in crate::store) fn audit(
        &self,
        now: Tick,
        rules: &RuleSet,
        reply: &Reply,
        entry: &Entry,
        placed: &Placed,
    ) -> Looks {
        let Some(plan) = self.plan(entry.event.check()) else {
            return Looks::Well;
        };
        let (layout, debit) = match placed {
            Placed::Judged(layout, debit) => (layout, debit),
            Placed::Untold => return Looks::Well,
            Placed::Nowhere => return Looks::Lost,
        };
        let reported = debit.is_none_or(|debit| reply.left(debit).is_some());
        let check = entry.event.check();
        let Some(answer) = answer(reply, layout, check, rules).filter(|_| reported) else {
            // A value that is not ours.
            return Looks::Lost;
        };
        let answer = &answer;
        let took = now.saturating_sub(entry.since);
        let (at, units) = (entry.at, check.cost());
        let tolerance = plan.audit.tolerance().saturating_add(took);
        let entry = *entry;
        match entry.event {
            Event::Admitted(check, requests) => {
                plan.counts.judged(requests, 0, 0);
                if plan.audit.counts_later(at, answer) || plan.audit.is_reported_late(took) {
                    return Looks::Miss(check);
                }
                let why = Why::Over(plan.audit.over(at, units, answer, tolerance));
                match why {
                    Why::Over(0) => Looks::Well,
                    why => Looks::Wrong(Recheck { entry, why }),
                }
            }
            Event::Refused(_, requests) => {
                plan.counts.judged(requests, 0, 0);
                let why = Why::False(tolerance);
                match plan.audit.is_false(at, units, answer, tolerance) {
                    true if self.knows_of_all(plan, now) => Looks::Wrong(Recheck { entry, why }),
                    _ => Looks::Well,
                }
            }
            Event::Settled(..) | Event::Forgotten(_) => Looks::Well,
        }
    }

    /// Puts a recheck into a call. `None`: it does not fit any more.
    pub(in crate::store) fn write_recheck(
        &self,
        call: &mut Call,
        recheck: &Recheck,
    ) -> Option<QueriedAgain> {
        let check = recheck.entry.event.check();
        Some(QueriedAgain {
            reference: self.look(call, check)?,
            tolerance: self.tolerance.query(call, check)?,
        })
    }

    /// Counts a decision as wrong if it still looks wrong. `now` by this process's clock, `at` by the store's.
    pub(in crate::store) fn audit_again(
        &self,
        (now, at): (Tick, Tick),
        rules: &RuleSet,
        reply: &Reply,
        recheck: &Recheck,
        layout: &QueriedAgain,
    ) {
        let entry = &recheck.entry;
        let check = entry.event.check();
        let is_late = now.saturating_sub(entry.since) > LONGEST;
        let Some(plan) = self.plan(check).filter(|_| !is_late) else {
            return;
        };
        let Some(uncertain) = layout.tolerance.units(reply, check, rules) else {
            return;
        };
        match recheck.why {
            Why::Over(units) => plan.counts.judged(0, units.saturating_sub(uncertain), 0),
            Why::False(tolerance) => {
                let Some(answer) = answer(reply, &layout.reference, check, rules) else {
                    return;
                };
                let cost = check.cost().saturating_add(uncertain);
                let times = (entry.at, at);
                if self.knows_of_all(plan, now)
                    && plan.audit.was_false(times, cost, &answer, tolerance)
                {
                    plan.counts.judged(0, 0, entry.event.requests());
                }
            }
        }
    }

    /// A reference that began late, or has missed events, knows of too little.
    fn knows_of_all(&self, plan: &Plan, now: Tick) -> bool {
        plan.counts.is_whole(now, plan.audit.memory())
    }
}

fn answer(
    reply: &Reply,
    layout: &RequestLayout,
    check: &Check,
    rules: &RuleSet,
) -> Option<Verdict> {
    let decision = reply.decision(layout, std::slice::from_ref(check), rules);
    let answer = decision.verdicts().first().copied();
    answer.filter(|answer| matches!(answer.outcome(), Outcome::Allow | Outcome::Deny))
}
