//! Keys by their hashes: a small table of marks answers most looks for keys that are not there, before the large one.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use foldhash::{SharedSeed, fast::FoldHasher};
use tollgate_core::Tick;

use crate::key_list::entry::is_before;

/// The places of a cache line.
const WIDTH: usize = 8;

/// Some bits of a hash say which line, and 64 others stand in it, so that of 2^60 keys that are not in the table about one passes for
/// one that is. Three places in five are taken: 15 bytes an entry, and 29 where entries have ends.
#[derive(Default)]
pub(super) struct KeyTable {
    lines: Box<[Line]>,
    /// A byte of the hash for each place, 0 for a free one: of a million entries they stay in a processor's cache.
    marks: Box<[[u8; WIDTH]]>,
    /// By line and place; empty if no entry has an end.
    ends: Box<[[Tick; WIDTH]]>,
    seed: u64,
    pub(super) len: usize,
}

/// The places that are taken come first.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Line([u64; WIDTH]);

/// Where a hash is looked for first, and what stands there for it.
struct Sought {
    line: usize,
    mark: u8,
    tag: u64,
}

impl KeyTable {
    /// Of hashes with their ends. Of two ends the later one counts.
    pub(super) fn new(entries: &[(u128, Tick)]) -> Self {
        if entries.is_empty() {
            return Self::default();
        }
        let has_ends = entries.iter().any(|(_, until)| *until < Tick::MAX);
        let lines = entries.len() * 5 / 3 / WIDTH + 1;
        let mut table = Self {
            lines: vec![Line::default(); lines].into(),
            marks: vec![[0; WIDTH]; lines].into(),
            ends: vec![[0; WIDTH]; if has_ends { lines } else { 0 }].into(),
            seed: RandomState::new().hash_one(0_u8),
            len: 0,
        };
        for (hash, until) in entries {
            let Sought {
                mut line,
                mark,
                tag,
            } = table.sought(*hash);
            let place = loop {
                let (marks, tags) = (&table.marks[line], &table.lines[line].0);
                let fits = |place: &usize| marks[*place] == 0 || tags[*place] == tag;
                match (0..WIDTH).find(fits) {
                    Some(place) => break place,
                    None => line = (line + 1) % lines,
                }
            };
            table.len += usize::from(table.marks[line][place] == 0);
            table.marks[line][place] = mark;
            table.lines[line].0[place] = tag;
            if let Some(ends) = table.ends.get_mut(line) {
                ends[place] = ends[place].max(*until);
            }
        }
        table
    }

    pub(super) fn has(&self, hash: u128) -> bool {
        if self.lines.is_empty() {
            return false;
        }
        let Sought {
            mut line,
            mark,
            tag,
        } = self.sought(hash);
        loop {
            let marks = &self.marks[line];
            if marks.contains(&mark) {
                // All are compared: which one has the mark would have to be known before the line is read.
                let place = self.lines[line].0.iter().position(|it| *it == tag);
                if let Some(place) = place {
                    return self
                        .ends
                        .get(line)
                        .is_none_or(|ends| is_before(ends[place]));
                }
            }
            // Two places in five are free, so that there is a line with a free one.
            if marks[WIDTH - 1] == 0 {
                return false;
            }
            line = (line + 1) % self.lines.len();
        }
    }

    fn sought(&self, hash: u128) -> Sought {
        // Each half goes into both: a hash of an application may have 64 bits.
        let (low, high) = (hash as u64, (hash >> 64) as u64);
        let mixed = low ^ high.rotate_left(17) ^ self.seed;
        let mixed = u128::from(mixed) * 0x9e37_79b9_7f4a_7c15;
        let mixed = mixed as u64 ^ (mixed >> 64) as u64;
        // A multiplication in place of a division.
        let line = ((u128::from(mixed) * self.lines.len() as u128) >> 64) as usize;
        Sought {
            line,
            mark: (mixed as u8).max(1),
            // Not what stands in a free place.
            tag: (high ^ low.rotate_left(32)).max(1),
        }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.lines) + size_of_val(&*self.marks) + size_of_val(&*self.ends)
    }
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
    fn a_table_has_what_it_was_made_of_and_nothing_else_at_forty_bytes_an_entry() {
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
            assert_eq!((table.len, endless.len), (list.len(), list.len()));
            assert!(table.bytes() <= 40 * table.len && endless.bytes() <= 20 * table.len);
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
