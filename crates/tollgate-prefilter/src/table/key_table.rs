//! A table of what a process keeps of keys, in bounded memory.

use std::{cmp::Reverse, fmt};

use tollgate_core::Tick;

use crate::{
    sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock_briefly},
    table::{bloom_filter::BloomFilter, table_key::TableKey},
};

/// How large a table of keys is at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableUsage {
    /// Keys with an entry.
    pub keys: u64,
    /// The memory of the table, also that without an entry.
    pub bytes: u64,
}

/// Nothing is kept of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Miss {
    /// The key was not seen before, or many others were since. Nothing should be kept of it yet.
    pub(crate) is_new: bool,
}

/// A table with a bound on its keys: sets of a few entries, each behind a lock of its own.
///
/// The first time that a key is [looked](Self::look) up, only that is noted: in a crowd, most keys are seen once. If a set is
/// full, the entry that has been idle for longest is evicted. If none is idle, a new key gets no entry.
pub(crate) struct KeyTable<T> {
    sets: Box<[LockedSet<T>]>,
    /// Four of the last keys that were seen at each place, as tags. If two look alike, one is kept a request early.
    seen: Box<[AtomicU64]>,
    bloom_filter: BloomFilter,
}

/// The most places for keys that were seen once: one for four keys that are kept.
const SEEN: usize = 1 << 16;

/// A lock on a line of its own, with all that it takes to know which entry to look at.
#[repr(align(64))]
struct LockedSet<T>(Mutex<Set<T>>);

struct Set<T> {
    /// A byte of each entry's key.
    tags: [u8; WAYS],
    entries: Vec<Entry<T>>,
}

/// What a look compares, in front of what it is for: as few lines of memory as they fit on.
#[repr(C)]
struct Entry<T> {
    key: [u64; 2],
    limit: u32,
    /// In [`AGE`]s. They begin anew after eight years.
    touched: u32,
    value: T,
}

/// Entries in a set: with as many tags, the lock and the place of its entries a set fills a line, and those of 262 144 keys
/// stay in the second cache of a core.
const WAYS: usize = 32;

/// Entries for which a set takes memory at a time.
const ROOM: usize = 4;

/// How finely it is known how long an entry has been idle: 65 ms, in binary digits of µs.
const AGE: u32 = 16;

impl<T> Entry<T> {
    #[inline]
    fn is_of(&self, slot: TableKey) -> bool {
        (self.key, self.limit) == (slot.key, slot.limit)
    }
}

impl<T: Default> KeyTable<T> {
    /// A table of at most `keys` keys, rounded up to a power of two and to at least one set.
    pub(crate) fn new(keys: usize) -> Self {
        let sets = (keys / WAYS).max(1).next_power_of_two();
        let seen = (keys / 4).clamp(WAYS, SEEN).next_power_of_two();
        let empty = || Set {
            tags: [0; WAYS],
            entries: Vec::new(),
        };
        Self {
            sets: (0..sets).map(|_| LockedSet(Mutex::new(empty()))).collect(),
            seen: (0..seen).map(|_| AtomicU64::new(0)).collect(),
            bloom_filter: BloomFilter::new(),
        }
    }

    /// Whether a key was seen before, and not many others since. If not, it replaces a random one of the others: if keys alternate
    /// that are one more than there is room for, some of them are recognised.
    fn was_seen(&self, slot: TableKey) -> bool {
        let [high, low] = slot.key;
        let tag = ((high >> 16) as u16 ^ (slot.limit as u16).rotate_left(1)) | 1;
        let seen = &self.seen[low as usize & (self.seen.len() - 1)];
        let tags = seen.load(Ordering::Relaxed);
        let at = |place: u32| (tags >> (16 * place)) as u16;
        if (0..4).any(|place| at(place) == tag) {
            return true;
        }
        let place = (0..4).find(|place| at(*place) == 0);
        let place = 16 * place.unwrap_or_else(|| fastrand::u32(..4));
        // Of two that come at once one may be missed.
        let others = tags & !(0xffff << place);
        seen.store(others | u64::from(tag) << place, Ordering::Relaxed);
        false
    }

