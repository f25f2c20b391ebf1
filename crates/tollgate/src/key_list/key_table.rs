//! Keys by their hashes.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher as _, Hasher as _, RandomState},
};

use foldhash::{SharedSeed, fast, fast::FoldHasher};
use tollgate_core::Tick;

use crate::key_list::entry::is_before;

/// 64 bits of each key: with a million keys, one of 2^44 others passes for one of them.
#[derive(Default)]
pub(super) struct KeyTable {
    endless: HashSet<u64, fast::RandomState>,
    ending: HashMap<u64, Tick, fast::RandomState>,
}

impl KeyTable {
    /// Of hashes with their ends. Of two ends the later one counts.
    pub(super) fn new(entries: &[(u128, Tick)]) -> Self {
        let (endless, ending): (Vec<_>, Vec<_>) = entries
            .iter()
            .map(|(hash, until)| (tag(*hash), *until))
            .partition(|(_, until)| *until == Tick::MAX);
        let mut table = Self {
            endless: endless.into_iter().map(|(tag, _)| tag).collect(),
            ending: HashMap::default(),
        };
        for (tag, until) in ending {
            if !table.endless.contains(&tag) {
                let end = table.ending.entry(tag).or_default();
                *end = until.max(*end);
            }
        }
        table.endless.shrink_to_fit();
        table.ending.shrink_to_fit();
        table
    }

    pub(super) fn len(&self) -> usize {
        self.endless.len() + self.ending.len()
    }

    pub(super) fn has(&self, hash: u128) -> bool {
        let tag = tag(hash);
        self.endless.contains(&tag) || self.ending.get(&tag).is_some_and(|end| is_before(*end))
    }
}

/// Each half goes into it: a hash of an application may have 64 bits.
fn tag(hash: u128) -> u64 {
    (hash >> 64) as u64 ^ (hash as u64).rotate_left(32)
}

/// Hashes of keys that no other process has: its two halves have no seed in common.
pub(super) struct Hasher([(u64, SharedSeed); 2]);

impl Hasher {
    pub(super) fn hash(&self, key: &[u8]) -> u128 {
        let [low, high] = self.0.each_ref().map(|(seed, shared)| {
            let mut hasher = FoldHasher::with_seed(*seed, shared);
            hasher.write(key);
            u128::from(hasher.finish())
        });
        low | high << 64
    }
}

impl Default for Hasher {
    fn default() -> Self {
        let random = RandomState::new();
        let half = |n: u8| {
            let shared = SharedSeed::from_u64(random.hash_one(n + 2));
            (random.hash_one(n), shared)
        };
        Self([half(0), half(1)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_what_it_was_made_of_and_nothing_else() {
        // Hashes of 64 bits in either half, and of halves that are alike.
        for hash in [
            |n: u128| n,
            |n| n << 64,
            |n| n << 64 | n,
            |n| n << 100 | n >> 3,
        ] {
            let until = |n| if n % 3 == 0 { 5 } else { Tick::MAX };
            let list: Vec<_> = (1..100_000).map(|n| (hash(n), until(n))).collect();
            let table = KeyTable::new(&[&list[..], &list[..100]].concat());
            let endless: Vec<_> = list.iter().map(|(hash, _)| (*hash, Tick::MAX)).collect();
            let endless = KeyTable::new(&endless);
            assert_eq!((table.len(), endless.len()), (list.len(), list.len()));
            for n in 1..200_000 {
                // What has ended is in no list.
                let is_in = n < 100_000;
                assert_eq!(table.has(hash(n)), is_in && n % 3 > 0, "{n}");
                assert_eq!(endless.has(hash(n)), is_in, "{n}");
            }
        }
        assert!(!KeyTable::new(&[]).has(0));
    }
}
