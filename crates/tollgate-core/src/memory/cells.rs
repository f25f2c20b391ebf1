//! The cells of a shard: open addressing with linear probing, and no tombstones.
//!
//! Written here and not taken from a library, because a bounded table of limiter states wants three things together that
//! a general map does not give: any capacity (not a power of two, so that the bound in bytes is used), removal that
//! leaves nothing behind (a table that is full and evicts all day long would fill up with tombstones, and rehash or
//! grow), and a look at any cell by its number (for forgetting a few at a time). A key's state is mostly in one cache line.

use crate::key::Fingerprint;

/// A key's state, and the number of the quota that wrote it.
///
/// The upper word of the key gives 17 bits away, 16 to the number of the quota and one to tell a cell in use: 111 bits
/// are the identity.
#[derive(Default)]
pub(super) struct Entry<S> {
    low: u64,
    high_and_quota: u64,
    pub(super) state: S,
}

const IN_USE: u64 = 1 << 16;
const QUOTA: u64 = IN_USE - 1;

impl<S> Entry<S> {
    pub(super) fn new(key: Fingerprint, quota: u16, state: S) -> Self {
        Self {
            low: low(key),
            high_and_quota: high(key) | u64::from(quota),
            state,
        }
    }

    #[inline]
    pub(super) fn quota(&self) -> u16 {
        (self.high_and_quota & QUOTA) as u16
    }

    pub(super) fn set_quota(&mut self, quota: u16) {
        self.high_and_quota = self.high_and_quota & !QUOTA | u64::from(quota);
    }

    #[inline]
    pub(super) fn is(&self, key: Fingerprint) -> bool {
        self.low == low(key) && self.high_and_quota & !QUOTA == high(key)
    }

    #[inline]
    fn in_use(&self) -> bool {
        self.high_and_quota != 0
    }
}

fn low(key: Fingerprint) -> u64 {
    key.bits() as u64
}

fn high(key: Fingerprint) -> u64 {
    (key.bits() >> 64) as u64 & !(QUOTA | IN_USE) | IN_USE
}

#[derive(Default)]
pub(super) struct Cells<S> {
    cells: Box<[Entry<S>]>,
    used: usize,
}

impl<S: Default> Cells<S> {
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Slots, in use or not.
    pub(super) fn len(&self) -> usize {
        self.cells.len()
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val::<[Entry<S>]>(&self.cells)
    }

    /// Whether one more entry would make searches long: three quarters are in use.
    pub(super) fn is_full(&self) -> bool {
        (self.used + 1) * 4 > self.cells.len() * 3
    }

    /// Where the search for an entry begins. The upper word decides, because the lower one has chosen the shard.
    #[inline]
    fn home(&self, high_and_quota: u64) -> usize {
        // Without the quota's number, which changes while the entry stays where it is.
        let spread = u128::from(high_and_quota & !QUOTA) * self.cells.len() as u128;
        (spread >> 64) as usize
    }

    /// The cell after one, and after the last the first.
    #[inline]
    pub(super) fn next(&self, cell: usize) -> usize {
        if cell + 1 >= self.cells.len() {
            0
        } else {
            cell + 1
        }
    }

    pub(super) fn find(&self, key: Fingerprint) -> Option<usize> {
        let mut cell = self.home(high(key));
        loop {
            let entry = self.cells.get(cell)?;
            if entry.is(key) {
                return Some(cell);
            }
            // There is always a cell that is not in use: a quarter are.
            if !entry.in_use() {
                return None;
            }
            cell = self.next(cell);
        }
    }

    /// The entry of a key.
    #[inline(always)]
    pub(super) fn find_mut(&mut self, key: Fingerprint) -> Option<&mut Entry<S>> {
        let cell = self.find(key)?;
        self.cells.get_mut(cell)
    }

    /// All entries.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry<S>> {
        self.cells.iter().filter(|entry| entry.in_use())
    }

    /// The entry in this cell.
    #[inline]
    pub(super) fn get(&self, cell: usize) -> Option<&Entry<S>> {
        self.cells.get(cell).filter(|entry| entry.in_use())
    }

    /// Adds the entry of a key that has none. The cells are not [full](Self::is_full).
    pub(super) fn insert(&mut self, entry: Entry<S>) {
        let mut cell = self.home(entry.high_and_quota);
        while self.cells.get(cell).is_some_and(Entry::in_use) {
            cell = self.next(cell);
        }
        if let Some(free) = self.cells.get_mut(cell) {
            *free = entry;
            self.used += 1;
        }
    }

    /// Removes the entry in this cell, and moves later ones of its run back, so that no search stops early.
    pub(super) fn remove(&mut self, cell: usize) -> Option<Entry<S>> {
        self.get(cell)?;
        let removed = std::mem::take(&mut self.cells[cell]);
        self.used -= 1;
        let mut hole = cell;
        let mut at = self.next(cell);
        while self.cells[at].in_use() {
            // An entry may fill the hole if its home is not between the hole and itself, around the end.
            let home = self.home(self.cells[at].high_and_quota);
            let from_home = (at + self.cells.len() - home) % self.cells.len();
            let from_hole = (at + self.cells.len() - hole) % self.cells.len();
            if from_home >= from_hole {
                self.cells[hole] = std::mem::take(&mut self.cells[at]);
                hole = at;
            }
            at = self.next(at);
        }
        Some(removed)
    }

    /// Moves all entries into `len` cells, which is enough for them.
    pub(super) fn resize(&mut self, len: usize) {
        let cells = (0..len).map(|_| Entry::default()).collect();
        let before = std::mem::replace(&mut self.cells, cells);
        self.used = 0;
        for entry in before {
            if entry.in_use() {
                self.insert(entry);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn key(n: u64) -> Fingerprint {
        let spread = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // Few homes, so that runs are long and go around the end.
        Fingerprint::from_bits(u128::from(n) | u128::from(spread >> 61 << 61) << 64)
    }

    #[test]
    fn what_was_inserted_and_not_removed_is_found_whatever_the_order() {
        let mut cells = Cells::<u64>::default();
        let mut model = BTreeSet::new();
        let mut random = 1_u64;
        for _ in 0..20_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let n = random >> 58;
            match cells.find(key(n)) {
                Some(cell) => {
                    assert_eq!(cells.remove(cell).map(|entry| entry.state), Some(n));
                    assert!(model.remove(&n));
                }
                None => {
                    if cells.is_full() {
                        cells.resize(cells.len() + 7);
                    }
                    cells.insert(Entry::new(key(n), 3, n));
                    assert!(model.insert(n));
                }
            }
            assert_eq!(cells.used(), model.len());
            for n in 0..64 {
                assert_eq!(cells.find(key(n)).is_some(), model.contains(&n), "{n}");
            }
        }
    }
}
