//! What a store calls for each request of a rule set, and for its maintenance.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use tollgate_core::{
    Check, Decision, Source, Tick, Verdict,
    store::{Checks, Hold, Settlement},
};

use crate::{
    engine::{
        bound_rules::{BoundRules, Step},
        exchange::{Exchange, Kind},
        limit::Limit,
        maintenance::{MAX_REPORTS, Maintenance},
        query::{FollowUp, Query},
        reply::IndexSet,
        request::{Request, Split},
        settle::{Reset, as_counted, settle},
    },
    sync::Ordering,
};

/// The result of [`BoundRules::begin`]: the request is decided, or the store has to be queried. No variant will be added, because a
/// store has to handle each.
#[derive(Debug)]
#[must_use]
pub enum Begin {
    /// It is decided.
    Decided(Decision),
    /// The store decides it, or a part of it.
    Query(Query),
}

/// Each request takes two calls: [`begin`](Self::begin) decides it, or gives a [`Query`] for the store, and
/// [`Query::finish`] turns the store's reply into the decision.
impl BoundRules {
    /// The most reports of one [poll](Self::poll_maintenance), so that requests do not wait for all that are due.
    pub const MAX_REPORTS: usize = MAX_REPORTS;

    /// How often it has to be [polled](Self::poll_maintenance); `None`: never.
    pub fn maintenance_interval(&self) -> Option<Duration> {
        self.pause.map(Duration::from_micros)
    }

    /// Decides a request, or returns the query for the store.
    ///
    /// Units that this process may spend come first: they are taken already, whatever the store would say. Then the deny cache
    /// decides, and then the store. A denial by the cache ends the decision: the other rules are not decided.
    #[inline]
    pub fn begin(self: &Arc<Self>, checks: &[Check], now: Tick) -> Begin {
        self.begin_within(checks, Tick::MAX, now)
    }

    /// The same for a request that waits for no longer than `patience` µs, also where its rules would let it
    /// [wait](tollgate_core::Rule::wait) longer. The query [has](Query::patience) how long it waits at most.
    #[inline]
    pub fn begin_within(self: &Arc<Self>, checks: &[Check], patience: Tick, now: Tick) -> Begin {
        let [check] = checks else {
            return self.begin_several(checks, patience, now);
        };
        let patience = self.patience(checks, patience);
        let miss = match self.spend(check, now) {
            Ok(verdict) => return self.decided(verdict, now),
            Err(miss) => miss,
        };
        if let Some(verdict) = self.deny(check, now, patience) {
            return self.decided(verdict, now);
        }
        let mut new_keys = IndexSet::default();
        if miss.is_new {
            new_keys.insert(0);
        }
        Begin::Query(self.acquire(Checks::from_slice(checks), new_keys, patience))
    }

    #[inline(always)]
    fn decided(&self, verdict: Verdict, now: Tick) -> Begin {
        let is_enforced = self.rules.enforces(verdict.rule());
        let at = self.local().store_time.at(now);
        Begin::Decided(Decision::of_one(at, verdict, is_enforced))
    }

    fn acquire(self: &Arc<Self>, checks: Checks, new_keys: IndexSet, patience: Tick) -> Query {
        let kind = Kind::Acquire;
        Query::from(Exchange::new(self, kind, checks, new_keys, patience))
    }

    #[inline(never)]
    fn begin_several(self: &Arc<Self>, checks: &[Check], patience: Tick, now: Tick) -> Begin {
        let store_at = self.local().store_time.at(now);
        let patience = self.patience(checks, patience);
        let split = match Split::new(self, checks, patience, now) {
            ControlFlow::Break(decision) => return Begin::Decided(decision),
            ControlFlow::Continue(split) => split,
        };
        let undecided: Step = split.undecided(checks).collect();
        let steps = Request::steps(self, checks, &undecided);
        if undecided.len() == checks.len() && steps.len() <= 1 {
            let checks = Checks::from_slice(checks);
            return Begin::Query(self.acquire(checks, split.new_keys, patience));
        }
        // States that are decided one after the other have no instant in common.
        let patience = if steps.len() > 1 { 0 } else { patience };
        let (kind, none) = (Kind::Acquire, IndexSet::default());
        let exchange = Exchange::new(self, kind, Checks::new(), none, patience);
        let request = Request::new(checks, split, steps, (now, store_at));
        Begin::Query(Query::of_request(exchange, Box::new(request)))
    }

