//! Keys by their hashes.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;
use tollgate_core::Tick;

use crate::key_list::entry::is_before;

/// Hashes of 64 bits: with a million keys, one of 2^44 others passes for one of them.
#[derive(Default)]
pub(super) struct KeyTable {
    endless: HashSet<u64, RandomState>,
    ending: HashMap<u64, Tick, RandomState>,
}

impl KeyTable {
    /// Of hashes with their ends. Of two ends the later one counts.
    pub(super) fn new(entries: &[(u64, Tick)]) -> Self {
        let endless = entries.iter().filter(|(_, until)| *until == Tick::MAX);
        let mut table = Self {
            endless: endless.map(|(hash, _)| *hash).collect(),
            ending: HashMap::default(),
        };
        for (hash, until) in entries {
            if !table.endless.contains(hash) {
                let end = table.ending.entry(*hash).or_default();
                *end = (*end).max(*until);
            }
        }
        table.endless.shrink_to_fit();
        table.ending.shrink_to_fit();
        table
    }

    pub(super) fn len(&self) -> usize {
        self.endless.len() + self.ending.len()
    }

    pub(super) fn has(&self, hash: u64) -> bool {
        self.endless.contains(&hash) || self.ending.get(&hash).is_some_and(|end| is_before(*end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_what_it_was_made_of_and_nothing_else() {
        for hash in [
            |n: u64| n,
            |n| n << 40,
            |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15),
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
