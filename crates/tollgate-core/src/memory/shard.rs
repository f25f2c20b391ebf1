//! A shard: entries behind one lock, within a bound in bytes; and the numbers of the slots that it gives.

use crate::{
    algorithm::{Algorithm, Assessment},
    block::{ActiveBlock, Block},
    key::Fingerprint,
    memory::{
        cells::{Cells, Entry},
        plan::{Plan, Writers},
        side_tables::SideTables,
    },
    sync::{AtomicU64, Ordering},
    time::Tick,
};
use std::ops::Range;

/// How many cells are looked at for expired states when a key is new.
const SWEEP: usize = 4;
/// The least time in which all cells are looked at where states hold slots of requests, in µs. Such a state is expired when its
/// requests have ended, and to make it anew for the next one takes longer than to find it.
const IDLE: Tick = 1_000_000;
/// How many live entries are compared when one has to go.
const SAMPLE: usize = 8;
/// The fewest cells.
const LEAST: usize = 8;
/// How many numbers for slots a shard reserves at once, so that requests of different keys seldom write the last one.
const SLOT_NUMBERS: u64 = 32;

/// The entries of one shard.
pub(super) struct Shard<A: Algorithm> {
    entries: Cells<A::State>,
    writers: Writers<A>,
    /// Bytes that states hold on the heap.
    heap: usize,
    /// The most bytes that entries, heap and quotas may take.
    budget: usize,
    /// Where the next look for states to evict begins.
    cursor: usize,
    /// When all cells were last looked at for expired states.
    swept_at: Tick,
    /// The latest time by which an entry was forgotten, because its state equalled a fresh one then.
    pub(super) forgotten_by: Tick,
    pub(super) evicted_live: u64,
    /// Entries that were added.
    pub(super) created: u64,
    /// What the next slots are numbered by: reserved for this shard, and above all numbers that any shard had before.
    slot_numbers: Range<u64>,
    /// Where the rule blocks keys, or is idempotent. Their bytes are taken from `budget`.
    pub(super) sides: Option<Box<SideTables>>,
}

/// Live entries in the order of their eviction: those that deny last, the others by the units that they have used. Among equals, the one that expires first goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EvictionOrder {
    denies: bool,
    used: u64,
    reset_after: u64,
}

impl EvictionOrder {
    /// The order of a state by its quota's answer to a cost of 0, and the quota's limit.
    pub(super) fn new(answer: Assessment, limit: u64) -> Self {
        Self {
            denies: answer.remaining == 0,
            used: limit.saturating_sub(answer.remaining),
            reset_after: answer.reset_after,
        }
    }
}

impl<A: Algorithm> Shard<A> {
    pub(super) fn new(budget: usize) -> Self {
        Self {
            entries: Cells::default(),
            writers: Writers::default(),
            heap: 0,
            budget,
            cursor: 0,
            swept_at: 0,
            forgotten_by: 0,
            evicted_live: 0,
            created: 0,
            slot_numbers: 0..0,
            sides: None,
        }
    }

    /// A number for slots, above all that a key of this shard was given before. `last` is the last one that a shard has reserved.
    pub(super) fn next_slot_number(&mut self, last: &AtomicU64) -> u64 {
        if self.slot_numbers.is_empty() {
            let last = last.fetch_add(SLOT_NUMBERS, Ordering::Relaxed);
            self.slot_numbers = last + 1..last + 1 + SLOT_NUMBERS;
        }
        let number = self.slot_numbers.start;
        self.slot_numbers.start += 1;
        number
    }

    /// The block of a key, if it is blocked.
    pub(super) fn block_of(
        &self,
        key: Fingerprint,
        block: &Block,
        now: Tick,
    ) -> Option<ActiveBlock> {
        self.sides.as_ref()?.blocks.block_of(key, block, now)
    }

    /// Changes what is kept beside the states, within the budget of both. States make room for it.
    pub(super) fn change_sides<R>(
        &mut self,
        key: Fingerprint,
        now: Tick,
        change: impl FnOnce(&mut SideTables, usize) -> R,
    ) -> R {
        let sides = self.sides.get_or_insert_default();
        let all = self.budget + sides.bytes();
        let changed = change(sides, all);
        self.budget = all.saturating_sub(sides.bytes());
        if self.bytes() > self.budget {
            self.make_room(key, now);
            self.keep_to_bound(key, now);
        }
        changed
    }

    /// Forgets the block of a key, what counts towards it, and its ids. True if anything was kept.
    pub(super) fn forget_sides(&mut self, key: Fingerprint, now: Tick) -> bool {
        self.sides.is_some() && self.change_sides(key, now, |sides, _| sides.forget(key, now))
    }

    /// The memory of all that it has.
    pub(super) fn all_bytes(&self) -> usize {
        self.bytes() + self.sides.as_ref().map_or(0, |sides| sides.bytes())
    }

    pub(super) fn len(&self) -> usize {
        self.entries.used()
    }

