//! Denials from loads: what a denial has taught, in front of the locks.

use crate::{
    algorithm::LearnedBound,
    key::Fingerprint,
    sync::{AtomicU64, Ordering},
};

/// Cells that each hold the learned bound of one key, or nothing.
///
/// A cell is three words, written without a lock on the reader's side: two words of the bound, and a third that is the
/// key's tag mixed with both. Words of two writes that met in a reader do not mix to the tag, so a torn read is a miss
/// (but for one in 2^64), and readers never wait. Cells are written under their shard's lock only, so each has one
/// writer at a time.
#[derive(Debug)]
pub(super) struct LearnedBounds {
    cells: Box<[Cell]>,
    per_shard: usize,
}

#[derive(Debug)]
#[repr(align(32))]
struct Cell {
    first: AtomicU64,
    second: AtomicU64,
    tag: AtomicU64,
}

impl LearnedBounds {
    /// `per_shard` cells for each of `shards`; both are powers of two.
    pub(super) fn new(shards: usize, per_shard: usize) -> Self {
        Self {
            cells: (0..shards * per_shard)
                .map(|_| Cell {
                    first: AtomicU64::new(0),
                    second: AtomicU64::new(0),
                    tag: AtomicU64::new(0),
                })
                .collect(),
            per_shard,
        }
    }

    #[inline(always)]
    fn cell(&self, shard: usize, key: Fingerprint) -> Option<&Cell> {
        let place = (key.bits() >> 24) as usize & (self.per_shard - 1);
        self.cells.get(shard * self.per_shard + place)
    }

    /// What was learned of `key` under the quota with this id.
    #[inline(always)]
    pub(super) fn find(&self, shard: usize, key: Fingerprint, quota: u16) -> Option<LearnedBound> {
        let cell = self.cell(shard, key)?;
        let tag = cell.tag.load(Ordering::Relaxed);
        if tag == 0 {
            return None;
        }
        let bound = LearnedBound(
            cell.first.load(Ordering::Relaxed),
            cell.second.load(Ordering::Relaxed),
        );
        (tag == mixed_tag(key, quota, bound)).then_some(bound)
    }

    /// Learns. The shard's lock is held.
    pub(super) fn learn(&self, shard: usize, key: Fingerprint, quota: u16, bound: LearnedBound) {
        if let Some(cell) = self.cell(shard, key) {
            cell.first.store(bound.0, Ordering::Relaxed);
            cell.second.store(bound.1, Ordering::Relaxed);
            cell.tag
                .store(mixed_tag(key, quota, bound), Ordering::Relaxed);
        }
    }

    /// Forgets what was learned of `key`: its state is about to change. The shard's lock is held.
    ///
    /// A cell that holds another key may be emptied as well, which costs that key one look at its state.
    #[inline(always)]
    pub(super) fn forget(&self, shard: usize, key: Fingerprint) {
        if let Some(cell) = self.cell(shard, key)
            && cell.tag.load(Ordering::Relaxed) != 0
        {
            cell.tag.store(0, Ordering::Relaxed);
        }
    }
}

/// The tag of a key under a quota, mixed with a bound; never 0, which is an empty cell.
#[inline]
fn mixed_tag(key: Fingerprint, quota: u16, bound: LearnedBound) -> u64 {
    let tag = (key.bits() >> 64) as u64 ^ u64::from(quota).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let product =
        u128::from(bound.0 ^ 0x2d35_8dcc_aa6c_78a5) * u128::from(bound.1 ^ 0x8bb8_4b93_962e_acc9);
    (tag ^ product as u64 ^ (product >> 64) as u64) | 1
}

#[cfg(all(test, not(tollgate_shuttle)))]
mod tests {
    use super::*;

    fn key(bits: u128) -> Fingerprint {
        Fingerprint::from_bits(bits)
    }

    #[test]
    fn a_bound_is_found_under_its_key_and_quota_only() {
        let bounds = LearnedBounds::new(1, 8);
        bounds.learn(0, key(7 << 64), 1, LearnedBound(10, 20));
        assert_eq!(bounds.find(0, key(7 << 64), 1), Some(LearnedBound(10, 20)));
        assert_eq!(bounds.find(0, key(7 << 64), 2), None);
        assert_eq!(bounds.find(0, key(8 << 64), 1), None);
        bounds.forget(0, key(7 << 64));
        assert_eq!(bounds.find(0, key(7 << 64), 1), None);
    }
}

#[cfg(all(test, tollgate_shuttle))]
mod schedules {
    use super::*;
    use crate::sync::Mutex;
    use shuttle::sync::Arc;

    /// Two keys fight for one cell while a reader looks: it sees a bound of its key as it was written, or nothing.
    #[test]
    fn a_reader_never_sees_half_a_bound() {
        shuttle::check_random(
            || {
                let bounds = Arc::new((LearnedBounds::new(1, 1), Mutex::new(())));
                let writers: Vec<_> = (1..=2_u64)
                    .map(|writer| {
                        let bounds = Arc::clone(&bounds);
                        shuttle::thread::spawn(move || {
                            let key = Fingerprint::from_bits(u128::from(writer) << 64);
                            for round in 0..3 {
                                let guard = crate::sync::lock(&bounds.1);
                                bounds.0.learn(
                                    0,
                                    key,
                                    0,
                                    LearnedBound(writer * 100 + round, writer * 200 + round),
                                );
                                drop(guard);
                            }
                        })
                    })
                    .collect();
                for _ in 0..4 {
                    let key = Fingerprint::from_bits(1 << 64);
                    if let Some(LearnedBound(first, second)) = bounds.0.find(0, key, 0) {
                        assert_eq!((first / 100, second / 200), (1, 1));
                        assert_eq!(first - 100, second - 200);
                    }
                }
                for writer in writers {
                    writer.join().expect("the writer ends");
                }
            },
            20_000,
        );
    }
}
