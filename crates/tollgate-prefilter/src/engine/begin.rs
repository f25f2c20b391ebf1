//! What a store calls for each request of a rule set, and for its maintenance.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;
use tollgate_core::{
    Check, Decision, Outcome, Source, Tick, Verdict,
    algorithm::Taken,
    store::{Checks, Fingerprint, Hold, Settlement},
};

use crate::{
    engine::{
        engine::{Engine, SentAt},
        entry::Entry,
        limit::{Limit, Visit},
        local_rules::LocalRules,
        query::{FollowUp, Kind, LeaseItem, Query},
        request::{Request, Settlements, as_counted, settle_one, taken_by},
    },
    lease::terms::ReturnedLease,
    sync::{Ordering, lock},
};

/// The result of [`LocalRules::begin`]: the request is decided, or the store has to be queried. No variant will be added, because a
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
impl LocalRules {
    /// How often it has to be [polled](Self::poll_maintenance); `None`: never.
    pub fn maintenance_interval(&self) -> Option<Duration> {
        self.pause.map(Duration::from_micros)
    }

    /// Decides a request, or returns the query for the store.
    ///
    /// Units that this process may spend come first: they are taken already, whatever the store would say. Then the deny cache
    /// decides, and then the store. A denial by the cache ends the decision: the other rules are not decided. It is looked for first where
    /// there are several checks, so that nothing is reserved in vain.
    ///
    /// It waits for no longer than `patience` µs, also where its rules would let it [wait](tollgate_core::Rule::wait) longer. The query
    /// [has](Query::patience) how long it waits at most.
    #[inline]
    pub fn begin(self: &Arc<Self>, checks: &[Check], patience: Tick, now: Tick) -> Begin {
        let patience = self.patience(checks, patience);
        let [check] = checks else {
            return self.begin_several(checks, patience, now);
        };
        let verdict = self.reserve(check, now);
        let Some(verdict) = verdict.or_else(|| self.deny(check, now, patience)) else {
            let checks = Checks::from_slice(checks);
            return Begin::Query(Query::new(self, Kind::Acquire, checks, patience));
        };
        let is_enforced = self.rules.enforces(verdict.rule());
        let at = self.engine.store_now(now);
        Begin::Decided(Decision::of_one(at, verdict, is_enforced))
    }

    #[inline(never)]
    fn begin_several(self: &Arc<Self>, checks: &[Check], patience: Tick, now: Tick) -> Begin {
        let denied = Check::deny_two_plans(&self.rules, checks);
        if let Some(decision) = denied.or_else(|| self.deny_several(checks, patience, now)) {
            return Begin::Decided(decision);
        }
        let mut request = Request::new(self, checks, now);
        if self.pause.is_some() {
            request.reserve(self);
        }
        self.query(Kind::Acquire, request, checks, patience)
    }

    /// Returns the query for a decision that takes nothing.
    pub fn peek(self: &Arc<Self>, checks: &[Check], now: Tick) -> Begin {
        if let Some(decision) = Check::deny_two_plans(&self.rules, checks) {
            return Begin::Decided(decision);
        }
        let patience = self.patience(checks, Tick::MAX);
        let request = Request::new(self, checks, now);
        self.query(Kind::Peek, request, checks, patience)
    }

    /// The query for what is not decided of a request.
    fn query(
        self: &Arc<Self>,
        kind: Kind,
        mut request: Request,
        checks: &[Check],
        patience: Tick,
    ) -> Begin {
        let undecided = request.plan_steps(self);
        if undecided == 0 && !checks.is_empty() {
            return Begin::Decided(request.decision(self));
        }
        // States that are decided one after the other have no instant in common.
        let patience = match request.steps.len() {
            0 | 1 => patience,
            _ => 0,
        };
        let is_one_step = undecided == checks.len() && request.steps.len() <= 1;
        let checks = Checks::from_slice(checks);
        let query = Query::new(self, kind, checks, patience);
        Begin::Query(match is_one_step {
            true => query,
            false => query.of_request(request),
        })
    }

