//! A rule set on an engine.

use std::{fmt, ops::ControlFlow, sync::Arc, time::Duration};

use tollgate_core::{
    Check, Decision, RuleSet, Tick, Verdict,
    store::{Checks, Receipt, Settlement},
};

use crate::{
    effective::Effective,
    engine::{
        binding::Binding,
        exchange::Exchange,
        index_set::IndexSet,
        limit::Limit,
        maintenance::{MAX_REPORTS, Maintenance},
        query::{FollowUp, Query},
        request::{Request, Step},
        reset::Reset,
        settle::settle,
        split::Split,
    },
    sync::Ordering,
};

/// A rule set on an [`Engine`](crate::Engine).
///
/// Each request takes two calls: [`begin`](Self::begin) decides it, or gives a [`Query`] for the store, and
/// [`Query::finish`] turns the store's reply into the decision.
///
/// ```
/// use std::sync::Arc;
///
/// use tollgate_core::{
///     Check, Decision, MINUTE, Quota, Rule, RuleSet, Source, Verdict, algorithm::{Algorithm, Gcra},
///     store::Fingerprint,
/// };
/// use tollgate_prefilter::{
///     Begin, Engine, EngineEvents, EngineOptions, LeaseEvent, Next, Reply, ReportEvent, StoreRules,
/// };
///
/// # #[derive(Debug)]
/// # struct Store;
/// # impl StoreRules for Store {
/// #     fn exact(&self, _: &Rule) -> Option<&'static str> { None }
/// #     fn place(&self, _: &[Check], _: &Check) -> Option<Fingerprint> { None }
/// # }
/// # impl EngineEvents for Store {
/// #     fn lease(&self, _: LeaseEvent) {}
/// #     fn reports(&self, _: ReportEvent, _: usize) {}
/// #     fn units_lost(&self, _: u64) {}
/// # }
/// let quota = Quota::gcra(2, MINUTE);
/// let rules = Arc::new(RuleSet::new([Rule::new("per-key", quota)])?);
/// let engine = Engine::new(EngineOptions::default(), Box::new(Store));
/// let rules = engine.bind(rules, Box::new(Store));
///
/// // The store: it decides, and counts how often it is called.
/// let bucket = Gcra::new(&quota).expect("a bucket");
/// let (mut state, mut calls) = (Default::default(), 0);
/// let mut now = 1_700_000_000_000_000;
/// for request in 0..10 {
///     now += 1_000;
///     let check = Check::new(0, Fingerprint::from_bits(7), 1);
///     let decision = match rules.begin(&[check], now) {
///         Begin::Decided(decision) => decision,
///         Begin::Query(mut query) => {
///             let answer = query.send(now, |query| {
///                 calls += 1;
///                 bucket.acquire(&mut state, now, query.checks()[0].cost())
///             });
///             let verdict = Verdict::new(0, 0, answer, Source::Store);
///             let reply = Reply::new(now, Decision::new(now, [verdict], |_| true));
///             match query.finish(Ok(reply), now) {
///                 Next::Done(done) => done.decision,
///                 Next::Query(_) => unreachable!("all states are in one place"),
///             }
///         }
///     };
///     assert_eq!(decision.is_allowed(), request < 2);
/// }
/// // After the first denial, the deny cache answers.
/// assert_eq!(calls, 3);
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone)]
pub struct BoundRules(Arc<Binding>);

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

impl BoundRules {
    /// The most reports of one [poll](Self::poll_maintenance), so that requests do not wait for all that are due.
    pub const MAX_REPORTS: usize = MAX_REPORTS;

    pub(crate) fn new(binding: Binding) -> Self {
        Self(Arc::new(binding))
    }

    /// The rule set.
    #[must_use]
    pub fn rules(&self) -> &Arc<RuleSet> {
        &self.0.rules
    }

    /// The consistency of each quota of a rule: its own, then those of its plans. `None`: it has no limit, or is not enforced.
    pub fn effective(&self, rule: usize) -> impl Iterator<Item = Option<Effective>> {
        self.0.limits.effective(rule)
    }

    /// How often it has to be [polled](Self::poll_maintenance); `None`: never.
    #[must_use]
    pub fn maintenance_interval(&self) -> Option<Duration> {
        self.0.limits.pause().map(Duration::from_micros)
    }

    /// Decides a request, or returns the query for the store.
    ///
    /// Units that this process may spend come first: they are taken already, whatever the store would say. Then the deny cache
    /// decides, and then the store. A denial by the cache ends the decision: the other rules are not decided.
    #[inline]
    pub fn begin(&self, checks: &[Check], now: Tick) -> Begin {
        self.begin_within(checks, Tick::MAX, now)
    }

