//! Which keys certainly have no entry.

use crate::sync::{AtomicU64, Ordering};

/// A Bloom filter with one hash: a bit says whether any of the keys that share it ever had an entry. It is small enough to stay in
/// the first cache of a core, and saves the access to a set, which is not.
///
/// Bits are never cleared: after very many keys it says nothing any more, and costs next to nothing.
pub(crate) struct BloomFilter(Box<[AtomicU64]>);

/// Words of 64 places: 8 KiB.
const WORDS: usize = 1024;

impl BloomFilter {
    pub(crate) fn new() -> Self {
        Self((0..WORDS).map(|_| AtomicU64::new(0)).collect())
    }

    /// The word of a key, and its bit there.
    #[inline]
    fn place(&self, hash: u64) -> (&AtomicU64, u64) {
        (&self.0[hash as usize >> 6 & (WORDS - 1)], 1 << (hash & 63))
    }

    /// Whether a key may be kept.
    #[inline]
    pub(crate) fn may_hold(&self, hash: u64) -> bool {
        let (word, bit) = self.place(hash);
        word.load(Ordering::Relaxed) & bit > 0
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    /// A key is kept from now on.
    pub(crate) fn insert(&self, hash: u64) {
        let (word, bit) = self.place(hash);
        word.fetch_or(bit, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_inserted_may_be_held_and_most_else_is_not() {
        let bloom_filter = BloomFilter::new();
        let mut random = fastrand::Rng::with_seed(7);
        let mut hashes = || (0..1_000).map(|_| random.u64(..)).collect::<Vec<_>>();
        let (kept, others) = (hashes(), hashes());
        kept.iter().for_each(|hash| bloom_filter.insert(*hash));
        assert!(kept.iter().all(|hash| bloom_filter.may_hold(*hash)));
        let others = others.iter().filter(|hash| bloom_filter.may_hold(**hash));
        // 1000 of 65 536 places are taken.
        assert!(others.count() < 50);
    }
}