    /// Denies a request of several checks if the deny cache denies one. The others are not decided.
    ///
    /// A shadow counts what is denied as well, and a threshold reports on it, so a request with one of them goes to the store.
    fn deny_several(&self, checks: &[Check], patience: Tick, now: Tick) -> Option<Decision> {
        let is_enforced = |check: &Check| self.rules.enforces(usize::from(check.rule()));
        if !checks.iter().all(is_enforced) {
            return None;
        }
        let denied = checks.iter().map(|check| {
            let denied = self.deny(check, now, patience)?;
            // What this process may spend is taken already.
            let leased = match check.policy().is_exact() {
                true => 0,
                false => self.leased(check, now),
            };
            (leased < check.cost()).then_some(denied)
        });
        let denied: SmallVec<[_; 4]> = denied.collect();
        if denied.iter().all(Option::is_none) {
            return None;
        }
        let verdicts = checks.iter().zip(denied).map(|(check, denied)| {
            let (rule, plan) = (check.rule(), check.plan());
            denied.unwrap_or_else(|| Verdict::unanswered(rule, plan, Outcome::NotDecided))
        });
        Some(self.decision(self.engine.store_now(now), verdicts))
    }

    /// What was taken for checks by a decision, but for slots; and the check that says where the states lie. Of a request that waits,
    /// only its places are taken.
    pub fn taken(&self, checks: &[Check], decision: &Decision) -> SmallVec<[Hold; 4]> {
        let verdicts = decision.verdicts().iter().zip(checks);
        let taken = verdicts.filter_map(|(verdict, check)| taken_by(verdict, check, decision.at()));
        let is_enforced = |hold: &Hold| self.rules.enforces(usize::from(hold.check.rule()));
        let mut taken: SmallVec<[Hold; 4]> = match decision.queue_places() {
            [] => taken.filter(is_enforced).collect(),
            places => places.iter().copied().filter(is_enforced).collect(),
        };
        let says = |check: &&Check| Some(check.rule()) == self.places.with;
        let places = checks.iter().filter(says).map(|it| it.with_cost(0));
        taken.extend(places.map(|check| Hold::of_store(check, Taken::new(0, 0))));
        taken
    }

    /// Settles units that were taken. Those that this process may spend again stay here.
    pub fn settle(self: &Arc<Self>, holds: &[Hold], how: Settlement, now: Tick) -> FollowUp {
        // Where the states of the others lie: said with each of them, as this one may be settled otherwise, or here.
        let decides = |hold: &&Hold| Some(hold.check.rule()) == self.places.with;
        let place = holds.iter().find(decides).map(|hold| {
            let mut place = *hold;
            (place.check, place.counts) = (hold.check.with_cost(0), false);
            place
        });
        let mut settle = Settlements::new();
        for hold in holds {
            if let Some(settled) = settle_one(self, hold, how, now) {
                settle.extend(place.map(|place| (place, settled.1)));
                settle.push(settled);
            }
        }
        FollowUp {
            settle,
            queries: self.retired_leases(now),
        }
    }

