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
            let due = due.into_iter().map(|key| (key, ()));
            self.add((rule, plan), due, |exchange, check, ()| {
                exchange.add_report(check);
            });
        }
    }

    /// Leases that are not needed, of some of those that are left to look at.
    pub(crate) fn idle_leases(&mut self, now: Tick) {
        let mut most = MAX_VISITS;
        for (rule, plan, limit) in self.binding.limits.leased() {
            let (unneeded, visited) = self.binding.local().sweep(limit, now, most);
            most -= visited;
            self.add_leases((rule, plan), unneeded);
        }
    }

    /// All leases under some limits.
    pub(crate) fn all_leases(&mut self, now: Tick, which: impl Fn(&Limit) -> bool) {
        let limits = self.binding.limits.leased();
        for (rule, plan, limit) in limits.filter(|(_, _, it)| which(it)) {
            self.add_leases((rule, plan), self.binding.local().take_out(limit, now));
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

    fn add_leases(&mut self, of: (u16, u16), leases: Vec<(Fingerprint, ReturnedLease)>) {
        self.add(of, leases, |exchange, check, returned| {
            exchange.add_returned(check, returned);
        });
    }

    /// Puts keys of one rule into queries, by the places of their states. Keys of several rules do not share a query, because
    /// the store may refuse one rule.
    fn add<T>(
        &mut self,
        (rule, plan): (u16, u16),
        keys: impl IntoIterator<Item = (Fingerprint, T)>,
        add: impl Fn(&mut Exchange, Check, T),
    ) {
        let mut keys: Vec<_> = keys
            .into_iter()
            .map(|(key, item)| {
                let check = Check::new(rule, key, 0).with_plan(plan);
                let place = self.binding.places.place(&[check], &check);
                (place.map(|place| place.bits()), check, item)
            })
            .collect();
        keys.sort_by_key(|(place, ..)| *place);
        let mut last = None;
        for (place, check, item) in keys {
            match last {
                Some((same, count)) if same == place && count < TOGETHER => {
                    last = Some((place, count + 1));
                }
                _ => {
                    self.exchanges.push(Exchange::maintenance(self.binding));
                    last = Some((place, 1));
                }
            }
            if let Some(exchange) = self.exchanges.last_mut() {
                add(exchange, check, item);
            }
        }
    }
}