    /// The same for a request that waits for no longer than `patience` µs, also where its rules would let it
    /// [wait](tollgate_core::Rule::wait) longer. The query [has](Query::patience) how long it waits at most.
    #[inline]
    pub fn begin_within(&self, checks: &[Check], patience: Tick, now: Tick) -> Begin {
        let [check] = checks else {
            return self.begin_several(checks, patience, now);
        };
        let patience = self.0.patience(checks, patience);
        let miss = match self.0.spend(check, now) {
            Ok(verdict) => return self.decided(verdict, now),
            Err(miss) => miss,
        };
        if let Some(verdict) = self.0.deny(check, now, patience) {
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
        let is_enforced = self.0.rules.enforces(verdict.rule());
        let at = self.0.local().store_time.at(now);
        Begin::Decided(Decision::of_one(at, verdict, is_enforced))
    }

    fn acquire(&self, checks: Checks, new_keys: IndexSet, patience: Tick) -> Query {
        Query::from(Exchange::acquire(&self.0, checks, new_keys, patience))
    }

    #[inline(never)]
    fn begin_several(&self, checks: &[Check], patience: Tick, now: Tick) -> Begin {
        let store_at = self.0.local().store_time.at(now);
        let patience = self.0.patience(checks, patience);
        let split = match Split::new(&self.0, checks, patience, now) {
            ControlFlow::Break(decision) => return Begin::Decided(decision),
            ControlFlow::Continue(split) => split,
        };
        let undecided: Step = split.undecided(checks).collect();
        let steps = Request::steps(&self.0, checks, &undecided);
        if undecided.len() == checks.len() && steps.len() <= 1 {
            let checks = Checks::from_slice(checks);
            return Begin::Query(self.acquire(checks, split.new_keys, patience));
        }
        // States that are decided one after the other have no instant in common.
        let patience = if steps.len() > 1 { 0 } else { patience };
        let exchange = Exchange::acquire(&self.0, Checks::new(), IndexSet::default(), patience);
        let request = Request::new(checks, split, steps, (now, store_at));
        Begin::Query(Query::of_request(exchange, Box::new(request)))
    }

    /// Returns the query for a decision that takes nothing.
    pub fn peek(&self, checks: &[Check], now: Tick) -> Begin {
        if let Some(decision) = Check::deny_two_plans(&self.0.rules, checks) {
            return Begin::Decided(decision);
        }
        let undecided: Step = Split::default().undecided(checks).collect();
        let steps = Request::steps(&self.0, checks, &undecided);
        if steps.len() <= 1 {
            let exchange = Exchange::peek(&self.0, Checks::from_slice(checks));
            return Begin::Query(Query::from(exchange));
        }
        let times = (now, self.0.local().store_time.at(now));
        let request = Request::new(checks, Split::default(), steps, times);
        let exchange = Exchange::peek(&self.0, Checks::new());
        Begin::Query(Query::of_request(exchange, Box::new(request)))
    }

    /// Settles units that were taken. Those that this process may spend again stay here.
    pub fn settle(&self, receipts: &[Receipt], how: Settlement, now: Tick) -> FollowUp {
        let settlements = settle(&self.0, receipts, how, now);
        let returned = Maintenance::retired_leases(&self.0, now);
        FollowUp::new(settlements, returned)
    }

    /// Forgets what this process knows of states that are about to be forgotten. Checks with a cost of 0 are left out.
    pub fn begin_reset(&self, checks: &[Check], now: Tick) -> Reset {
        Reset::new(&self.0, checks, now)
    }

    /// What is due without a request: reports, and about once a second leases that are not needed. To be called each
    /// [`maintenance_interval`](Self::maintenance_interval), and again soon while it returns [`MAX_REPORTS`](Self::MAX_REPORTS), or
    /// [is not through](Self::is_looking_through_leases) with the leases.
    #[must_use = "units are missing until the queries are sent"]
    pub fn poll_maintenance(&self, now: Tick) -> Vec<Query> {
        let mut maintenance = Maintenance::new(&self.0);
        maintenance.reports(now, |_| true);
        if self.0.sweeps(now) {
            let limits = self.0.limits.iter();
            limits.for_each(|(_, _, limit)| limit.begin_visits());
            self.0.is_sweeping.store(true, Ordering::Relaxed);
        }
        if self.is_looking_through_leases() {
            maintenance.idle_leases(now);
            let mut limits = self.0.limits.iter();
            let is_more = limits.any(|(_, _, limit)| limit.has_visits());
            self.0.is_sweeping.store(is_more, Ordering::Relaxed);
        }
        queries(maintenance.exchanges)
    }

    /// Whether the last [poll](Self::poll_maintenance) has left leases to look at. It looks at some thousands, so that requests do not
    /// wait for all of them.
    #[must_use]
    pub fn is_looking_through_leases(&self) -> bool {
        self.0.is_sweeping.load(Ordering::Relaxed)
    }

    /// Everything that the store does not know or has granted: reports, due or not, and all leases. A retired rule set leaves
    /// out what another one that is in use has as well. To be called until it is empty and
    /// [everything is reported](Self::is_reported).
    #[must_use = "units are missing until the queries are sent"]
    pub fn flush(&self, now: Tick) -> Vec<Query> {
        let is_retired = self.0.is_retired();
        let is_ours = |limit: &Limit| !is_retired || !limit.is_in_use();
        let mut maintenance = Maintenance::new(&self.0);
        maintenance.reports(Tick::MAX, is_ours);
        maintenance.all_leases(now, is_ours);
        queries(maintenance.exchanges)
    }

    /// Whether nothing is left to [flush](Self::flush) but what is in flight.
    #[must_use]
    pub fn is_reported(&self) -> bool {
        let is_retired = self.0.is_retired();
        let mut limits = self.0.limits.iter();
        limits.all(|(_, _, limit)| is_retired && limit.is_in_use() || !limit.has_unreported())
    }

    /// The rule set is no longer in use: its limiters are gone, or were replaced. Returns what has to go back now, except what
    /// another rule set in use shares. Leases that are granted later go back at once.
    #[must_use = "units are missing until the queries are sent"]
    pub fn retire(&self, now: Tick) -> Vec<Query> {
        // Before leases are taken out, so that one that comes later goes back.
        self.0.retire();
        self.flush(now)
    }
}

fn queries(exchanges: Vec<Exchange>) -> Vec<Query> {
    exchanges.into_iter().map(Query::from).collect()
}

impl fmt::Debug for BoundRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundRules")
            .field("rules", &self.0.rules)
            .field("store", &self.0.store)
            .finish_non_exhaustive()
    }
}
