//! Which keys certainly have no entry.

use std::fmt;

use crate::{
    sync::{AtomicU64, Ordering},
    table::table_key::TableKey,
};

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
    fn place(&self, slot: TableKey) -> (&AtomicU64, u64) {
        let bits = (slot.key[0] as usize) ^ (slot.limit as usize).wrapping_mul(0x9e37);
        (&self.0[bits >> 6 & (WORDS - 1)], 1 << (bits & 63))
    }

    /// Whether a key may be kept.
    #[inline]
    pub(crate) fn may_hold(&self, slot: TableKey) -> bool {
        let (word, bit) = self.place(slot);
        word.load(Ordering::Relaxed) & bit > 0
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    /// A key is kept from now on.
    pub(crate) fn insert(&self, slot: TableKey) {
        let (word, bit) = self.place(slot);
        word.fetch_or(bit, Ordering::Relaxed);
    }
}

impl fmt::Debug for BloomFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BloomFilter").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::store::Fingerprint;

    use super::*;

    #[test]
    fn what_was_inserted_may_be_held_and_most_else_is_not() {
        let bloom_filter = BloomFilter::new();
        let mut random = fastrand::Rng::with_seed(7);
        let mut slots = || -> Vec<TableKey> {
            let keys = std::iter::repeat_with(|| Fingerprint::from_bits(random.u128(..)));
            keys.take(1000).map(|key| TableKey::new(3, key)).collect()
        };
        let (kept, others) = (slots(), slots());
        kept.iter().for_each(|slot| bloom_filter.insert(*slot));
        assert!(kept.iter().all(|slot| bloom_filter.may_hold(*slot)));
        let others = others.iter().filter(|slot| bloom_filter.may_hold(**slot));
        // 1000 of 65 536 places are taken.
        assert!(others.count() < 50);
    }

    #[test]
    fn a_key_of_one_limit_is_none_of_another() {
        let bloom_filter = BloomFilter::new();
        let slot = |limit| TableKey::new(limit, Fingerprint::from_bits(7 << 64));
        bloom_filter.insert(slot(0));
        assert!(bloom_filter.may_hold(slot(0)) && !bloom_filter.may_hold(slot(1)));
    }
}