    pub(super) fn bytes(&self) -> usize {
        self.entries.bytes() + self.heap + self.writers.bytes()
    }

    /// From when on nothing is left of what it has.
    pub(super) fn fresh_after(&self) -> Tick {
        let states = self.iter().map(|entry| self.fresh_at(entry)).max();
        let sides = self.sides.as_ref().map(|sides| sides.forgotten_at());
        states.max(sides).unwrap_or(0)
    }

    /// All entries.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry<A::State>> {
        self.entries.iter()
    }

    pub(super) fn find(&self, key: Fingerprint) -> Option<&Entry<A::State>> {
        self.entries.get(self.entries.find(key)?)
    }

    /// The quota that wrote an entry of this shard.
    pub(super) fn writer(&self, entry: &Entry<A::State>) -> Option<&Plan<A>> {
        self.writers.get(entry.quota())
    }

    /// Whether an entry of this shard was written under this quota.
    pub(super) fn was_written_under(&self, plan: &Plan<A>, entry: &Entry<A::State>) -> bool {
        self.writers.is(entry.quota(), plan)
    }

    /// The entry of `key` for a change that leaves its heap and its quota as they are.
    pub(super) fn find_mut(&mut self, key: Fingerprint) -> Option<&mut Entry<A::State>> {
        self.entries.find_mut(key)
    }

    /// The entry of `key`, if there is one; `None` if another quota wrote it.
    #[inline(always)]
    pub(super) fn find_unless_of_another(
        &mut self,
        plan: &Plan<A>,
        key: Fingerprint,
    ) -> Option<Option<&mut Entry<A::State>>> {
        match self.entries.find_mut(key) {
            Some(entry) if !self.writers.is(entry.quota(), plan) => None,
            entry => Some(entry),
        }
    }

    /// Changes the state of `key`, which is of `plan` from now on, and keeps to the bound.
    pub(super) fn update(
        &mut self,
        key: Fingerprint,
        plan: &Plan<A>,
        now: Tick,
        change: impl FnOnce(&mut A::State),
    ) {
        let Some(entry) = self.find(key) else {
            return;
        };
        let (before, heap) = (entry.quota(), A::heap_bytes(&entry.state));
        let number = match self.writers.is(before, plan) {
            true => before,
            false => self.add_writer(plan, key, now),
        };
        let Some(entry) = self.find_mut(key) else {
            return;
        };
        change(&mut entry.state);
        entry.set_quota(number);
        let after = A::heap_bytes(&entry.state);
        if number != before {
            self.writers.remove(before);
        }
        if after != heap || number != before {
            self.heap = self.heap + after - heap;
            self.keep_to_bound(key, now);
        }
    }

    /// Adds the entry of a key that has none.
    pub(super) fn insert(&mut self, key: Fingerprint, plan: &Plan<A>, state: A::State, now: Tick) {
        if self.is_sweep_due(now) {
            self.sweep(SWEEP, now);
        }
        while self.entries.is_full() {
            match self.larger() {
                Some(len) => self.entries.resize(len),
                None if self.evict(None, now) => {}
                // All are in use by requests that run: they stay, whatever the bound.
                None => self.entries.resize(self.entries.len() * 2),
            }
        }
        let number = self.add_writer(plan, key, now);
        self.heap += A::heap_bytes(&state);
        self.created += 1;
        self.entries.insert(Entry::new(key, number, state));
        self.keep_to_bound(key, now);
    }

    /// The number of a quota for one more entry.
    fn add_writer(&mut self, plan: &Plan<A>, keep: Fingerprint, now: Tick) -> u16 {
        loop {
            if let Some(number) = self.writers.add(plan) {
                return number;
            }
            // As many entries as there are numbers are of other quotas: one of those numbers gets free in the end. Slots have one quota.
            self.evict(Some(keep), now);
        }
    }

    pub(super) fn remove(&mut self, key: Fingerprint) {
        if let Some(cell) = self.entries.find(key) {
            self.remove_at(cell);
        }
    }

    /// The next larger number of cells within the bound.
    fn larger(&self) -> Option<usize> {
        let cells = self.entries.len();
        let most = self.budget.saturating_sub(self.heap + self.writers.bytes());
        let most = most / size_of::<Entry<A::State>>();
        let larger = (cells + cells.div_ceil(2)).min(most).max(LEAST);
        // A step too small to be worth the move is left alone.
        (larger > cells + cells / 16).then_some(larger)
    }

    fn keep_to_bound(&mut self, keep: Fingerprint, now: Tick) {
        if self.bytes() > self.budget && self.writers.bytes() > 0 {
            self.make_room(keep, now);
        }
        while self.heap > 0 && self.bytes() > self.budget && self.entries.used() > 1 {
            if !self.evict(Some(keep), now) {
                return;
            }
        }
    }

    /// Gives cells up for quotas, blocks or ids, a few more than are needed at once.
    fn make_room(&mut self, keep: Fingerprint, now: Tick) {
        while self.bytes() > self.budget && self.entries.len() > LEAST {
            let all = self.entries.len();
            let cells = (all - all.div_ceil(16)).max(LEAST);
            while self.entries.used() > 1 && (self.entries.used() + 1) * 4 > cells * 3 {
                if !self.evict(Some(keep), now) {
                    return;
                }
            }
            self.entries.resize(cells);
        }
    }

    /// Whether a new key is to make room. Where states hold slots of requests, only as fast as the time allows.
    fn is_sweep_due(&self, now: Tick) -> bool {
        // A clock that was set back does not stop the sweep until it is there again.
        let idle = now
            .checked_sub(self.swept_at)
            .map_or(IDLE, |idle| idle.min(IDLE));
        !A::HOLDS_SLOTS || self.cursor as u64 * IDLE <= self.entries.len() as u64 * idle
    }

    /// Forgets blocks and ids that are over, where no key comes that would.
    pub(super) fn sweep_sides(&mut self, now: Tick) {
        if let Some(sides) = &mut self.sides {
            let before = sides.bytes();
            sides.sweep(now);
            self.budget += before.saturating_sub(sides.bytes());
        }
    }

    /// Looks at the next `most` cells, and removes expired entries.
    pub(super) fn sweep(&mut self, most: usize, now: Tick) {
        let cells = self.entries.len();
        for _ in 0..most.min(cells) {
            self.cursor = self.entries.next(self.cursor);
            if self.cursor == 0 {
                self.swept_at = now;
            }
            // What moves back into the cell is looked at as well, or it would escape each time.
            while let Some(entry) = self.entries.get(self.cursor)
                && self.fresh_at(entry) <= now
            {
                self.forget(now);
            }
            // After a flood has gone, give its memory back; far from where it would grow again. While a few clients come and
            // go, a sweep of four cells for each leaves an eighth of the cells in use.
            if self.cursor == 0 && cells > 64 && self.entries.used() < cells / 5 {
                self.entries.resize(cells / 2);
                break;
            }
        }
    }

    /// The live entries and all entries in a sample of at most `most` cells, spread over the shard.
    pub(super) fn sample(&self, most: usize, now: Tick) -> (u64, u64) {
        let cells = self.entries.len();
        let stride = cells.div_ceil(most.max(1)).max(1);
        // Another part each time: the cursor moves on between two samples.
        let sampled = (self.cursor % stride..cells).step_by(stride);
        let entries = sampled.filter_map(|cell| self.entries.get(cell));
        entries.fold((0, 0), |(live, seen), entry| {
            (live + u64::from(self.fresh_at(entry) > now), seen + 1)
        })
    }

    /// The tick from which on the entry is expired: its state equals the fresh one.
    pub(super) fn fresh_at(&self, entry: &Entry<A::State>) -> Tick {
        let writer = self.writer(entry);
        writer.map_or(0, |writer| writer.quota.fresh_at(&entry.state))
    }

    /// When the entry is evicted, among live ones.
    fn eviction_order(&self, entry: &Entry<A::State>, now: Tick) -> EvictionOrder {
        self.writer(entry)
            .map_or(EvictionOrder::default(), |writer| {
                EvictionOrder::new(writer.quota.assess(&entry.state, now, 0), writer.limit)
            })
    }

    /// Removes an expired entry.
    fn forget(&mut self, now: Tick) {
        self.forgotten_by = self.forgotten_by.max(now);
        self.remove_at(self.cursor);
    }

    fn remove_at(&mut self, cell: usize) {
        if let Some(entry) = self.entries.remove(cell) {
            self.heap -= A::heap_bytes(&entry.state);
            self.writers.remove(entry.quota());
        }
    }

    /// Evicts one entry, never `keep`: an expired one, or else the first of a sample in [`EvictionOrder`]. False: all that
    /// were seen have slots in use.
    fn evict(&mut self, keep: Option<Fingerprint>, now: Tick) -> bool {
        let mut first: Option<(EvictionOrder, usize)> = None;
        let mut seen = 0;
        // Slots in use are never evicted: an unused entry among many of them is worth a longer look, but not all of the shard.
        let sample = if A::HOLDS_SLOTS { 8 * SAMPLE } else { SAMPLE };
        for _ in 0..self.entries.len() {
            self.cursor = self.entries.next(self.cursor);
            let Some(entry) = self.entries.get(self.cursor) else {
                continue;
            };
            if keep.is_some_and(|key| entry.is(key)) {
                continue;
            }
            if self.fresh_at(entry) <= now {
                self.forget(now);
                return true;
            }
            if !A::HOLDS_SLOTS {
                let order = self.eviction_order(entry, now);
                if first.is_none_or(|(least, _)| order < least) {
                    first = Some((order, self.cursor));
                }
            }
            seen += 1;
            if seen == sample {
                break;
            }
        }
        let Some((_, cell)) = first else {
            return false;
        };
        self.evicted_live += 1;
        self.remove_at(cell);
        true
    }
}

#[cfg(test)]
mod tests;
