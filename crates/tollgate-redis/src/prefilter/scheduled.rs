//! Scheduled leases beside what denials have taught: units of the future push the time at which anything else fits.

use tollgate_core::{Check, Retry, Source, Tick, Verdict, algorithm::Assessment};

use crate::prefilter::{
    deny::Denials,
    filter::Prefilter,
    table_key::{TableKey, table_key_of},
};

impl Prefilter {
    /// A scheduled lease of `units`, the first of which begins to come after `after` µs, was granted in answer to a query that was sent
    /// at `sent` and heard at `now`: before all of it has come back, nothing fits.
    pub(super) fn learn_scheduled(
        &self,
        check: &Check,
        (sent, now): (Tick, Tick),
        units: u64,
        after: Tick,
    ) {
        let (Some(deny), Some(plan)) = (&self.deny, self.plan(check)) else {
            return;
        };
        let (Denials::Bucket { fill, .. }, Some(terms)) = (&plan.denials, self.lease_terms(check))
        else {
            return;
        };
        let Some(schedule) = terms.schedule() else {
            return;
        };
        // Both were rounded up. Where nothing was owed, fewer than eight units were left, which were granted first.
        let units = if after == 0 {
            units.saturating_sub(8)
        } else {
            units
        };
        let owed = after.saturating_sub(1) + schedule.span(units).saturating_sub(1);
        let answer = Assessment {
            fits: false,
            remaining: 0,
            reset_after: fill.saturating_add(owed),
            retry: Retry::Unknown,
        };
        let verdict = Verdict::new(check.rule(), check.plan(), answer, Source::Store);
        let (slot, cost) = (table_key_of(check), check.cost());
        deny.learn(&plan.denials, slot, (sent, now), cost, &verdict, false);
    }

    /// What is denied here, with the time at which this process can serve it from its scheduled lease, where that is sooner.
    pub(super) fn unless_due(
        &self,
        slot: TableKey,
        now: Tick,
        cost: u64,
        denied: Assessment,
    ) -> Assessment {
        let due = || self.leases.as_ref()?.due_after(slot, now, cost);
        match (denied.retry, due()) {
            (Retry::After(wait), Some(due)) if u128::from(due) < wait.as_micros() => Assessment {
                retry: Retry::after_micros(due.max(1)),
                ..denied
            },
            _ => denied,
        }
    }
}
