//! Lots of units that this process holds.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::{
    Tick, Verdict,
    algorithm::{Assessment, Retry},
};
use tollgate_prefilter::{Ask, Closed, Holder, LeaseTerms, Lot};

use crate::prefilter::{
    keyed::{Keyed, Missed},
    slot::Slot,
};

/// The keys that this process may hold lots of. Of more it asks for every unit.
const KEYS: usize = 1 << 18;

/// Lots of units, by key.
#[derive(Debug)]
pub(crate) struct Leases {
    keys: Keyed<Lease>,
    /// The keys of which there is a lot.
    held: Mutex<Vec<Slot>>,
}

/// What is held of a key, and what the store said of it last.
#[derive(Debug, Default)]
struct Lease {
    holder: Holder,
    left: u64,
    fresh_at: Tick,
    is_held: bool,
}

impl Leases {
    pub(crate) fn new() -> Self {
        Self {
            keys: Keyed::new(KEYS),
            held: Mutex::new(Vec::new()),
        }
    }

    /// Takes units from the lot of a key, if they are there. `weighs` says for how long those of a window do.
    #[inline]
    pub(crate) fn spend(
        &self,
        slot: Slot,
        now: Tick,
        cost: u64,
        weighs: impl FnOnce(u64) -> Tick,
    ) -> Result<Assessment, Missed> {
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

    /// What to say to the store with a request that the lot of a key does not hold. To be asked for a key that is not new.
    pub(crate) fn ask(&self, slot: Slot, now: Tick, cost: u64, terms: &LeaseTerms) -> Ask {
        let is_idle = |lease: &Lease| lease.holder.is_idle(now);
        let ask = |lease: &mut Lease| lease.holder.ask(now, cost, terms);
        self.keys
            .with_new(slot, now, is_idle, ask)
            .unwrap_or_default()
    }

    /// The store has answered what was asked at `sent`, at `at` by its own clock, and it was heard at `now`. Gives what is left of
    /// an earlier window.
    pub(crate) fn answered(
        &self,
        slot: Slot,
        (sent, now): (Tick, Tick),
        at: Tick,
        lot: Option<Lot>,
        terms: &LeaseTerms,
    ) -> Option<Closed> {
        self.fill(slot, |lease| {
            // What is left was told before the lot was lent.
            let lent = lot.map_or(0, |lot| lot.units());
            lease.left = lease.left.saturating_sub(lent);
            lease.holder.answered((sent, now), at, lot, terms)
        })?
    }

    /// Does something that may leave units in the hands of a key. `None`: nothing is kept of it.
    fn fill<R>(&self, slot: Slot, act: impl FnOnce(&mut Lease) -> R) -> Option<R> {
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

    /// What was asked of the store certainly did not reach it, and what was handed back with that is here again.
    pub(crate) fn unasked(&self, slot: Slot, closed: Option<Closed>) {
        self.fill(slot, |lease| lease.holder.unasked(closed));
    }

    /// Units that were spent of a lot of a bucket at `spent` come back to it.
    pub(crate) fn give_back(&self, slot: Slot, now: Tick, spent: Tick, units: u64) {
        self.keys
            .with(slot, |lease| lease.holder.give_back(now, spent, units));
    }

    /// Units come back that are counted in a window. Gives those that have no place here.
    pub(crate) fn give_back_to(
        &self,
        slot: Slot,
        window: u64,
        times: (Tick, Tick),
        units: u64,
    ) -> u64 {
        let give_back = |lease: &mut Lease| lease.holder.give_back_to(window, times, units);
        self.fill(slot, give_back).unwrap_or(units)
    }

    /// Takes out the lot of a key, to be handed back: what the key has used is about to be forgotten.
    pub(crate) fn forget(&self, slot: Slot, now: Tick) -> Option<Closed> {
        self.keys.with(slot, |lease| {
            (lease.left, lease.fresh_at) = (0, 0);
            // A question that is under way stays so.
            let closed = lease.holder.hand_back(now);
            lease.holder.forget(now);
            closed
        })?
    }

    /// Lots that are not needed, taken out to be handed back. About once a second; [`lost`](Self::lost) has to follow.
    pub(crate) fn sweep(&self, now: Tick) -> Vec<(Slot, Closed)> {
        let slots = std::mem::take(&mut *self.held());
        let mut unneeded = Vec::new();
        let mut kept = Vec::new();
        for slot in slots {
            self.keys.with(slot, |lease| {
                let closed = lease.holder.sweep(now).and_then(|ask| ask.closed);
                unneeded.extend(closed.map(|closed| (slot, closed)));
                lease.is_held = lease.holder.until().is_some_and(|until| now < until);
                if lease.is_held {
                    kept.push(slot);
                }
            });
        }
        self.held().extend(kept);
        unneeded
    }

    /// All lots, taken out to be handed back.
    pub(crate) fn hand_back(&self, now: Tick) -> Vec<(Slot, Closed)> {
        let slots = std::mem::take(&mut *self.held());
        let closed = |slot| {
            let hand_back = |lease: &mut Lease| {
                lease.is_held = false;
                lease.holder.hand_back(now)
            };
            let closed = self.keys.with(slot, hand_back)?;
            Some((slot, closed?))
        };
        slots.into_iter().filter_map(closed).collect()
    }

    /// In how many µs so many units of a segment of a key are due, if they will be.
    pub(crate) fn due_after(&self, slot: Slot, now: Tick, cost: u64) -> Option<Tick> {
        self.keys
            .with(slot, |lease| lease.holder.due_after(now, cost))?
    }

    /// The units of a key that this process may spend now.
    pub(crate) fn left(&self, slot: Slot, now: Tick) -> u64 {
        let left = self.keys.with(slot, |lease| lease.holder.left(now));
        left.unwrap_or(0)
    }

    /// The units that this process holds.
    pub(crate) fn units(&self, now: Tick) -> u64 {
        self.keys.sum(|lease| lease.holder.held(now))
    }

    fn held(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
