//! Fingerprints of keys.

use std::hash::{BuildHasher, Hash as _, Hasher as _, RandomState};

use foldhash::{SharedSeed, fast::FoldHasher};

use crate::{
    key::{Fingerprint, KeyBuf},
    quota::Quota,
    time::micros,
};

/// Makes fingerprints with seeds of this store: fast, and never the same in two processes.
///
/// Its halves are two hashes that have no seed in common: what makes two keys meet in one half says nothing of the other.
/// (foldhash's own random states share all seeds but one with each other.)
#[derive(Clone)]
pub(super) struct Hasher {
    low: u64,
    low_shared: SharedSeed,
    high: u64,
    high_shared: SharedSeed,
}

impl Hasher {
    fn with_seeds([low, low_shared, high, high_shared]: [u64; 4]) -> Self {
        Self {
            low,
            low_shared: SharedSeed::from_u64(low_shared),
            high,
            high_shared: SharedSeed::from_u64(high_shared),
        }
    }

    /// The key is read once for both halves. Its length turns the seeds, so that keys of different lengths do not meet.
    #[inline]
    pub(super) fn fingerprint(&self, key: &KeyBuf) -> Fingerprint {
        let turns = key.as_bytes().len() as u32;
        let mut low = FoldHasher::with_seed(self.low.rotate_right(turns), &self.low_shared);
        let mut high = FoldHasher::with_seed(self.high.rotate_right(turns), &self.high_shared);
        key.words(|word| {
            low.write_u128(word);
            high.write_u128(word);
        });
        Fingerprint::from_bits(u128::from(low.finish()) | u128::from(high.finish()) << 64)
    }

    /// What stands for the numbers of a quota, among the quotas of one algorithm.
    pub(super) fn quota_id(&self, quota: &Quota, wait: u64, debt: u64) -> u64 {
        let mut hasher = FoldHasher::with_seed(self.high, &self.high_shared);
        let units = (quota.rate(), quota.limit(), quota.bucket_count(), debt);
        let times = (quota.period(), quota.calendar_of());
        let wait = quota.typical_hold_time().map_or(wait, micros);
        (units, times, wait).hash(&mut hasher);
        hasher.finish()
    }
}

/// Random seeds: the standard library's are keyed by the operating system.
impl Default for Hasher {
    fn default() -> Self {
        let random = RandomState::new();
        Self::with_seeds([1_u64, 2, 3, 4].map(|n| random.hash_one(n)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::PartKind;

    fn halves(hasher: &Hasher, key: &KeyBuf) -> (u64, u64) {
        let bits = hasher.fingerprint(key).bits();
        (bits as u64, (bits >> 64) as u64)
    }

    /// Keys of many lengths: foldhash has a way of its own for short ones.
    fn keys() -> impl Iterator<Item = KeyBuf> {
        (0..2_000_u64).map(|n| {
            let mut key = KeyBuf::new();
            let part = n.to_le_bytes().repeat(1 + n as usize % 12);
            key.push(PartKind::VALUE, part);
            key
        })
    }

    #[test]
    fn each_half_has_both_seeds_of_its_own() {
        // Where any of the four is another, so is one half of every key, and the other half stays.
        let base = Hasher::with_seeds([10, 20, 10, 20]);
        for (index, in_low) in [(0, true), (1, true), (2, false), (3, false)] {
            let mut seeds = [10, 20, 10, 20];
            seeds[index] += 1;
            let other = Hasher::with_seeds(seeds);
            for key in keys() {
                let (one, two) = (halves(&base, &key), halves(&other, &key));
                assert_eq!(one.0 != two.0, in_low, "seed {index}");
                assert_eq!(one.1 != two.1, !in_low, "seed {index}");
            }
        }
    }

    #[test]
    fn the_seeds_of_two_stores_and_of_two_halves_differ() {
        let (one, other) = (Hasher::default(), Hasher::default());
        for key in keys() {
            let (a, b) = (halves(&one, &key), halves(&other, &key));
            assert!(a.0 != b.0 && a.1 != b.1 && a.0 != a.1);
        }
    }
}
