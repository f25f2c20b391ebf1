//! Lots of units that this process holds.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use tollgate_core::{
    Tick, Verdict,
    algorithm::{Assessment, Retry},
};
use tollgate_prefilter::{Ask, Closed, Holder, LeaseTerms, Lot};

use crate::prefilter::keyed::{Keyed, Slot};

/// The keys that this process may hold lots of. Of more it asks for every unit.
const KEYS: usize = 1 << 18;

/// A lot goes back when it would run out within so many µs, if nobody asks for its key until then.
const BEFORE: Tick = 1_500_000;

/// Lots of units, by key.
#[derive(Debug)]
pub(crate) struct Leases {
    keys: Keyed<Lease>,
    /// When lots that the store tracks run out: about in order, for those of windows are in between.
    expiring: Mutex<VecDeque<(Tick, Slot)>>,
}

/// What is held of a key, and what the store said of it last.
#[derive(Debug, Default)]
struct Lease {
    holder: Holder,
    left: u64,
    fresh_at: Tick,
}

impl Leases {
    pub(crate) fn new() -> Self {
        Self {
            keys: Keyed::new(KEYS),
            expiring: Mutex::new(VecDeque::new()),
        }
    }

    /// Takes units from the lot of a key, if they are there.
    #[inline]
    pub(crate) fn spend(&self, slot: Slot, now: Tick, cost: u64) -> Option<Assessment> {
        self.keys.with(slot, |lease| {
            lease.holder.spend(now, cost).then(|| Assessment {
                fits: true,
                remaining: lease.left.saturating_add(lease.holder.left(now)),
                reset_after: lease.fresh_at.saturating_sub(now),
                retry: Retry::Now,
            })
        })?
    }

    /// What to say to the store with a request that the lot of a key does not hold.
    pub(crate) fn ask(&self, slot: Slot, now: Tick, cost: u64, terms: &LeaseTerms) -> Ask {
        let is_idle = |lease: &Lease| lease.holder.is_idle(now);
        let ask = |lease: &mut Lease| lease.holder.ask(now, cost, terms);
        self.keys
            .with_new(slot, now, is_idle, ask)
            .unwrap_or_default()
    }

    /// The store has answered what was asked at `sent`, at `at` by its own clock.
    pub(crate) fn answered(
        &self,
        slot: Slot,
        (sent, at): (Tick, Tick),
        lot: Option<Lot>,
        terms: &LeaseTerms,
    ) {
        let until = self.keys.with(slot, |lease| {
            lease.holder.answered(sent, at, lot, terms);
            // What is left was told before the lot was lent.
            let lent = lot.map_or(0, |lot| lot.units());
            lease.left = lease.left.saturating_sub(lent);
            lease.holder.until()
        });
        if let (Some(Some(until)), Some(Lot::Parking { .. })) = (until, lot) {
            self.expiring().push_back((until, slot));
        }
    }

    /// What the store said of a key: so much is left beside the lots, and until when it is used.
    pub(crate) fn told(&self, slot: Slot, sent: Tick, verdict: &Verdict) {
        let lasts = u64::try_from(verdict.reset_after().as_micros()).unwrap_or(u64::MAX);
        self.keys.with(slot, |lease| {
            (lease.left, lease.fresh_at) = (verdict.remaining(), sent.saturating_add(lasts));
        });
    }

    /// No answer came.
    pub(crate) fn lost(&self, slot: Slot) {
        self.keys.with(slot, |lease| lease.holder.lost());
    }

    /// Units that were spent of a lot at `spent` come back to it.
    pub(crate) fn give_back(&self, slot: Slot, now: Tick, spent: Tick, units: u64) {
        self.keys
            .with(slot, |lease| lease.holder.give_back(now, spent, units));
    }

    /// Forgets the lot of a key: what it has used was forgotten.
    pub(crate) fn forget(&self, slot: Slot) {
        self.keys.with(slot, |lease| *lease = Lease::default());
    }

    /// Lots that are about to run out, taken out to be handed back.
    pub(crate) fn expiring_soon(&self, now: Tick) -> Vec<(Slot, Closed)> {
        let mut soon = Vec::new();
        loop {
            let due = {
                let mut expiring = self.expiring();
                match expiring.front() {
                    Some((until, _)) if *until <= now.saturating_add(BEFORE) => {
                        expiring.pop_front()
                    }
                    _ => None,
                }
            };
            let Some((until, slot)) = due else {
                return soon;
            };
            let closed = self.keys.with(slot, |lease| {
                // Another lot has come since, or it went back already.
                let same = lease.holder.until() == Some(until);
                same.then(|| lease.holder.hand_back(now)).flatten()
            });
            soon.extend(closed.flatten().map(|closed| (slot, closed)));
        }
    }

    /// The units that this process holds of a key.
    pub(crate) fn left(&self, slot: Slot, now: Tick) -> u64 {
        let left = self.keys.with(slot, |lease| lease.holder.left(now));
        left.unwrap_or(0)
    }

    /// The units that this process holds.
    pub(crate) fn units(&self, now: Tick) -> u64 {
        self.keys.sum(|lease| lease.holder.left(now))
    }

    fn expiring(&self) -> std::sync::MutexGuard<'_, VecDeque<(Tick, Slot)>> {
        self.expiring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