    /// Forgets what this process knows of states that are about to be forgotten. Checks with a cost of 0 are left out.
    ///
    /// The query has the leases that go back to the store before. It is sent as it is, and its reply has no verdicts. Denials that are
    /// decided meanwhile stay in the deny cache until it is [finished](Query::finish). With it: whether this process had counted units that
    /// the store does not know of.
    pub fn begin_reset(self: &Arc<Self>, checks: &[Check], now: Tick) -> (Query, bool) {
        let checks: Checks = checks.iter().filter(|it| it.cost() > 0).copied().collect();
        let (mut leases, mut was_counted) = (SmallVec::new(), false);
        for check in &checks {
            self.forget(check);
            for (_, plan, _) in self.limits().filter(|(rule, ..)| *rule == check.rule()) {
                let check = check.with_plan(plan).with_cost(0);
                let returned = self.lease(&check, |lease| {
                    (lease.left, lease.fresh_at) = (0, 0);
                    // A query in flight stays so.
                    let returned = lease.holder.take_out(now);
                    lease.holder.forget(now);
                    returned
                });
                leases.extend(returned.flatten().map(|it| LeaseItem::returned(check, it)));
                let order = self.engine.order(now);
                let unsent = self.usage(&check, |usage| {
                    let unsent = usage.unsent();
                    usage.forget(order);
                    unsent
                });
                was_counted |= unsent.unwrap_or(0) > 0;
            }
        }
        let mut query = Query::new(self, Kind::Reset, checks, 0);
        let order = self.engine.order(now);
        (query.leases, query.sent) = (leases, Some(SentAt { at: now, order }));
        (query, was_counted)
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

    /// What is due without a request: reports, and about once a second leases that are not needed. To be called each
    /// [`maintenance_interval`](Self::maintenance_interval), and again soon while it returns [`MAX_REPORTS`](Self::MAX_REPORTS), or
    /// [is not through](Self::is_looking_through_leases) with the leases.
    #[must_use = "units are missing until the queries are sent"]
    pub fn poll_maintenance(self: &Arc<Self>, now: Tick) -> Vec<Query> {
        let mut queries = self.reports(now, |_| true);
        queries.extend(self.idle_leases(now));
        queries
    }

    /// Whether the last [poll](Self::poll_maintenance) has left leases to look at. It looks at some thousands, so that requests do not
    /// wait for all of them.
    pub fn is_looking_through_leases(&self) -> bool {
        let mut limits = self.limits();
        limits.any(|(.., limit)| limit.is_leased() && limit.has_visits())
    }

    /// Everything that the store does not know or has granted: reports, due or not, and all leases. A retired rule set leaves
    /// out what another one that is in use has as well. To be called until it is empty and
    /// [everything is reported](Self::is_reported).
    #[must_use = "units are missing until the queries are sent"]
    pub fn flush(self: &Arc<Self>, now: Tick) -> Vec<Query> {
        let is_retired = self.is_retired();
        let is_ours = |limit: &Limit| !is_retired || !limit.is_in_use();
        let mut queries = self.reports(Tick::MAX, is_ours);
        queries.extend(self.all_leases(now, is_ours));
        queries
    }

    /// Whether nothing is left to [flush](Self::flush) but what is in flight.
    pub fn is_reported(&self) -> bool {
        let is_retired = self.is_retired();
        let mut limits = self.limits();
        limits.all(|(.., limit)| is_retired && limit.is_in_use() || !limit.has_unreported())
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

// What is sent without a request: reports, and leases that go back.

/// The most leases that one poll looks at: it takes about a millisecond, and requests wait meanwhile. A few in tests, which would need
/// thousands otherwise.
pub(crate) const MAX_VISITS: usize = if cfg!(test) { 4 } else { 4096 };

/// The most reports or leases of one query.
const TOGETHER: usize = 32;

/// Keys of one limit that are sent: with leases that go back, or else to be reported.
type Due = Vec<(Fingerprint, Option<ReturnedLease>)>;

impl LocalRules {
    /// The most reports of one [poll](Self::poll_maintenance), so that requests do not wait for all that are due.
    pub const MAX_REPORTS: usize = 128;

    /// Reports that are due by a time, of some limits.
    fn reports(self: &Arc<Self>, by: Tick, which: impl Fn(&Limit) -> bool) -> Vec<Query> {
        let mut left = Self::MAX_REPORTS;
        self.queries(which, |limit, due| {
            if let Some(terms) = limit.report_terms() {
                self.engine.visit(limit, None, |key, entry| {
                    let counted = entry.usage(limit)?;
                    if due.len() == left {
                        return Some(Visit::Stop);
                    }
                    due.extend(counted.is_due(by, terms).then_some((key, None)));
                    Some(Visit::keep_if(counted.unreported() > 0))
                });
            }
            left -= due.len();
        })
    }

    /// Leases that are not needed, of some of those that are left to look at in this second.
    fn idle_leases(self: &Arc<Self>, now: Tick) -> Vec<Query> {
        let mut most = MAX_VISITS;
        self.queries(Limit::is_leased, |limit, due| {
            // Units of a window weigh for longer than this process spends them. They go back with the next query, or a flush.
            let window = limit.lease_terms().and_then(|terms| terms.window);
            let weighs = window.map_or(0, |window| 2 * window);
            lock(&limit.listed).begin_round(now);
            most -= self.engine.visit(limit, Some(most), |key, entry| {
                let holder = &mut entry.lease(limit)?.holder;
                let returned = holder.sweep(now);
                due.extend(returned.map(|_| (key, returned)));
                let until = holder.until().map(|until| until.saturating_add(weighs));
                Some(Visit::keep_if(until.is_some_and(|until| now < until)))
            });
        })
    }

    /// All leases under some limits, taken out to be returned.
    fn all_leases(self: &Arc<Self>, now: Tick, which: impl Fn(&Limit) -> bool) -> Vec<Query> {
        let which = |limit: &Limit| limit.is_leased() && which(limit);
        self.queries(which, |limit, due| {
            self.engine.visit(limit, None, |key, entry| {
                let returned = entry.lease(limit)?.holder.take_out(now);
                due.extend(returned.map(|_| (key, returned)));
                Some(Visit::Drop)
            });
        })
    }

    /// Leases that came to a retired rule set.
    pub(crate) fn retired_leases(self: &Arc<Self>, now: Tick) -> Vec<Query> {
        match self.is_retired() {
            true => self.all_leases(now, |limit| !limit.is_in_use()),
            false => Vec::new(),
        }
    }

    /// Queries for what is due of some limits, by the places of their states. Keys of several rules do not share a query, because the
    /// store may refuse one rule.
    fn queries(
        self: &Arc<Self>,
        which: impl Fn(&Limit) -> bool,
        mut find: impl FnMut(&Limit, &mut Due),
    ) -> Vec<Query> {
        let mut queries = Vec::new();
        for (rule, plan, limit) in self.limits().filter(|(.., it)| which(it)) {
            let mut due = Due::new();
            find(limit, &mut due);
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
        queries
    }
}

impl Engine {
    /// Visits up to `most` of the listed keys of a limit that are left in this round, and gives how many; `None`: all keys. Those whose
    /// entry has nothing of this limit leave the list.
    fn visit(
        &self,
        limit: &Limit,
        most: Option<usize>,
        mut look: impl FnMut(Fingerprint, &mut Entry) -> Option<Visit>,
    ) -> usize {
        let _visiting = lock(&limit.visiting);
        let most = {
            let listed = lock(&limit.listed);
            most.map_or(listed.keys.len(), |most| most.min(listed.unvisited))
        };
        let (mut kept, mut visited) = (Vec::new(), 0);
        while visited < most {
            let Some(key) = lock(&limit.listed).pop() else {
                break;
            };
            let visit = self.keys.with(limit.at(key), |entry| {
                let visit = look(key, entry)?;
                entry.is_listed = visit != Visit::Drop;
                Some(visit)
            });
            match visit.flatten() {
                Some(Visit::Keep) => kept.push(key),
                Some(Visit::Stop) => {
                    lock(&limit.listed).keys.push_front(key);
                    break;
                }
                Some(Visit::Drop) | None => {}
            }
            visited += 1;
        }
        let mut listed = lock(&limit.listed);
        listed.keys.extend(kept);
        (limit.has_listed).store(!listed.keys.is_empty(), Ordering::Relaxed);
        visited
    }

    /// Counts all units under a limit that are in no report as lost, and returns how many.
    pub(crate) fn give_up(&self, limit: &Limit) -> u64 {
        let mut lost = 0;
        self.visit(limit, None, |_, entry| {
            let counted = entry.usage(limit)?;
            let units = counted.report(0);
            lost += counted.lost(units);
            Some(Visit::Drop)
        });
        lost
    }
}