    /// Returns the query for a decision that takes nothing.
    pub fn peek(self: &Arc<Self>, checks: &[Check], now: Tick) -> Begin {
        if let Some(decision) = Check::deny_two_plans(&self.rules, checks) {
            return Begin::Decided(decision);
        }
        let undecided: Step = Split::default().undecided(checks).collect();
        let steps = Request::steps(self, checks, &undecided);
        let peek = |checks| Exchange::new(self, Kind::Peek, checks, IndexSet::default(), 0);
        if steps.len() <= 1 {
            return Begin::Query(Query::from(peek(Checks::from_slice(checks))));
        }
        let times = (now, self.local().store_time.at(now));
        let request = Request::new(checks, Split::default(), steps, times);
        Begin::Query(Query::of_request(peek(Checks::new()), Box::new(request)))
    }

    /// Settles units that were taken. Those that this process may spend again stay here.
    pub fn settle(self: &Arc<Self>, receipts: &[Hold], how: Settlement, now: Tick) -> FollowUp {
        let settlements = settle(self, receipts, how, now);
        let returned = Maintenance::retired_leases(self, now);
        FollowUp::new(settlements, returned)
    }

    /// Units that this process has spent of a lease, or counted, as the store has counted them when it has been told.
    pub fn as_booked(&self, hold: &Hold) -> Hold {
        match (hold.source, self.limit(&hold.check)) {
            (Source::Lease | Source::Local, Some(limit)) => {
                let mut booked = as_counted(limit, hold);
                booked.source = Source::Store;
                booked
            }
            _ => *hold,
        }
    }

    /// Forgets what this process knows of states that are about to be forgotten. Checks with a cost of 0 are left out.
    pub fn begin_reset(self: &Arc<Self>, checks: &[Check], now: Tick) -> Reset {
        Reset::new(self, checks, now)
    }

    /// What is due without a request: reports, and about once a second leases that are not needed. To be called each
    /// [`maintenance_interval`](Self::maintenance_interval), and again soon while it returns [`MAX_REPORTS`](Self::MAX_REPORTS), or
    /// [is not through](Self::is_looking_through_leases) with the leases.
    #[must_use = "units are missing until the queries are sent"]
    pub fn poll_maintenance(self: &Arc<Self>, now: Tick) -> Vec<Query> {
        let mut maintenance = Maintenance::new(self);
        maintenance.reports(now, |_| true);
        if self.sweeps(now) {
            let limits = self.limits.leased();
            limits.for_each(|(_, _, limit)| limit.begin_visits());
            self.is_sweeping.store(true, Ordering::Relaxed);
        }
        if self.is_looking_through_leases() {
            maintenance.idle_leases(now);
            let mut limits = self.limits.leased();
            let is_more = limits.any(|(_, _, limit)| limit.has_visits());
            self.is_sweeping.store(is_more, Ordering::Relaxed);
        }
        queries(maintenance.exchanges)
    }

    /// Whether the last [poll](Self::poll_maintenance) has left leases to look at. It looks at some thousands, so that requests do not
    /// wait for all of them.
    pub fn is_looking_through_leases(&self) -> bool {
        self.is_sweeping.load(Ordering::Relaxed)
    }

    /// Everything that the store does not know or has granted: reports, due or not, and all leases. A retired rule set leaves
    /// out what another one that is in use has as well. To be called until it is empty and
    /// [everything is reported](Self::is_reported).
    #[must_use = "units are missing until the queries are sent"]
    pub fn flush(self: &Arc<Self>, now: Tick) -> Vec<Query> {
        let is_retired = self.is_retired();
        let is_ours = |limit: &Limit| !is_retired || !limit.is_in_use();
        let mut maintenance = Maintenance::new(self);
        maintenance.reports(Tick::MAX, is_ours);
        maintenance.all_leases(now, is_ours);
        queries(maintenance.exchanges)
    }

    /// Whether nothing is left to [flush](Self::flush) but what is in flight.
    pub fn is_reported(&self) -> bool {
        let is_retired = self.is_retired();
        let mut limits = self.limits.iter();
        limits.all(|(_, _, limit)| is_retired && limit.is_in_use() || !limit.has_unreported())
    }

    /// The rule set is no longer in use: its limiters are gone, or were replaced. Returns what has to go back now, except what
    /// another rule set in use shares. Leases that are granted later go back at once.
    #[must_use = "units are missing until the queries are sent"]
    pub fn retire(self: &Arc<Self>, now: Tick) -> Vec<Query> {
        // Before leases are taken out, so that one that comes later goes back.
        self.set_retired();
        self.flush(now)
    }
}

fn queries(exchanges: Vec<Exchange>) -> Vec<Query> {
    exchanges.into_iter().map(Query::from).collect()
}