    #[inline]
    fn set(&self, slot: TableKey) -> MutexGuard<'_, Set<T>> {
        // Fingerprints are evenly spread. The limit is mixed in for keys that several rules share.
        let bits = (slot.key[1] >> 32) as usize ^ (slot.limit as usize).wrapping_mul(0x9e37);
        lock_briefly(&self.sets[bits & (self.sets.len() - 1)].0)
    }

    /// Does something with the entry of a key, if it has one.
    #[inline]
    pub(crate) fn with<R>(&self, slot: TableKey, act: impl FnOnce(&mut T) -> R) -> Option<R> {
        if !self.bloom_filter.may_hold(slot) {
            return None;
        }
        let mut set = self.set(slot);
        let place = set.find(slot)?;
        let entry = set.entries.get_mut(place)?;
        Some(act(&mut entry.value))
    }

    /// The same. Notes that a key without an entry was seen.
    #[inline]
    pub(crate) fn look<R>(
        &self,
        slot: TableKey,
        act: impl FnOnce(&mut T) -> Option<R>,
    ) -> Result<R, Miss> {
        match self.with(slot, act) {
            Some(done) => done.ok_or(Miss { is_new: false }),
            None => Err(Miss {
                is_new: !self.was_seen(slot),
            }),
        }
    }

    /// Does something with the entry of a key, and makes one if there is room. Not for [new](Miss::is_new) keys.
    pub(crate) fn with_new<R>(
        &self,
        slot: TableKey,
        now: Tick,
        is_idle: impl Fn(&T) -> bool,
        act: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        let mut set = self.set(slot);
        let place = match set.find(slot) {
            Some(place) => place,
            None => {
                let place = set.make_room(slot, now, is_idle)?;
                self.bloom_filter.insert(slot);
                place
            }
        };
        let entry = set.entries.get_mut(place)?;
        entry.touched = (now >> AGE) as u32;
        Some(act(&mut entry.value))
    }

    /// Shows what is kept of each key, and gives how large the table is.
    pub(crate) fn usage(&self, mut see: impl FnMut(&T)) -> TableUsage {
        let mut usage = TableUsage::default();
        let mut room = 0;
        for set in &self.sets {
            let set = lock_briefly(&set.0);
            set.entries.iter().for_each(|entry| see(&entry.value));
            usage.keys += set.entries.len() as u64;
            room += set.entries.capacity();
        }
        let sets = self.sets.len() * size_of::<LockedSet<T>>();
        let seen = self.seen.len() * size_of::<AtomicU64>();
        let entries = room * size_of::<Entry<T>>();
        usage.bytes = (sets + seen + entries + self.bloom_filter.bytes()) as u64;
        usage
    }
}

impl<T: Default> Set<T> {
    /// The place of a key's entry.
    #[inline]
    fn find(&self, slot: TableKey) -> Option<usize> {
        let (halves, _) = self.tags.as_chunks();
        for (half, tags) in halves.iter().enumerate() {
            let mut alike = alike(*tags, slot.tag());
            while alike != 0 {
                let place = half * HALF + alike.trailing_zeros() as usize / 8;
                let entry = self.entries.get(place);
                if entry.is_some_and(|entry| entry.is_of(slot)) {
                    return Some(place);
                }
                alike &= alike - 1;
            }
        }
        None
    }

    /// A place for a new key: one behind the others, or that of the entry that has been idle for longest.
    fn make_room(
        &mut self,
        slot: TableKey,
        now: Tick,
        is_idle: impl Fn(&T) -> bool,
    ) -> Option<usize> {
        let now = (now >> AGE) as u32;
        let entry = Entry {
            key: slot.key,
            limit: slot.limit,
            touched: now,
            value: T::default(),
        };
        let place = if self.entries.len() < WAYS {
            if self.entries.len() == self.entries.capacity() {
                self.entries.reserve_exact(ROOM);
            }
            self.entries.push(entry);
            self.entries.len() - 1
        } else {
            let entries = self.entries.iter().enumerate();
            let idle = entries.filter(|(_, entry)| is_idle(&entry.value));
            let (place, _) =
                idle.min_by_key(|(_, entry)| Reverse(now.wrapping_sub(entry.touched)))?;
            self.entries[place] = entry;
            place
        };
        self.tags[place] = slot.tag();
        Some(place)
    }
}

/// Tags that are compared at once.
const HALF: usize = 16;

/// The highest bit of each byte that equals `tag`, and now and then of one that is above such a byte and does not.
#[inline]
fn alike(tags: [u8; HALF], tag: u8) -> u128 {
    const ONES: u128 = u128::MAX / 0xff;
    let differ = u128::from_le_bytes(tags) ^ (ONES * u128::from(tag));
    differ.wrapping_sub(ONES) & !differ & (ONES << 7)
}

/// Without the keys.
impl<T> fmt::Debug for KeyTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyTable")
            .field("sets", &self.sets.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
