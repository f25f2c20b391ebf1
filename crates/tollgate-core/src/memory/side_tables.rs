//! What a shard keeps of keys beside their states: blocks with what counts towards them, and ids of requests. Bounded, and a rule
//! without them pays nothing.

use std::collections::{BTreeSet, HashMap};

use crate::{
    block::{ActiveBlock, Block, BlockState},
    idempotency::SeenIds,
    key::Fingerprint,
    time::Tick,
};

/// The memory of an entry in the order of eviction, at most.
const BYTES_IN_ORDER: usize = 64;
/// How many that come first in the order are looked at for forgotten ones, each time that one changes.
const SWEEP: usize = 2;

#[derive(Default)]
pub(super) struct SideTables {
    pub(super) blocks: SideTable<BlockState>,
    pub(super) ids: SideTable<SeenIds>,
}

impl SideTables {
    pub(super) fn bytes(&self) -> usize {
        self.blocks.bytes() + self.ids.bytes()
    }

    /// From when on all of it is forgotten.
    pub(super) fn forgotten_at(&self) -> Tick {
        self.blocks.forgotten_at().max(self.ids.forgotten_at())
    }

    /// Removes some of the forgotten ones, and gives memory back after a flood.
    pub(super) fn sweep(&mut self, now: Tick) {
        self.blocks.sweep(now);
        self.ids.sweep(now);
    }

    /// Forgets a key. True if anything was kept.
    pub(super) fn forget(&mut self, key: Fingerprint, now: Tick) -> bool {
        let block = self.blocks.take(key);
        let ids = self.ids.take(key);
        block.is_some_and(|state| state.forgotten_at() > now)
            | ids.is_some_and(|seen| seen.forgotten_at() > now)
    }
}

/// When a state is evicted, the first first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Order {
    /// Before all that has an end: nothing is lost with it. Of this age.
    Since(Tick),
    /// It ends then. Before that, its eviction is too early.
    Until(Tick),
}

/// What is kept of a key.
pub(super) trait SideState: Default {
    fn order(&self) -> Order;

    /// From when on it equals a fresh one.
    fn forgotten_at(&self) -> Tick;

    fn heap_bytes(&self) -> usize;
}

/// First keys that were never blocked, whose last denial is the longest ago; then those whose block has ended, and then those that are
/// blocked, both by the end of their block.
impl SideState for BlockState {
    fn order(&self) -> Order {
        match self.until {
            0 => Order::Since(self.counted.last().copied().unwrap_or(0)),
            until => Order::Until(until),
        }
    }

    fn forgotten_at(&self) -> Tick {
        self.forgotten_at
    }

    fn heap_bytes(&self) -> usize {
        self.counted.capacity() * size_of::<Tick>()
    }
}

/// A client whose ids had to go pays for its next repeats.
impl SideState for SeenIds {
    fn order(&self) -> Order {
        Order::Until(self.ends_at)
    }

    fn forgotten_at(&self) -> Tick {
        self.ends_at
    }

    fn heap_bytes(&self) -> usize {
        self.heap_bytes()
    }
}

#[derive(Default)]
pub(super) struct SideTable<S: SideState> {
    by_key: HashMap<Fingerprint, S>,
    /// What is evicted first.
    order: BTreeSet<(Order, Fingerprint)>,
    heap: usize,
    /// How many were evicted too early.
    pub(super) evicted: u64,
}

impl SideTable<BlockState> {
    /// The block of a key, if it is blocked.
    pub(super) fn block_of(
        &self,
        key: Fingerprint,
        block: &Block,
        now: Tick,
    ) -> Option<ActiveBlock> {
        block.block_of(self.get(key)?, now)
    }

    /// Lets the block of a key end as soon as it can. Whether it ends sooner than before.
    pub(super) fn repair(&mut self, key: Fingerprint, block: &Block, now: Tick) -> bool {
        let Some(state) = self.by_key.get_mut(&key) else {
            return false;
        };
        let before = state.order();
        block.repair(state, now);
        let after = state.order();
        if before != after {
            self.order.remove(&(before, key));
            self.order.insert((after, key));
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
        if self.block_of(key, block, now).is_some() {
            self.repair(key, block, now);
            return None;
        }
        let mut state = self.take(key).unwrap_or_default();
        let active = block.count(&mut state, now, 1);
        self.insert(key, state, bound, now);
        active
    }
}

impl SideTable<SeenIds> {
    /// Changes the ids of a key, within this bound in bytes.
    pub(super) fn change<R>(
        &mut self,
        key: Fingerprint,
        now: Tick,
        bound: usize,
        change: impl FnOnce(&mut SeenIds) -> R,
    ) -> R {
        self.sweep(now);
        let mut seen = self.take(key).unwrap_or_default();
        let changed = change(&mut seen);
        if !seen.is_empty() {
            self.insert(key, seen, bound, now);
        }
        changed
    }
}

impl<S: SideState> SideTable<S> {
    pub(super) fn bytes(&self) -> usize {
        // In a table that is half full.
        let each = 2 * size_of::<(Fingerprint, S)>() + BYTES_IN_ORDER;
        self.by_key.len() * each + self.heap
    }

    fn forgotten_at(&self) -> Tick {
        let forgotten_at = self.by_key.values().map(S::forgotten_at);
        forgotten_at.max().unwrap_or(0)
    }

    pub(super) fn get(&self, key: Fingerprint) -> Option<&S> {
        self.by_key.get(&key)
    }

    /// Puts in what is kept of a key that is not there, and evicts others that come before it where the bound wants it.
    fn insert(&mut self, key: Fingerprint, state: S, bound: usize, now: Tick) {
        self.heap += state.heap_bytes();
        self.order.insert((state.order(), key));
        self.by_key.insert(key, state);
        while self.bytes() > bound && self.by_key.len() > 1 {
            self.evict(now);
        }
    }

    fn evict(&mut self, now: Tick) {
        if let Some((order, first)) = self.order.first().copied() {
            self.take(first);
            self.evicted += u64::from(matches!(order, Order::Until(end) if end > now));
        }
    }

    /// Forgets a key, and hands out what was kept of it.
    fn take(&mut self, key: Fingerprint) -> Option<S> {
        let state = self.by_key.remove(&key)?;
        self.order.remove(&(state.order(), key));
        self.heap -= state.heap_bytes();
        Some(state)
    }

    fn sweep(&mut self, now: Tick) {
        for _ in 0..SWEEP {
            let first = self.order.first().map(|it| it.1);
            let first =
                first.filter(|key| self.get(*key).is_some_and(|it| it.forgotten_at() <= now));
            if first.and_then(|key| self.take(key)).is_none() {
                return;
            }
        }
        let places = self.by_key.capacity();
        if places > 64 && self.by_key.len() < places / 5 {
            self.by_key.shrink_to(places / 2);
        }
    }
}
