//! A table of what a process keeps of keys, in bounded memory.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tollgate_core::{Fingerprint, Tick};

/// A key under one quota of one rule.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    key: Fingerprint,
    rule: u16,
    plan: u16,
}

/// What is kept of at most so many keys: sets of a few, each behind a lock of its own.
///
/// Where a set is full, the entry that has been idle for longest goes. Where none is idle, nothing is kept of a new key.
pub(crate) struct Keyed<T> {
    sets: Box<[Mutex<Vec<Entry<T>>>]>,
}

struct Entry<T> {
    slot: Slot,
    touched: Tick,
    value: T,
}

/// Entries in a set.
const WAYS: usize = 16;

impl Slot {
    pub(crate) fn new(rule: u16, plan: u16, key: Fingerprint) -> Self {
        Self { key, rule, plan }
    }

    pub(crate) fn rule(&self) -> u16 {
        self.rule
    }

    pub(crate) fn plan(&self) -> u16 {
        self.plan
    }

    pub(crate) fn key(&self) -> Fingerprint {
        self.key
    }
}

impl<T: Default> Keyed<T> {
    /// Of at most `keys`, rounded up to a power of two and to at least one set.
    pub(crate) fn new(keys: usize) -> Self {
        let sets = (keys / WAYS).max(1).next_power_of_two();
        Self {
            sets: (0..sets).map(|_| Mutex::new(Vec::new())).collect(),
        }
    }

    #[inline]
    fn set(&self, slot: Slot) -> MutexGuard<'_, Vec<Entry<T>>> {
        // Fingerprints are evenly spread. The rule is mixed in for keys that several rules share.
        let bits = (slot.key.bits() >> 32) as usize ^ usize::from(slot.rule).wrapping_mul(0x9e37);
        lock(&self.sets[bits & (self.sets.len() - 1)])
    }

    /// Does something with what is kept of a key.
    #[inline]
    pub(crate) fn with<R>(&self, slot: Slot, act: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut set = self.set(slot);
        let entry = set.iter_mut().find(|entry| entry.slot == slot)?;
        Some(act(&mut entry.value))
    }

    /// The same, and keeps something of the key from now on if there is room.
    pub(crate) fn with_new<R>(
        &self,
        slot: Slot,
        now: Tick,
        is_idle: impl Fn(&T) -> bool,
        act: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        let mut set = self.set(slot);
        let place = match set.iter().position(|entry| entry.slot == slot) {
            Some(place) => place,
            None => room(&mut set, slot, is_idle)?,
        };
        let entry = set.get_mut(place)?;
        entry.touched = now;
        Some(act(&mut entry.value))
    }

    /// Adds something up over all keys.
    pub(crate) fn sum(&self, of: impl Fn(&T) -> u64) -> u64 {
        let of_set = |set: &Mutex<Vec<Entry<T>>>| -> u64 {
            lock(set).iter().map(|entry| of(&entry.value)).sum()
        };
        self.sets.iter().map(of_set).sum()
    }
}

/// A place for a new key: one behind the others, or that of the entry that has been idle for longest.
fn room<T: Default>(
    set: &mut Vec<Entry<T>>,
    slot: Slot,
    is_idle: impl Fn(&T) -> bool,
) -> Option<usize> {
    let entry = Entry {
        slot,
        touched: 0,
        value: T::default(),
    };
    if set.len() < WAYS {
        set.push(entry);
        return Some(set.len() - 1);
    }
    let idle = set
        .iter()
        .enumerate()
        .filter(|(_, entry)| is_idle(&entry.value));
    let (place, _) = idle.min_by_key(|(_, entry)| entry.touched)?;
    set[place] = entry;
    Some(place)
}

/// Locks, also after a panic of another holder: each change leaves an entry whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Without the keys.
impl<T> fmt::Debug for Keyed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyed")
            .field("sets", &self.sets.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot")
            .field("rule", &self.rule)
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(key: u128) -> Slot {
        Slot::new(0, 0, Fingerprint::from_bits(key))
    }

    #[test]
    fn a_full_set_forgets_what_has_been_idle_for_longest_and_nothing_that_is_in_use() {
        let table = Keyed::<u64>::new(1);
        for key in 0..WAYS as u128 {
            table.with_new(slot(key), key as u64, |_| true, |value| *value = 1);
        }
        let in_use = |value: &u64| *value == 0;
        assert_eq!(table.with_new(slot(99), 100, in_use, |value| *value), None);
        table.with(slot(5), |value| *value = 0);
        table.with(slot(3), |value| *value = 0);
        assert_eq!(
            table.with_new(slot(99), 100, in_use, |value| *value),
            Some(0)
        );
        // The older of the two idle ones has gone.
        assert_eq!(table.with(slot(3), |value| *value), None);
        assert_eq!(table.with(slot(5), |value| *value), Some(0));
        assert_eq!(table.sum(|value| *value), WAYS as u64 - 2);
    }
}
