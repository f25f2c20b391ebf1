//! The leases that this process holds, by key.

use tollgate_core::{
    Tick, Verdict,
    algorithm::{Assessment, Retry},
    store::Fingerprint,
};

use crate::{
    engine::{
        engine_usage::EngineUsage,
        limit::{Limit, Visit},
    },
    lease::{
        grant::{Grant, LeaseQuery, ReturnedLease},
        lease_holder::LeaseHolder,
        terms::LeaseTerms,
    },
    table::key_table::{KeyTable, Miss},
};

/// The leases that this process holds, by key.
#[derive(Debug)]
pub(crate) struct Leases {
    keys: KeyTable<Lease>,
}

/// The lease of a key, and what is left in the store, by its last reply.
#[derive(Debug, Default)]
struct Lease {
    holder: LeaseHolder,
    left: u64,
    fresh_at: Tick,
    /// When a query for a lease was sent whose reply never came, until one that was sent later is answered; 0: there is none.
    /// A store that stands still may carry each of them out later, and each lease would be lost.
    unanswered: Tick,
    is_held: bool,
}

impl Leases {
    /// Leases of at most `keys` keys. The store decides each request of the others.
    pub(crate) fn new(keys: usize) -> Self {
        Self {
            keys: KeyTable::new(keys),
        }
    }

    /// Takes units from the lease of a key, if they are there. `weighs` says for how long the units of a window count.
    #[inline]
    pub(crate) fn spend(
        &self,
        limit: &Limit,
        key: Fingerprint,
        now: Tick,
        cost: u64,
        weighs: impl FnOnce(u64) -> Tick,
    ) -> Result<Assessment, Miss> {
        self.keys.look(limit.slot(key), |lease| {
            lease.holder.spend(now, cost).then(|| {
                Assessment::new(
                    true,
                    lease.left.saturating_add(lease.holder.left(now)),
                    match lease.holder.window() {
                        Some(window) => weighs(window),
                        None => lease.fresh_at.saturating_sub(now),
                    },
                    Retry::Now,
                )
            })
        })
    }

    /// What a request that the lease of a key does not cover says to the store about leases. Not for new keys.
    pub(crate) fn query(
        &self,
        limit: &Limit,
        key: Fingerprint,
        now: Tick,
        cost: u64,
        terms: &LeaseTerms,
    ) -> LeaseQuery {
        let is_idle = |lease: &Lease| lease.holder.is_idle(now);
        let query = |lease: &mut Lease| match lease.unanswered {
            0 => lease.holder.query(now, cost, terms),
            _ => LeaseQuery::default(),
        };
        self.keys
            .with_new(limit.slot(key), now, is_idle, query)
            .unwrap_or_default()
    }

    /// The store has replied at `at`, by its own clock, to a query that was sent at `sent`. Returns what is left of a lease of
    /// an earlier window.
    pub(crate) fn on_reply(
        &self,
        limit: &Limit,
        key: Fingerprint,
        times: (Tick, Tick),
        at: Tick,
        grant: Option<Grant>,
    ) -> Option<ReturnedLease> {
        let terms = limit.lease_terms()?;
        self.fill(limit, key, |lease| {
            // What the store said is left was before the grant.
            let granted = grant.map_or(0, |grant| grant.units());
            lease.left = lease.left.saturating_sub(granted);
            lease.holder.on_reply(times, at, grant, terms)
        })?
    }

    /// Does something that may leave units in the lease of a key. `None`: nothing is kept of the key.
    fn fill<R>(
        &self,
        limit: &Limit,
        key: Fingerprint,
        act: impl FnOnce(&mut Lease) -> R,
    ) -> Option<R> {
        let (done, is_first) = self.keys.with(limit.slot(key), |lease| {
            let done = act(lease);
            let is_held = lease.holder.until().is_some();
            let is_first = is_held && !lease.is_held;
            lease.is_held |= is_held;
            (done, is_first)
        })?;
        if is_first {
            limit.add_leased(key);
        }
        Some(done)
    }

    /// The store has replied: how much is left without the leases, and for how long something is used.
    pub(crate) fn learn(&self, limit: &Limit, key: Fingerprint, sent: Tick, verdict: &Verdict) {
        let fresh_at = sent.saturating_add(verdict.reset_after_ticks());
        self.keys.with(limit.slot(key), |lease| {
            (lease.left, lease.fresh_at) = (verdict.remaining(), fresh_at);
            if sent > lease.unanswered {
                lease.unanswered = 0;
            }
        });
    }

    /// A query about the lease of a key has ended, and nothing was granted.
    pub(crate) fn lost(&self, limit: &Limit, key: Fingerprint) {
        self.keys.with(limit.slot(key), |lease| lease.holder.lost());
    }

