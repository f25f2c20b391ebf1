//! The one table of what a process keeps of keys, in bounded memory: an entry for each key, and its last denial.
//!
//! Denials lie beside the entries and are read without a lock: clients that do not stop are to cost as little as possible, on as many
//! threads as they come. (Under a leased or eventual rule the entry is looked at before, under its lock.) Nothing is lost with a denial
//! that had to go.

use std::cmp::Reverse;

use tollgate_core::{
    Tick,
    store::{Fingerprint, SeqCells},
};

use crate::sync::{BriefGuard, BriefMutex, lock_briefly};

/// Where what is kept of a key is: the state of a rule that it counts against.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TableKey {
    /// The halves of its fingerprint: as one number they would take 16 bytes at a time.
    pub(crate) key: [u64; 2],
    /// The number of the rule.
    pub(crate) rule: u32,
}

impl TableKey {
    #[inline]
    pub(crate) fn new(rule: u32, key: Fingerprint) -> Self {
        let bits = key.bits();
        Self {
            key: [(bits >> 64) as u64, bits as u64],
            rule,
        }
    }

    #[inline]
    fn key(self) -> Fingerprint {
        let [high, low] = self.key;
        Fingerprint::from_bits(u128::from(high) << 64 | u128::from(low))
    }

    /// A byte of the key.
    #[inline]
    fn tag(self) -> u8 {
        (self.key[1] >> 56) as u8
    }
}

/// What a denial has taught, in three words. The second is below 2^52.
pub(crate) type DenialWords = [u64; 3];

/// Above the second word of a denial: by this much of a key its denials are known where the limit is not.
const KEY_BITS: u32 = 52;

/// The denials of a set: 65 536 of 32 bytes where there are 262 144 keys. Two lie on a line.
const DENIALS: usize = 8;

/// A table with a bound on its keys: sets of a few entries, each behind a lock of its own.
///
/// If a set is full, an entry is evicted that may go. If none may, a new key gets no entry.
pub(crate) struct KeyTable<T> {
    sets: Box<[LockedSet<T>]>,
    /// An odd number by which keys are spread over the sets, and how many of the bits below the first one do not count.
    secret: u64,
    shift: u32,
    /// Of each set some, written under its lock; `None`: they are not kept.
    denials: Option<SeqCells<3>>,
}

/// A lock on a line of its own, with all that it takes to know which entry to look at.
#[repr(align(64))]
struct LockedSet<T>(BriefMutex<Set<T>>);

struct Set<T> {
    /// A byte of each entry's key.
    tags: [u8; WAYS],
    entries: Vec<Entry<T>>,
}

/// What a look compares, in front of what it is for: as few lines of memory as they fit on.
#[repr(C)]
struct Entry<T> {
    key: [u64; 2],
    rule: u32,
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
    fn is_of(&self, at: TableKey) -> bool {
        (self.key, self.rule) == (at.key, at.rule)
    }
}

impl<T: Default> KeyTable<T> {
    /// A table of at most `keys` keys, rounded up to a power of two and to at least one set.
    pub(crate) fn new(keys: usize, keeps_denials: bool) -> Self {
        let sets = (keys / WAYS).max(1).next_power_of_two();
        let empty = || Set {
            tags: [0; WAYS],
            entries: Vec::new(),
        };
        Self {
            secret: fastrand::u64(..) | 1,
            shift: u64::BITS - 1 - sets.trailing_zeros(),
            sets: (0..sets)
                .map(|_| LockedSet(BriefMutex::new(empty())))
                .collect(),
            denials: keeps_denials.then(|| SeqCells::new(sets, DENIALS)),
        }
    }

    /// Which set has a key is secret: else clients that choose their keys could fill the set of another with slots or leases, which stay
    /// while they are in use.
    #[inline]
    fn index(&self, at: TableKey) -> usize {
        let bits = at.key[1] ^ u64::from(at.rule).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (bits.wrapping_mul(self.secret) >> 1 >> self.shift) as usize
    }

