//! What is sent without a request: reports, and leases that go back.

use std::sync::Arc;

use tollgate_core::{Check, Tick, store::Fingerprint};

use crate::{
    engine::{bound_rules::BoundRules, exchange::Exchange, limit::Limit},
    lease::grant::ReturnedLease,
};

/// The most reports of one poll.
pub(crate) const MAX_REPORTS: usize = 128;

/// The most leases that one poll looks at: it takes about a millisecond, and requests wait meanwhile. A few in tests, which would need
/// thousands otherwise.
pub(crate) const MAX_VISITS: usize = if cfg!(test) { 4 } else { 4096 };

/// The most reports or leases of one query.
const TOGETHER: usize = 32;

/// Collects the queries of one poll.
pub(crate) struct Maintenance<'a> {
    binding: &'a Arc<BoundRules>,
    pub(crate) exchanges: Vec<Exchange>,
}

impl<'a> Maintenance<'a> {
    pub(crate) fn new(binding: &'a Arc<BoundRules>) -> Self {
        Self {
            binding,
            exchanges: Vec::new(),
        }
    }

    /// Reports that are due by a time, of some limits.
    pub(crate) fn reports(&mut self, by: Tick, which: impl Fn(&Limit) -> bool) {
        let mut left = MAX_REPORTS;
        for (rule, plan, limit) in self.binding.limits.iter().filter(|(_, _, it)| which(it)) {
            let due = self.binding.local().due_by(limit, by, left);
            left -= due.len();
            self.add(rule, plan, due.into_iter().map(|key| (key, None)));
        }
    }

    /// Leases that are not needed, of some of those that are left to look at.
    pub(crate) fn idle_leases(&mut self, now: Tick) {
        let mut most = MAX_VISITS;
        for (rule, plan, limit) in self.binding.limits.leased() {
            let (unneeded, visited) = self.binding.local().sweep(limit, now, most);
            most -= visited;
            self.add_leases(rule, plan, unneeded);
        }
    }

    /// All leases under some limits.
    pub(crate) fn all_leases(&mut self, now: Tick, which: impl Fn(&Limit) -> bool) {
        let limits = self.binding.limits.leased();
        for (rule, plan, limit) in limits.filter(|(_, _, it)| which(it)) {
            self.add_leases(rule, plan, self.binding.local().take_out(limit, now));
        }
    }

    /// Leases that came to a retired rule set.
    pub(crate) fn retired_leases(binding: &'a Arc<BoundRules>, now: Tick) -> Vec<Exchange> {
        let mut maintenance = Self::new(binding);
        if binding.is_retired() {
            maintenance.all_leases(now, |limit| !limit.is_in_use());
        }
        maintenance.exchanges
    }

    fn add_leases(&mut self, rule: u16, plan: u16, leases: Vec<(Fingerprint, ReturnedLease)>) {
        let leases = leases.into_iter();
        self.add(rule, plan, leases.map(|(key, it)| (key, Some(it))));
    }

    /// Puts keys of one rule into queries, by the places of their states: leases that go back, and else reports. Keys of several rules
    /// do not share a query, because the store may refuse one rule.
    fn add(
        &mut self,
        rule: u16,
        plan: u16,
        keys: impl Iterator<Item = (Fingerprint, Option<ReturnedLease>)>,
    ) {
        let keys = keys.map(|(key, returned)| {
            let check = Check::new(rule, key, 0).with_plan(plan);
            let place = self.binding.places.place(&[check], &check);
            (place.map(|place| place.bits()), check, returned)
        });
        let mut keys: Vec<_> = keys.collect();
        keys.sort_by_key(|(place, ..)| *place);
        for keys in keys.chunk_by(|(one, ..), (other, ..)| one == other) {
            for keys in keys.chunks(TOGETHER) {
                let mut exchange = Exchange::maintenance(self.binding);
                for (_, check, returned) in keys {
                    exchange.add(*check, *returned);
                }
                self.exchanges.push(exchange);
            }
        }
    }
}
