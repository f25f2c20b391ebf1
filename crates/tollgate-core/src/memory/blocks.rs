//! The blocks of a shard, and what counts towards them: bounded, and beside the states, so that a rule without a block pays nothing.

use std::collections::BTreeSet;

use crate::{
    block::{ActiveBlock, Block, BlockState},
    key::Fingerprint,
    memory::slots::{Entry, Slots},
    time::Tick,
};

/// The memory of an entry in the order of eviction, at most.
const BYTES_IN_ORDER: usize = 64;
/// How many that come first in the order are looked at for forgotten ones, each time that a key is counted.
const SWEEP: usize = 2;
/// The fewest slots.
const LEAST: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Blocks {
    entries: Slots<BlockState>,
    order: BTreeSet<EvictionOrder>,
    heap: usize,
    /// How many blocks in force were evicted.
    pub(super) evicted: u64,
}

/// What is evicted first: keys that were never blocked, whose last denial is the longest ago; then those whose block has ended, and
/// then those that are blocked, both by the end of their block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct EvictionOrder {
    was_blocked: bool,
    at: Tick,
    /// As far as an entry has it.
    key: u128,
}

impl EvictionOrder {
    fn of(entry: &Entry<BlockState>) -> Self {
        let state = &entry.state;
        Self {
            was_blocked: state.until() > 0,
            at: match state.until() {
                0 => state.last_counted().unwrap_or(0),
                until => until,
            },
            key: entry.key().bits(),
        }
    }
}

impl Blocks {
    pub(super) fn bytes(&self) -> usize {
        self.entries.bytes() + self.heap + self.order.len() * BYTES_IN_ORDER
    }

    pub(super) fn len(&self) -> usize {
        self.entries.used()
    }

    /// From when on all of them are forgotten.
    pub(super) fn forgotten_at(&self) -> Tick {
        let entries = self.entries.iter();
        entries
            .map(|entry| entry.state.forgotten_at())
            .max()
            .unwrap_or(0)
    }

    /// The block of a key, if it is blocked.
    pub(super) fn get(&self, key: Fingerprint, block: &Block, now: Tick) -> Option<ActiveBlock> {
        let entry = self.entries.get(self.entries.find(key)?)?;
        block.block_of(&entry.state, now)
    }

    /// Lets the block of a key end as soon as it can. Whether it ends sooner than before.
    pub(super) fn repair(&mut self, key: Fingerprint, block: &Block, now: Tick) -> bool {
        let slot = self.entries.find(key);
        let Some(entry) = slot.and_then(|slot| self.entries.get_mut(slot)) else {
            return false;
        };
        let before = EvictionOrder::of(entry);
        block.repair(&mut entry.state, now);
        let after = EvictionOrder::of(entry);
        if before != after {
            self.order.remove(&before);
            self.order.insert(after);
        }
        before != after
    }

    /// Counts a denial or a settled request of a key that is not blocked, within this bound in bytes. The answer is the block that
    /// begins.
    pub(super) fn count(
        &mut self,
        key: Fingerprint,
        block: &Block,
        now: Tick,
        bound: usize,
    ) -> Option<ActiveBlock> {
        self.sweep(now);
        if self.get(key, block, now).is_some() {
            self.repair(key, block, now);
            return None;
        }
        let mut state = self.take(key).unwrap_or_default();
        let active = block.count(&mut state, now, 1);
        self.insert(Entry::new(key, 0, state), bound, now);
        active
    }

    /// Puts an entry in that is not there, and evicts others that come before it where the bound wants it.
    fn insert(&mut self, entry: Entry<BlockState>, bound: usize, now: Tick) {
        while self.entries.is_full() {
            let slots = self.entries.len();
            let more = (slots + slots.div_ceil(2)).max(LEAST);
            let bytes = (more - slots) * size_of::<Entry<BlockState>>();
            if slots == 0 || self.bytes() + bytes <= bound {
                self.entries.resize(more);
            } else {
                self.evict(now);
            }
        }
        self.heap += entry.state.heap_bytes();
        self.order.insert(EvictionOrder::of(&entry));
        self.entries.insert(entry);
        while self.bytes() > bound && self.entries.used() > 1 {
            self.evict(now);
        }
    }

    fn evict(&mut self, now: Tick) {
        if let Some(first) = self.order.first().copied() {
            self.evicted += u64::from(first.was_blocked && first.at > now);
            self.take(Fingerprint::from_bits(first.key));
        }
    }

    /// Forgets a key, and hands out what was kept of it.
    pub(super) fn take(&mut self, key: Fingerprint) -> Option<BlockState> {
        let entry = self.entries.remove(self.entries.find(key)?)?;
        self.order.remove(&EvictionOrder::of(&entry));
        self.heap -= entry.state.heap_bytes();
        Some(entry.state)
    }

    /// Removes some of the forgotten ones, and gives memory back after a flood.
    pub(super) fn sweep(&mut self, now: Tick) {
        for _ in 0..SWEEP {
            let first = self.order.first().map(|it| Fingerprint::from_bits(it.key));
            let slot = first.and_then(|key| self.entries.find(key));
            let entry = slot.and_then(|slot| self.entries.get(slot));
            match first.zip(entry) {
                Some((key, entry)) if entry.state.forgotten_at() <= now => self.take(key),
                _ => return,
            };
        }
        let slots = self.entries.len();
        if slots > 64 && self.entries.used() < slots / 5 {
            self.entries.resize(slots / 2);
        }
    }
}
