//! A table: the states of one rule name under one algorithm.

use crate::{
    algorithm::Algorithm,
    key::Fingerprint,
    memory::shard::Shard,
    store::{rule_store::Usage, seq_cells::SeqLine},
    sync::{BriefMutex, lock_briefly},
    time::Tick,
};
use std::{
    any::Any,
    // Not locks: nothing is decided by them, so the explored schedules need not see them.
    sync::atomic::{AtomicU64, Ordering},
};

/// The states of one rule name. Shared by all rule sets that use the name.
pub(super) struct Table<A: Algorithm> {
    /// Shards are locked in the order of (id, shard).
    pub(super) id: u64,
    shards: Box<[Place<A>]>,
    /// Units of requests that waited and gave up, and that others were behind.
    lapsed_units: AtomicU64,
}

/// A table of any algorithm.
pub(super) trait AnyTable: Any + Send + Sync {
    /// What there is of a table that nothing is bound to. Expired states go. `None`: requests that run hold slots of it.
    fn unused(&self, now: Tick) -> Option<Unused>;
}

/// A table that nothing is bound to.
#[derive(Clone, Copy)]
pub(super) struct Unused {
    /// From when on all of its states equal fresh ones.
    pub(super) fresh_at: Tick,
    pub(super) bytes: usize,
}

/// Where keys are: a shard, and what is known of denials. On lines of its own, so that neighbours do not slow each other down.
#[repr(align(128))]
pub(super) struct Place<A: Algorithm> {
    pub(super) shard: BriefMutex<Shard<A>>,
    /// Bounds, by the key and the quota, to be read without the lock. A cell is written under it.
    denials: [SeqLine<2>; DENIAL_LINES],
}

/// Lines of denials of a shard.
const DENIAL_LINES: usize = 4;

impl<A: Algorithm> Place<A> {
    /// Where denials of a key are remembered.
    pub(super) fn denials(&self, key: Fingerprint) -> &SeqLine<2> {
        &self.denials[(key.bits() as u64 >> 24) as usize % DENIAL_LINES]
    }
}

impl<A: Algorithm> Table<A> {
    pub(super) fn new(bytes: usize, shards: usize) -> Self {
        static ID: AtomicU64 = AtomicU64::new(1);
        Self {
            id: ID.fetch_add(1, Ordering::Relaxed),
            shards: (0..shards)
                .map(|_| Place {
                    shard: BriefMutex::new(Shard::new(bytes / shards)),
                    denials: std::array::from_fn(|_| SeqLine::empty()),
                })
                .collect(),
            lapsed_units: AtomicU64::new(0),
        }
    }

    pub(super) fn shard_of(&self, key: Fingerprint) -> usize {
        (key.bits() as u64 >> 50) as usize & (self.shards.len() - 1)
    }

    pub(super) fn shard(&self, index: usize) -> &Place<A> {
        &self.shards[index]
    }

    /// Where a key is.
    pub(super) fn place(&self, key: Fingerprint) -> &Place<A> {
        self.shard(self.shard_of(key))
    }

    pub(super) fn lapse(&self, units: u64) {
        self.lapsed_units.fetch_add(units, Ordering::Relaxed);
    }

    pub(super) fn lapsed_units(&self) -> u64 {
        self.lapsed_units.load(Ordering::Relaxed)
    }

    /// What is kept, and a step of sweeping: bounded work, whatever the size of the table. Without a time, the counters alone.
    pub(super) fn usage(&self, now: Option<Tick>) -> Usage {
        let mut usage = Usage::default();
        // In fractions of a key, because most shards are estimated from a sample.
        let mut parts = 0;
        for place in &self.shards {
            let mut shard = lock_briefly(&place.shard);
            if let Some(now) = now {
                shard.sweep(SWEEP, now);
                shard.sweep_sides(now);
                let (live, seen) = shard.sample(SAMPLE, now);
                // Both factors are far below 2^26. Of few entries a sample may meet none.
                let entries = shard.len() as u64 * PARTS;
                parts += (entries * live).checked_div(seen).unwrap_or(entries);
                usage.bytes += shard.all_bytes() as u64;
            }
            usage.evicted_live += shard.evicted_live;
            if let Some(sides) = &shard.sides {
                usage.evicted_live += sides.ids.evicted;
                usage.evicted_blocks += sides.blocks.evicted;
            }
            usage.new_keys += shard.created;
        }
        usage.keys = parts / PARTS;
        usage
    }
}

/// Slots of a shard that are swept for expired states by each call of `usage`.
const SWEEP: usize = 128;
/// Slots of a shard that are sampled to estimate its live entries. A shard of at most this size is counted.
const SAMPLE: usize = 32;
/// Fractions of a key, for sums of estimates.
const PARTS: u64 = 1 << 10;

impl<A: Algorithm> AnyTable for Table<A> {
    fn unused(&self, now: Tick) -> Option<Unused> {
        let (mut fresh_at, mut bytes) = (0, size_of_val(&*self.shards));
        for place in &self.shards {
            let mut shard = lock_briefly(&place.shard);
            shard.sweep(usize::MAX, now);
            fresh_at = shard.fresh_after().max(fresh_at);
            bytes += shard.all_bytes();
        }
        let is_in_use = A::HOLDS_SLOTS && fresh_at == Tick::MAX;
        (!is_in_use).then_some(Unused { fresh_at, bytes })
    }
}