    /// No reply came to a query for a lease of a key that was sent at `sent`.
    pub(crate) fn on_unanswered(&self, limit: &Limit, key: Fingerprint, sent: Tick) {
        self.keys.with(limit.slot(key), |lease| {
            lease.holder.lost();
            lease.unanswered = lease.unanswered.max(sent);
        });
    }

    /// A query about the lease of a key certainly did not reach the store. What it returned is here again.
    pub(crate) fn on_not_sent(
        &self,
        limit: &Limit,
        key: Fingerprint,
        returned: Option<ReturnedLease>,
    ) {
        self.fill(limit, key, |lease| lease.holder.on_not_sent(returned));
    }

    /// Units of a bucket that were spent at `spent` come back to the lease.
    pub(crate) fn give_back(
        &self,
        limit: &Limit,
        key: Fingerprint,
        (now, spent): (Tick, Tick),
        units: u64,
    ) {
        self.keys.with(limit.slot(key), |lease| {
            lease.holder.give_back(now, spent, units);
        });
    }

    /// Units come back that are counted in a window. Returns those for which there is no lease.
    pub(crate) fn give_back_to(
        &self,
        limit: &Limit,
        key: Fingerprint,
        window: u64,
        times: (Tick, Tick),
        units: u64,
    ) -> u64 {
        let give_back = |lease: &mut Lease| lease.holder.give_back_to(window, times, units);
        self.fill(limit, key, give_back).unwrap_or(units)
    }

    /// Takes out the lease of a key, to be returned: its state is about to be forgotten.
    pub(crate) fn forget(
        &self,
        limit: &Limit,
        key: Fingerprint,
        now: Tick,
    ) -> Option<ReturnedLease> {
        self.keys.with(limit.slot(key), |lease| {
            (lease.left, lease.fresh_at) = (0, 0);
            // A query in flight stays so.
            let returned = lease.holder.take_out(now);
            lease.holder.forget(now);
            returned
        })?
    }

    /// Looks at up to `most` of the leases that are left to look at, and takes out those that are not needed, to be returned. Also
    /// gives how many were looked at.
    pub(crate) fn sweep(
        &self,
        limit: &Limit,
        now: Tick,
        most: usize,
    ) -> (Vec<(Fingerprint, ReturnedLease)>, usize) {
        let mut unneeded = Vec::new();
        // Units of a window weigh for longer than this process spends them. They go back with the next query, or a flush.
        let window = limit.lease_terms().and_then(LeaseTerms::window);
        let weighs = window.map_or(0, |window| 2 * window);
        let visited = limit.visit_leased(most, |key| {
            let is_held = self.keys.with(limit.slot(key), |lease| {
                let returned = lease.holder.sweep(now).and_then(|query| query.returned);
                unneeded.extend(returned.map(|returned| (key, returned)));
                let until = lease.holder.until();
                lease.is_held = until.is_some_and(|until| now < until.saturating_add(weighs));
                lease.is_held
            });
            match is_held {
                Some(true) => Visit::Keep,
                _ => Visit::Drop,
            }
        });
        (unneeded, visited)
    }

    /// All leases under a limit, taken out to be returned.
    pub(crate) fn take_out(&self, limit: &Limit, now: Tick) -> Vec<(Fingerprint, ReturnedLease)> {
        let mut held = Vec::new();
        limit.visit_all_leased(|key| {
            let take_out = |lease: &mut Lease| {
                lease.is_held = false;
                lease.holder.take_out(now)
            };
            let returned = self.keys.with(limit.slot(key), take_out).flatten();
            held.extend(returned.map(|returned| (key, returned)));
            Visit::Drop
        });
        held
    }

    /// In how many µs `cost` units of a scheduled lease of a key are due, if they will be.
    pub(crate) fn due_after(
        &self,
        limit: &Limit,
        key: Fingerprint,
        now: Tick,
        cost: u64,
    ) -> Option<Tick> {
        self.keys
            .with(limit.slot(key), |lease| lease.holder.due_after(now, cost))?
    }

    /// The units of a key that this process may spend now.
    pub(crate) fn left(&self, limit: &Limit, key: Fingerprint, now: Tick) -> u64 {
        let left = self
            .keys
            .with(limit.slot(key), |lease| lease.holder.left(now));
        left.unwrap_or(0)
    }

    /// Adds what is held.
    pub(crate) fn add_usage(&self, now: Tick, usage: &mut EngineUsage) {
        usage.leases = self.keys.usage(|lease| {
            let units = lease.holder.held(now);
            usage.units_on_lease += units;
            match units {
                0 => {}
                _ if lease.holder.has_scheduled(now) => usage.scheduled_keys += 1,
                _ => usage.leased_keys += 1,
            }
        });
    }
}
