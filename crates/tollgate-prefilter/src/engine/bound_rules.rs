//! A rule set on an engine.

use std::{collections::VecDeque, fmt, sync::Arc, time::Duration};

use smallvec::{SmallVec, smallvec};
use tollgate_core::{
    Check, Checks, Decision, Fingerprint, Outcome, RuleSet, Source, Tick, Verdict,
    store::{Receipt, Settlement},
};

use crate::{
    effective::Effective,
    engine::{
        engine::Shared,
        events::EngineEvents,
        follow_up::FollowUp,
        index_set::IndexSet,
        limit::Limit,
        limits::Limits,
        local::{Local, as_counted},
        query::Query,
        request::{Request, Step},
        reset::Reset,
        store_rules::StoreRules,
    },
    sync::{AtomicBool, AtomicU64, Ordering},
    table::key_table::Miss,
};

/// How often leases are checked for those that are not needed, in µs.
const SWEEP_EVERY: Tick = 1_000_000;

/// The most reports or leases of one query.
const TOGETHER: usize = 32;

/// A rule set on an [`Engine`](crate::Engine).
///
/// Each request takes two calls: [`begin`](Self::begin) decides it, or gives a [`Query`] for the store, and
/// [`Query::finish`] turns the store's reply into the decision.
///
/// ```
/// use std::sync::Arc;
///
/// use tollgate_core::{
///     Check, Decision, Fingerprint, MINUTE, Quota, Rule, RuleSet, Source, Verdict,
///     algorithm::{Algorithm, Gcra},
/// };
/// use tollgate_prefilter::{
///     Begin, Engine, EngineEvents, EngineOptions, IndexSet, LeaseEvent, Next, Reply, ReportEvent,
///     StoreRules,
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
///             let reply = Reply {
///                 at: now,
///                 decision: Decision::new(now, [verdict], |_| true),
///                 shared: IndexSet::default(),
///                 reports: Default::default(),
///                 leases: Default::default(),
///             };
///             match query.finish(Ok(reply), now) {
///                 Next::Done(done) => done.decision,
///                 Next::Ask(_) => unreachable!("all states are in one place"),
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
pub struct BoundRules(Arc<Inner>);

struct Inner {
    engine: Arc<Shared>,
    rules: Arc<RuleSet>,
    limits: Limits,
    store: Box<dyn StoreRules>,
    /// Whether any check may be decided locally, other than by the deny cache.
    is_local: bool,
    is_retired: AtomicBool,
    /// When leases were last checked.
    swept: AtomicU64,
}

