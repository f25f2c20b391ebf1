//! What is sent without a request: reports, and leases that go back.

use std::sync::Arc;

use tollgate_core::{Check, Tick, store::Fingerprint};

use crate::{
    engine::{
        bound_rules::BoundRules,
        engine::Engine,
        entry::Entry,
        limit::{Limit, Visit},
        query::Query,
    },
    lease::grant::ReturnedLease,
};

/// The most leases that one poll looks at: it takes about a millisecond, and requests wait meanwhile. A few in tests, which would need
/// thousands otherwise.
pub(crate) const MAX_VISITS: usize = if cfg!(test) { 4 } else { 4096 };

/// The most reports or leases of one query.
const TOGETHER: usize = 32;

/// Keys of one rule that are sent: with leases that go back, or else to be reported.
type Due = Vec<(Fingerprint, Option<ReturnedLease>)>;

impl BoundRules {
    /// The most reports of one [poll](Self::poll_maintenance), so that requests do not wait for all that are due.
    pub const MAX_REPORTS: usize = 128;

    /// Reports that are due by a time, of some limits.
    pub(crate) fn reports(
        self: &Arc<Self>,
        by: Tick,
        which: impl Fn(&Limit) -> bool,
    ) -> Vec<Query> {
        let (mut left, mut queries) = (Self::MAX_REPORTS, Vec::new());
        for (rule, plan, limit) in self.limits().filter(|(.., it)| which(it)) {
            let mut due = Due::new();
            if let Some(terms) = limit.report_terms() {
                self.engine.visit(limit, None, |key, entry| {
                    let counted = &entry.usage(limit)?.counted;
                    if due.len() == left {
                        return Some(Visit::Stop);
                    }
                    due.extend(counted.is_due(by, terms).then_some((key, None)));
                    Some(Visit::keep(counted.unreported() > 0))
                });
            }
            left -= due.len();
            self.add(rule, plan, due, &mut queries);
        }
        queries
    }

    /// Leases that are not needed, of some of those that are left to look at.
    pub(crate) fn idle_leases(self: &Arc<Self>, now: Tick) -> Vec<Query> {
        let (mut most, mut queries) = (MAX_VISITS, Vec::new());
        for (rule, plan, limit) in self.leased_limits() {
            let mut unneeded = Due::new();
            // Units of a window weigh for longer than this process spends them. They go back with the next query, or a flush.
            let window = limit.lease_terms().and_then(|terms| terms.window);
            let weighs = window.map_or(0, |window| 2 * window);
            most -= self.engine.visit(limit, Some(most), |key, entry| {
                let holder = &mut entry.lease(limit)?.holder;
                let returned = holder.sweep(now);
                unneeded.extend(returned.map(|_| (key, returned)));
                let until = holder.until().map(|until| until.saturating_add(weighs));
                Some(Visit::keep(until.is_some_and(|until| now < until)))
            });
            self.add(rule, plan, unneeded, &mut queries);
        }
        queries
    }

    /// All leases under some limits, taken out to be returned.
    pub(crate) fn all_leases(
        self: &Arc<Self>,
        now: Tick,
        which: impl Fn(&Limit) -> bool,
    ) -> Vec<Query> {
        let mut queries = Vec::new();
        for (rule, plan, limit) in self.leased_limits().filter(|(.., it)| which(it)) {
            let mut held = Due::new();
            self.engine.visit(limit, None, |key, entry| {
                let returned = entry.lease(limit)?.holder.take_out(now);
                held.extend(returned.map(|_| (key, returned)));
                Some(Visit::Drop)
            });
            self.add(rule, plan, held, &mut queries);
        }
        queries
    }

    /// Leases that came to a retired rule set.
    pub(crate) fn retired_leases(self: &Arc<Self>, now: Tick) -> Vec<Query> {
        match self.is_retired() {
            true => self.all_leases(now, |limit| !limit.is_in_use()),
            false => Vec::new(),
        }
    }

    /// Puts keys of one rule into queries, by the places of their states. Keys of several rules do not share a query, because the store
    /// may refuse one rule.
    fn add(self: &Arc<Self>, rule: u16, plan: u16, due: Due, queries: &mut Vec<Query>) {
        let keys = due.into_iter().map(|(key, returned)| {
            let check = Check::new(rule, key, 0).with_plan(plan);
            let place = self.places.place(&[check], &check);
            (place.map(|place| place.bits()), check, returned)
        });
        let mut keys: Vec<_> = keys.collect();
        keys.sort_by_key(|(place, ..)| *place);
        for keys in keys.chunk_by(|(one, ..), (other, ..)| one == other) {
            queries.extend(keys.chunks(TOGETHER).map(|keys| {
                let keys = keys.iter().map(|(_, check, returned)| (*check, *returned));
                Query::maintenance(self, keys)
            }));
        }
    }
}

impl Engine {
    /// Visits up to `most` of the listed keys of a limit that this round has not visited yet; `None`: all of them, in a new round.
    /// Returns how many it has visited. Keys whose entry has nothing of this limit leave the list.
    fn visit(
        &self,
        limit: &Limit,
        most: Option<usize>,
        mut look: impl FnMut(Fingerprint, &mut Entry) -> Option<Visit>,
    ) -> usize {
        limit.visit(most, |key| {
            let visit = self.keys.with(limit.at(key), |entry| {
                let visit = look(key, entry)?;
                entry.is_listed = visit != Visit::Drop;
                Some(visit)
            });
            visit.flatten().unwrap_or(Visit::Drop)
        })
    }

    /// Counts all units under a limit that are in no report as lost, and returns how many.
    pub(crate) fn give_up(&self, limit: &Limit) -> u64 {
        let mut lost = 0;
        self.visit(limit, None, |_, entry| {
            let counted = &mut entry.usage(limit)?.counted;
            let units = counted.report();
            lost += counted.lost(units);
            Some(Visit::Drop)
        });
        lost
    }
}