    #[inline]
    fn set(&self, at: TableKey) -> BriefGuard<'_, Set<T>> {
        lock_briefly(&self.sets[self.index(at)].0)
    }

    /// Whether denials are kept.
    pub(crate) fn keeps_denials(&self) -> bool {
        self.denials.is_some()
    }

    /// What the last denial of a key under this limit has taught.
    #[inline]
    pub(crate) fn denial(&self, at: TableKey, limit: u32) -> Option<DenialWords> {
        let denials = self.denials.as_ref()?;
        let line = denials.line(self.index(at), at.key());
        let mut words = line.get(at.key(), limit.into())?;
        words[1] &= (1 << KEY_BITS) - 1;
        Some(words)
    }

    /// Keeps what a denial has taught, in the place of what others of the key have if it is the `only` one that counts.
    pub(crate) fn learn(&self, at: TableKey, limit: u32, mut words: DenialWords, only: bool) {
        let (key, salt) = (at.key(), limit.into());
        let Some(denials) = self.denials.as_ref().filter(|_| words[1] >> KEY_BITS == 0) else {
            return;
        };
        let line = denials.line(self.index(at), key);
        words[1] |= key_bits(key) << KEY_BITS;
        let _writer = self.set(at);
        if only && line.get(key, salt).is_none() {
            line.remove_if(is_of(key));
        }
        line.insert(key, salt, words);
    }

    /// Forgets the denials of a key: more may be left by now, or less.
    pub(crate) fn unlearn(&self, at: TableKey) {
        let Some(denials) = &self.denials else {
            return;
        };
        let (line, is_of) = (denials.line(self.index(at), at.key()), is_of(at.key()));
        // What is written meanwhile is of a denial that came later.
        if line.any(&is_of) {
            let _writer = self.set(at);
            line.remove_if(is_of);
        }
    }

    /// Does something with the entry of a key, if it has one.
    #[inline]
    pub(crate) fn with<R>(&self, at: TableKey, act: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut set = self.set(at);
        let place = set.find(at)?;
        let entry = set.entries.get_mut(place)?;
        Some(act(&mut entry.value))
    }

    /// Does something with the entry of a key, and makes one if there is room. `may_go` says of another whether it may be evicted,
    /// and of which first: the least of them, and of those the one that has been idle for longest.
    pub(crate) fn with_new<R>(
        &self,
        at: TableKey,
        now: Tick,
        may_go: impl Fn(&T) -> Option<Tick>,
        act: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        let mut set = self.set(at);
        let place = match set.find(at) {
            Some(place) => place,
            None => set.make_room(at, now, may_go)?,
        };
        let entry = set.entries.get_mut(place)?;
        entry.touched = (now >> AGE) as u32;
        Some(act(&mut entry.value))
    }

    /// Shows what is kept of each key, and gives the memory of the table, also that without an entry.
    pub(crate) fn see_all(&self, mut see: impl FnMut(&T)) -> usize {
        let mut room = 0;
        for set in &self.sets {
            let set = lock_briefly(&set.0);
            set.entries.iter().for_each(|entry| see(&entry.value));
            room += set.entries.capacity();
        }
        let sets = self.sets.len() * size_of::<LockedSet<T>>();
        let entries = room * size_of::<Entry<T>>();
        let denials = self.denials.as_ref().map_or(0, SeqCells::bytes);
        sets + denials + entries
    }
}

impl<T: Default> Set<T> {
    /// The place of a key's entry.
    #[inline]
    fn find(&self, at: TableKey) -> Option<usize> {
        let (halves, _) = self.tags.as_chunks();
        for (half, tags) in halves.iter().enumerate() {
            let mut alike = alike(*tags, at.tag());
            while alike != 0 {
                let place = half * HALF + alike.trailing_zeros() as usize / 8;
                let entry = self.entries.get(place);
                if entry.is_some_and(|entry| entry.is_of(at)) {
                    return Some(place);
                }
                alike &= alike - 1;
            }
        }
        None
    }

    /// A place for a new key: one behind the others, or that of an entry that may go.
    fn make_room(
        &mut self,
        at: TableKey,
        now: Tick,
        may_go: impl Fn(&T) -> Option<Tick>,
    ) -> Option<usize> {
        let now = (now >> AGE) as u32;
        let entry = Entry {
            key: at.key,
            rule: at.rule,
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
            let rank = |(place, entry): (usize, &Entry<T>)| {
                let idle = Reverse(now.wrapping_sub(entry.touched));
                Some((may_go(&entry.value)?, idle, place))
            };
            let (.., place) = self.entries.iter().enumerate().filter_map(rank).min()?;
            self.entries[place] = entry;
            place
        };
        self.tags[place] = at.tag();
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

/// Twelve bits that choose no denial.
fn key_bits(key: Fingerprint) -> u64 {
    (key.bits() >> 52) as u64 & 0xfff
}

/// Whether a denial may be of a key; one of another is now and then.
fn is_of(key: Fingerprint) -> impl Fn(&DenialWords) -> bool {
    move |words| words[1] >> KEY_BITS == key_bits(key)
}

#[cfg(test)]
mod tests;