/// What becomes of a request at first.
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
    pub const MAX_REPORTS: usize = 128;

    pub(crate) fn new(
        engine: Arc<Shared>,
        rules: Arc<RuleSet>,
        limits: Limits,
        store: Box<dyn StoreRules>,
    ) -> Self {
        Self(Arc::new(Inner {
            is_local: limits.pause().is_some(),
            engine,
            rules,
            limits,
            store,
            is_retired: AtomicBool::new(false),
            swept: AtomicU64::new(0),
        }))
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
    /// decides, and then the store. A denial by the cache ends the decision: the other rules are not asked.
    #[inline]
    pub fn begin(&self, checks: &[Check], now: Tick) -> Begin {
        let [check] = checks else {
            return self.begin_several(checks, now);
        };
        let miss = match self.spend(check, now) {
            Ok(verdict) => return self.decided(verdict, now),
            Err(miss) => miss,
        };
        if let Some(verdict) = self.deny(check, now) {
            return self.decided(verdict, now);
        }
        let mut new_keys = IndexSet::default();
        if miss.is_new {
            new_keys.insert(0);
        }
        Begin::Query(Query::acquire(self, Checks::from_slice(checks), new_keys))
    }

    #[inline(always)]
    fn decided(&self, verdict: Verdict, now: Tick) -> Begin {
        let is_enforced = self.0.rules.enforces(verdict.rule());
        let at = self.local().store_time.at(now);
        Begin::Decided(Decision::of_one(at, verdict, is_enforced))
    }

    #[inline(never)]
    fn begin_several(&self, checks: &[Check], now: Tick) -> Begin {
        if let Some(decision) = Check::deny_two_plans(&self.0.rules, checks) {
            return Begin::Decided(decision);
        }
        if let Some(decision) = self.deny_several(checks, now) {
            return Begin::Decided(decision);
        }
        let store_at = self.local().store_time.at(now);
        let mut new_keys = IndexSet::default();
        let mut verdicts = SmallVec::new();
        if self.0.is_local && has_twins(checks) {
            // They are one check for the store. Of a key that only comes so nothing could be decided locally.
            let is_new = |check: &Check| {
                let (limit, reports) = (self.limit(check), self.local().reports());
                let counted = limit.filter(|limit| limit.report_terms().is_some());
                let (limit, reports) = counted.zip(reports)?;
                (!reports.keeps(limit, check.key())).then_some(())
            };
            for (index, check) in checks.iter().enumerate() {
                if is_new(check).is_some() {
                    new_keys.insert(index);
                }
            }
        } else if self.0.is_local {
            for (index, check) in checks.iter().enumerate() {
                let spent = self.spend_one_of(checks, check, now);
                if spent.as_ref().is_err_and(|miss| miss.is_new) {
                    new_keys.insert(index);
                }
                verdicts.push(spent.ok().map(|verdict| (store_at, verdict)));
            }
            if verdicts.iter().all(Option::is_some) {
                let verdicts = verdicts.iter().flatten().map(|(_, verdict)| *verdict);
                return Begin::Decided(self.decision(verdicts, now));
            }
        }
        let indices = |index: &u16| {
            let verdict = verdicts.get(usize::from(*index));
            verdict.is_none_or(Option::is_none)
        };
        // A request has fewer than 65 536 checks.
        let asked: Step = (0..checks.len() as u16).filter(indices).collect();
        let steps = self.steps(checks, &asked);
        if asked.len() == checks.len() && steps.len() <= 1 {
            let checks = Checks::from_slice(checks);
            return Begin::Query(Query::acquire(self, checks, new_keys));
        }
        verdicts.resize(checks.len(), None);
        let times = (now, store_at);
        let request = Request::new(checks, verdicts, new_keys, steps, times);
        let query = Query::acquire(self, Checks::new(), new_keys);
        Begin::Query(query.of_request(Box::new(request)))
    }

    /// Returns the query for a decision that takes nothing.
    pub fn peek(&self, checks: &[Check], now: Tick) -> Begin {
        if let Some(decision) = Check::deny_two_plans(&self.0.rules, checks) {
            return Begin::Decided(decision);
        }
        let asked: Step = (0..checks.len() as u16).collect();
        let steps = self.steps(checks, &asked);
        if steps.len() <= 1 {
            return Begin::Query(Query::peek(self, Checks::from_slice(checks)));
        }
        let times = (now, self.local().store_time.at(now));
        let verdicts = smallvec![None; checks.len()];
        let new_keys = IndexSet::default();
        let request = Request::new(checks, verdicts, new_keys, steps, times);
        let query = Query::peek(self, Checks::new());
        Begin::Query(query.of_request(Box::new(request)))
    }

    /// The checks with these indices, by the place of their states.
    fn steps(&self, checks: &[Check], asked: &[u16]) -> VecDeque<Step> {
        let together: Checks = asked
            .iter()
            .map(|index| checks[usize::from(*index)])
            .collect();
        let mut steps: SmallVec<[(Option<Fingerprint>, Step); 2]> = SmallVec::new();
        for (index, check) in asked.iter().zip(&together) {
            let place = self.0.store.place(&together, check);
            match steps.iter_mut().find(|(other, _)| *other == place) {
                Some((_, step)) => step.push(*index),
                None => steps.push((place, smallvec![*index])),
            }
        }
        steps.into_iter().map(|(_, step)| step).collect()
    }

    /// Settles units that were taken. Those that this process may spend again stay here.
    pub fn settle(&self, receipts: &[Receipt], how: Settlement, now: Tick) -> FollowUp {
        let mut follow_up = FollowUp::default();
        let mut others: SmallVec<[Receipt; 4]> = SmallVec::new();
        for receipt in receipts {
            match self.settle_one(receipt, how, now) {
                None => {}
                // As it was: a ticket is settled as a whole where one of its rules says where the states of the others are.
                Some((receipt, same)) if same == how => others.push(receipt),
                Some(settlement) => follow_up.settle.push(settlement),
            }
        }
        let others = others.into_iter().map(|receipt| (receipt, how));
        follow_up.settle.extend(others);
        let is_local = |(receipt, _): &(Receipt, Settlement)| receipt.source == Source::Local;
        if follow_up.settle.iter().any(is_local) {
            self.0.engine.wait_for_reports();
        }
        self.return_retired(&mut follow_up, now);
        follow_up
    }

    /// What the store has to settle for units that this process may have spent.
    fn settle_one(
        &self,
        receipt: &Receipt,
        how: Settlement,
        now: Tick,
    ) -> Option<(Receipt, Settlement)> {
        let check = &receipt.check;
        let back = match how {
            Settlement::Refund(units) => units.min(check.cost()),
            Settlement::Cancel => check.cost(),
            Settlement::Charge(units) => {
                // What this process may spend is as good as what the store has.
                let more = check.with_cost(units);
                return self.spend(&more, now).is_err().then_some((*receipt, how));
            }
            _ => return None,
        };
        self.local().unlearn(check.key());
        let limit = match (receipt.source, self.limit(check)) {
            (Source::Lease | Source::Local, Some(limit)) => limit,
            _ => return Some((*receipt, how)),
        };
        let times = (now, self.local().store_time.local(receipt.taken.at));
        match self.local().give_back(limit, receipt, times, back) {
            0 => None,
            rest => Some((as_counted(limit, receipt), Settlement::Refund(rest))),
        }
    }

    /// Forgets what this process knows of states that are about to be forgotten. Checks with a cost of 0 are left out.
    pub fn begin_reset(&self, checks: &[Check], now: Tick) -> Reset {
        Reset::new(self, checks, now)
    }

    /// What is due without a request: reports, and about once a second leases that are not needed. To be called each
    /// [`maintenance_interval`](Self::maintenance_interval), and again soon while it returns [`MAX_REPORTS`](Self::MAX_REPORTS).
    #[must_use = "units are missing until the queries are sent"]
    pub fn poll_maintenance(&self, now: Tick) -> Vec<Query> {
        let mut queries = self.reports(now, |_| true);
        let swept = self.0.swept.load(Ordering::Relaxed);
        if let Some(leases) = self.local().leases()
            && now.saturating_sub(swept) >= SWEEP_EVERY
        {
            self.0.swept.store(now, Ordering::Relaxed);
            for (rule, plan, limit) in self.0.limits.iter() {
                let unneeded = leases.sweep(limit, now);
                self.return_leases((rule, plan), unneeded, &mut queries);
            }
        }
        queries
    }

    /// Everything that the store does not know or has granted: reports, due or not, and all leases. A retired rule set leaves
    /// out what another one that is in use has as well. To be called until it is empty and
    /// [everything is reported](Self::is_reported).
    #[must_use = "units are missing until the queries are sent"]
    pub fn flush(&self, now: Tick) -> Vec<Query> {
        let is_retired = self.0.is_retired.load(Ordering::SeqCst);
        let is_ours = |limit: &Limit| !is_retired || !limit.is_in_use();
        let mut queries = self.reports(Tick::MAX, is_ours);
        self.all_leases(is_ours, &mut queries, now);
        queries
    }

    /// Whether nothing is left to [flush](Self::flush) but what is in flight.
    #[must_use]
    pub fn is_reported(&self) -> bool {
        let is_retired = self.0.is_retired.load(Ordering::SeqCst);
        let mut limits = self.0.limits.iter();
        limits.all(|(_, _, limit)| is_retired && limit.is_in_use() || !limit.has_unreported())
    }

    /// The rule set is no longer in use: its limiters are gone, or were replaced. Returns what has to go back now, but for what
    /// another rule set that is in use has as well. Leases that come later go back at once.
    #[must_use = "units are missing until the queries are sent"]
    pub fn retire(&self, now: Tick) -> Vec<Query> {
        // Before leases are taken out, so that one that comes later goes back.
        if !self.0.is_retired.swap(true, Ordering::SeqCst) {
            self.0.limits.iter().for_each(|(_, _, it)| it.retire());
        }
        self.flush(now)
    }

    /// Leases that came to a retired rule set go back.
    pub(crate) fn return_retired(&self, follow_up: &mut FollowUp, now: Tick) {
        if self.0.is_retired.load(Ordering::SeqCst) {
            self.all_leases(|limit| !limit.is_in_use(), &mut follow_up.queries, now);
        }
    }

    fn all_leases(&self, which: impl Fn(&Limit) -> bool, queries: &mut Vec<Query>, now: Tick) {
        let Some(leases) = self.local().leases() else {
            return;
        };
        for (rule, plan, limit) in self.0.limits.iter().filter(|(_, _, it)| which(it)) {
            let held = leases.take_out(limit, now);
            self.return_leases((rule, plan), held, queries);
        }
    }

    fn return_leases(
        &self,
        of: (u16, u16),
        leases: Vec<(Fingerprint, crate::lease::grant::ReturnedLease)>,
        queries: &mut Vec<Query>,
    ) {
        self.in_queries(of, leases, queries, |query, check, returned| {
            query.add_returned(check, returned);
        });
    }

    /// Reports that are due by a time, of some limits.
    fn reports(&self, by: Tick, which: impl Fn(&Limit) -> bool) -> Vec<Query> {
        let mut queries = Vec::new();
        let Some(reports) = self.local().reports() else {
            return queries;
        };
        let mut left = Self::MAX_REPORTS;
        for (rule, plan, limit) in self.0.limits.iter().filter(|(_, _, it)| which(it)) {
            let due = reports.due_by(limit, by, left);
            left -= due.len();
            let due: Vec<_> = due.into_iter().map(|key| (key, ())).collect();
            self.in_queries((rule, plan), due, &mut queries, |query, check, ()| {
                query.add_report(check);
            });
        }
        queries
    }

    /// Puts keys of one rule into queries, by the places of their states. Keys of several rules do not share a query, because
    /// the store may refuse one rule.
    fn in_queries<T>(
        &self,
        (rule, plan): (u16, u16),
        keys: Vec<(Fingerprint, T)>,
        queries: &mut Vec<Query>,
        add: impl Fn(&mut Query, Check, T),
    ) {
        let mut keys: Vec<_> = keys
            .into_iter()
            .map(|(key, item)| {
                let check = Check::new(rule, key, 0).with_plan(plan);
                let place = self.0.store.place(&[check], &check);
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
                    queries.push(Query::maintenance(self));
                    last = Some((place, 1));
                }
            }
            if let Some(query) = queries.last_mut() {
                add(query, check, item);
            }
        }
    }

    /// What the store has taken of a window that can be leased, for an abandoned request: it stays in this process,
    /// or goes back to the store.
    pub(crate) fn keep_abandoned(&self, receipt: &Receipt, now: Tick, follow_up: &mut FollowUp) {
        let limit = self.limit(&receipt.check);
        let Some(limit) = limit.filter(|limit| limit.windows.is_some()) else {
            return;
        };
        let mut receipt = *receipt;
        receipt.source = Source::Lease;
        let local = self.local();
        local.unlearn(receipt.check.key());
        let times = (now, local.store_time.local(receipt.taken.at));
        match local.give_back(limit, &receipt, times, receipt.check.cost()) {
            0 => {}
            rest => self.refund(follow_up, as_counted(limit, &receipt), rest),
        }
    }

    /// The store has to refund units that this process has spent.
    pub(crate) fn refund(&self, follow_up: &mut FollowUp, receipt: Receipt, units: u64) {
        if receipt.source == Source::Local {
            self.0.engine.wait_for_reports();
        }
        follow_up.settle.push((receipt, Settlement::Refund(units)));
    }

    /// A decision that the store has not made.
    pub(crate) fn unanswered(&self, checks: &[Check], outcome: Outcome) -> Decision {
        let verdicts = checks
            .iter()
            .map(|check| Verdict::unanswered(check.rule(), check.plan(), outcome));
        Decision::new(0, verdicts, |verdict| self.0.rules.enforces(verdict.rule()))
    }

    fn decision(&self, verdicts: impl IntoIterator<Item = Verdict>, now: Tick) -> Decision {
        let at = self.local().store_time.at(now);
        Decision::new(at, verdicts, |verdict| {
            self.0.rules.enforces(verdict.rule())
        })
    }

    #[inline]
    fn spend(&self, check: &Check, now: Tick) -> Result<Verdict, Miss> {
        match self.limit(check) {
            Some(limit) => self.local().spend(limit, check, now),
            None => Err(Miss { is_new: true }),
        }
    }

    /// The same for one of several checks. What a threshold of the request reads is left to the store, which is queried anyway,
    /// and so is what decides where the other states lie.
    fn spend_one_of(&self, checks: &[Check], check: &Check, now: Tick) -> Result<Verdict, Miss> {
        if self.0.store.places_others(check.rule()) {
            return Err(Miss { is_new: true });
        }
        if self.0.rules.has_thresholds()
            && let Some(reports) = self.local().reports()
            && let Some(limit) = self.limit(check)
            && limit.report_terms().is_some()
            && has_threshold(&self.0.rules, checks, check)
        {
            return Err(reports.see(limit, check.key()));
        }
        self.spend(check, now)
    }

    #[inline]
    fn deny(&self, check: &Check, now: Tick) -> Option<Verdict> {
        self.local().deny(self.limit(check)?, check, now)
    }

    /// Denies a request of several checks if the deny cache denies one. The others are not asked.
    ///
    /// A shadow counts what is denied as well, and a threshold reports on it, so a request with one of them goes to the store.
    fn deny_several(&self, checks: &[Check], now: Tick) -> Option<Decision> {
        let is_enforced = |check: &Check| self.0.rules.enforces(usize::from(check.rule()));
        if !checks.iter().all(is_enforced) {
            return None;
        }
        let answers = checks.iter().map(|check| {
            let limit = self.limit(check)?;
            let denied = self.local().deny(limit, check, now)?;
            // What this process may spend is taken already.
            let leased = self.local().leased(limit, check.key(), now);
            (leased < check.cost()).then_some(denied)
        });
        let answers: SmallVec<[_; 4]> = answers.collect();
        if answers.iter().all(Option::is_none) {
            return None;
        }
        let verdicts = checks.iter().zip(answers).map(|(check, answer)| {
            let (rule, plan) = (check.rule(), check.plan());
            answer.unwrap_or_else(|| Verdict::unanswered(rule, plan, Outcome::NotAsked))
        });
        Some(self.decision(verdicts, now))
    }

    #[inline]
    pub(crate) fn limit(&self, check: &Check) -> Option<&Limit> {
        self.0.limits.of(check)
    }

    /// The limits of a rule, with the number of a plan that each belongs to.
    pub(crate) fn limits_of(&self, rule: u16) -> impl Iterator<Item = (u16, &Limit)> {
        let limits = self.0.limits.iter().filter(move |(of, ..)| *of == rule);
        limits.map(|(_, plan, limit)| (plan, &**limit))
    }

    #[inline]
    pub(crate) fn local(&self) -> &Local {
        &self.0.engine.local
    }

    pub(crate) fn events(&self) -> &dyn EngineEvents {
        &*self.0.engine.events
    }

    pub(crate) fn engine(&self) -> &Arc<Shared> {
        &self.0.engine
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !*self.is_retired.get_mut() {
            self.limits.iter().for_each(|(_, _, it)| it.retire());
        }
        self.engine.unbind(&self.rules, &self.limits);
    }
}

/// Whether a threshold of a request reads the state of one of its checks.
fn has_threshold(rules: &RuleSet, checks: &[Check], check: &Check) -> bool {
    let mut thresholds = rules.thresholds_of(usize::from(check.rule()));
    thresholds.any(|threshold| {
        let mut others = checks.iter();
        others.any(|other| usize::from(other.rule()) == threshold)
    })
}

/// Whether two checks are on one state.
pub(crate) fn has_twins(checks: &[Check]) -> bool {
    checks.iter().enumerate().any(|(index, check)| {
        let mut before = checks[..index].iter();
        before.any(|other| other.rule() == check.rule() && other.key() == check.key())
    })
}

impl fmt::Debug for BoundRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundRules")
            .field("rules", &self.0.rules)
            .field("store", &self.0.store)
            .finish_non_exhaustive()
    }
}
