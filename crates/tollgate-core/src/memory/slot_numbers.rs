//! The numbers that slots get.

use std::ops::Range;

use crate::{
    sync::{AtomicU64, Ordering},
    time::Tick,
};

/// How many numbers a shard gets at once.
const BATCH: u64 = 32;

/// Numbers for slots, which the shards of all tables share.
pub(super) struct SlotNumbers {
    /// The last number that a shard has.
    last: AtomicU64,
}

impl SlotNumbers {
    /// From a time in µs, so that a process which starts anew goes on above the numbers that it has given before.
    pub(super) fn new(now: Tick) -> Self {
        Self {
            last: AtomicU64::new(now),
        }
    }

    /// Reserves some numbers for the slots of a shard, all higher than those that any shard has. The shard gives them out in order.
    /// Several at a time, so that requests of different keys seldom write this.
    pub(super) fn next(&self) -> Range<u64> {
        let last = self.last.fetch_add(BATCH, Ordering::Relaxed);
        last + 1..last + 1 + BATCH
    }
}
