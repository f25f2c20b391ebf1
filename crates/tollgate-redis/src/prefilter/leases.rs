//! Leases of units that this process holds.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::{
    Tick, Verdict,
    algorithm::{Assessment, Retry},
};
use tollgate_prefilter::{Grant, LeaseHolder, LeaseQuery, LeaseTerms, ReturnedLease};

use crate::prefilter::{
    key_table::{KeyTable, Miss},
    table_key::TableKey,
};

/// The keys that this process may hold leases of. Of more it asks for every unit.
const KEYS: usize = 1 << 18;

/// Leases of units, by key.
#[derive(Debug)]
pub(crate) struct Leases {
    keys: KeyTable<Lease>,
    /// The keys of which there is a lease.
    held: Mutex<Vec<TableKey>>,
}

/// What is held of a key, and what the store said of it last.
#[derive(Debug, Default)]
struct Lease {
    holder: LeaseHolder,
    left: u64,
    fresh_at: Tick,
    is_held: bool,
}

impl Leases {
    pub(crate) fn new() -> Self {
        Self {
            keys: KeyTable::new(KEYS),
            held: Mutex::new(Vec::new()),
        }
    }

    /// Takes units from the lease of a key, if they are there. `weighs` says for how long those of a window do.
    #[inline]
    pub(crate) fn spend(
        &self,
        slot: TableKey,
        now: Tick,
        cost: u64,
        weighs: impl FnOnce(u64) -> Tick,
    ) -> Result<Assessment, Miss> {
        self.keys.look(slot, |lease| {
            lease.holder.spend(now, cost).then(|| Assessment {
                fits: true,
                remaining: lease.left.saturating_add(lease.holder.left(now)),
                reset_after: match lease.holder.window() {
                    Some(window) => weighs(window),
                    None => lease.fresh_at.saturating_sub(now),
                },
                retry: Retry::Now,
            })
        })
    }

    /// What to say to the store with a request that the lease of a key does not hold. To be asked for a key that is not new.
    pub(crate) fn query(
        &self,
        slot: TableKey,
        now: Tick,
        cost: u64,
        terms: &LeaseTerms,
    ) -> LeaseQuery {
        let is_idle = |lease: &Lease| lease.holder.is_idle(now);
        let query = |lease: &mut Lease| lease.holder.query(now, cost, terms);
        self.keys
            .with_new(slot, now, is_idle, query)
            .unwrap_or_default()
    }

    /// The store has answered what was asked at `sent`, at `at` by its own clock, and it was heard at `now`. Gives what is left of
    /// an earlier window.
    pub(crate) fn on_reply(
        &self,
        slot: TableKey,
        (sent, now): (Tick, Tick),
        at: Tick,
        grant: Option<Grant>,
        terms: &LeaseTerms,
    ) -> Option<ReturnedLease> {
        self.fill(slot, |lease| {
            // What is left was told before the lease was granted.
            let granted = grant.map_or(0, |grant| grant.units());
            lease.left = lease.left.saturating_sub(granted);
            lease.holder.on_reply((sent, now), at, grant, terms)
        })?
    }

    /// Does something that may leave units in the hands of a key. `None`: nothing is kept of it.
    fn fill<R>(&self, slot: TableKey, act: impl FnOnce(&mut Lease) -> R) -> Option<R> {
        let (done, is_first) = self.keys.with(slot, |lease| {
            let done = act(lease);
            let is_held = lease.holder.until().is_some();
            let is_first = is_held && !lease.is_held;
            lease.is_held |= is_held;
            (done, is_first)
        })?;
        if is_first {
            self.held().push(slot);
        }
        Some(done)
    }

    /// What the store said of a key: so much is left beside the leases, and until when it is used.
    pub(crate) fn told(&self, slot: TableKey, sent: Tick, verdict: &Verdict) {
        let lasts = u64::try_from(verdict.reset_after().as_micros()).unwrap_or(u64::MAX);
        self.keys.with(slot, |lease| {
            (lease.left, lease.fresh_at) = (verdict.remaining(), sent.saturating_add(lasts));
        });
    }

    /// No answer came.
    pub(crate) fn lost(&self, slot: TableKey) {
        self.keys.with(slot, |lease| lease.holder.lost());
    }

    /// What was asked of the store certainly did not reach it, and what was handed back with that is here again.
    pub(crate) fn on_not_sent(&self, slot: TableKey, returned: Option<ReturnedLease>) {
        self.fill(slot, |lease| lease.holder.on_not_sent(returned));
    }

    /// Units that were spent of a lease of a bucket at `spent` come back to it.
    pub(crate) fn give_back(&self, slot: TableKey, now: Tick, spent: Tick, units: u64) {
        self.keys
            .with(slot, |lease| lease.holder.give_back(now, spent, units));
    }

    /// Units come back that are counted in a window. Gives those that have no place here.
    pub(crate) fn give_back_to(
        &self,
        slot: TableKey,
        window: u64,
        times: (Tick, Tick),
        units: u64,
    ) -> u64 {
        let give_back = |lease: &mut Lease| lease.holder.give_back_to(window, times, units);
        self.fill(slot, give_back).unwrap_or(units)
    }

    /// Takes out the lease of a key, to be handed back: what the key has used is about to be forgotten.
    pub(crate) fn forget(&self, slot: TableKey, now: Tick) -> Option<ReturnedLease> {
        self.keys.with(slot, |lease| {
            (lease.left, lease.fresh_at) = (0, 0);
            // A query that is under way stays so.
            let returned = lease.holder.take_out(now);
            lease.holder.forget(now);
            returned
        })?
    }

    /// Leases that are not needed, taken out to be handed back. About once a second; [`lost`](Self::lost) has to follow.
    pub(crate) fn sweep(&self, now: Tick) -> Vec<(TableKey, ReturnedLease)> {
        let slots = std::mem::take(&mut *self.held());
        let mut unneeded = Vec::new();
        let mut kept = Vec::new();
        for slot in slots {
            self.keys.with(slot, |lease| {
                let returned = lease.holder.sweep(now).and_then(|query| query.returned);
                unneeded.extend(returned.map(|returned| (slot, returned)));
                lease.is_held = lease.holder.until().is_some_and(|until| now < until);
                if lease.is_held {
                    kept.push(slot);
                }
            });
        }
        self.held().extend(kept);
        unneeded
    }

    /// All leases, taken out to be handed back.
    pub(crate) fn take_out(&self, now: Tick) -> Vec<(TableKey, ReturnedLease)> {
        let slots = std::mem::take(&mut *self.held());
        let returned = |slot| {
            let take_out = |lease: &mut Lease| {
                lease.is_held = false;
                lease.holder.take_out(now)
            };
            let returned = self.keys.with(slot, take_out)?;
            Some((slot, returned?))
        };
        slots.into_iter().filter_map(returned).collect()
    }

    /// In how many µs so many units of a scheduled lease of a key are due, if they will be.
    pub(crate) fn due_after(&self, slot: TableKey, now: Tick, cost: u64) -> Option<Tick> {
        self.keys
            .with(slot, |lease| lease.holder.due_after(now, cost))?
    }

    /// The units of a key that this process may spend now.
    pub(crate) fn left(&self, slot: TableKey, now: Tick) -> u64 {
        let left = self.keys.with(slot, |lease| lease.holder.left(now));
        left.unwrap_or(0)
    }

    /// The units that this process holds.
    pub(crate) fn units(&self, now: Tick) -> u64 {
        self.keys.sum(|lease| lease.holder.held(now))
    }

    fn held(&self) -> MutexGuard<'_, Vec<TableKey>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
