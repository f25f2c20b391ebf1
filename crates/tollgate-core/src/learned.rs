//! Denials from loads: what a denial has taught, in front of locks and of stores.

use std::fmt;

use crate::{
    key::Fingerprint,
    sync::{AtomicU64, Ordering},
};

/// Cells that each hold what was learned of one key, three words, or nothing.
///
/// A cell is four words, written without a lock on the reader's side: three of what was learned, and a fourth that is the
/// key's tag mixed with them. Words of two writes that met in a reader do not mix to the tag, so a torn read is a miss
/// (but for one in 2^64), and readers never wait. Their number is fixed, and a newer key takes the place of an older one.
///
/// Each cell must have one writer at a time: whoever calls [`learn`](Self::learn) or [`forget`](Self::forget) holds a lock
/// that belongs to the shard.
///
/// ```
/// use tollgate_core::{Fingerprint, LearnedCells};
///
/// let cells = LearnedCells::new(1, 8);
/// let key = Fingerprint::from_bits(7 << 64);
/// cells.learn(0, key, 0, [10, 20, 30]);
/// assert_eq!(cells.find(0, key, 0), Some([10, 20, 30]));
/// cells.forget(0, key);
/// assert_eq!(cells.find(0, key, 0), None);
/// ```
///
/// What was learned under one salt, such as the number of a quota, is not found under another:
///
/// ```
/// # use tollgate_core::{Fingerprint, LearnedCells};
/// # let (cells, key) = (LearnedCells::new(1, 8), Fingerprint::from_bits(7 << 64));
/// cells.learn(0, key, 1, [10, 20, 30]);
/// assert_eq!(cells.find(0, key, 2), None);
/// ```
pub struct LearnedCells {
    cells: Box<[Cell]>,
    per_shard: usize,
}

#[repr(align(32))]
struct Cell {
    words: [AtomicU64; 3],
    tag: AtomicU64,
}

impl LearnedCells {
    /// `per_shard` cells for each of `shards`. Both are rounded up to powers of two; a cell has 32 bytes.
    #[must_use]
    pub fn new(shards: usize, per_shard: usize) -> Self {
        let (shards, per_shard) = (shards.next_power_of_two(), per_shard.next_power_of_two());
        let empty = || Cell {
            words: [const { 0 }; 3].map(AtomicU64::new),
            tag: AtomicU64::new(0),
        };
        Self {
            cells: (0..shards * per_shard).map(|_| empty()).collect(),
            per_shard,
        }
    }

    #[inline(always)]
    fn cell(&self, shard: usize, key: Fingerprint) -> Option<&Cell> {
        let place = (key.bits() >> 24) as usize & (self.per_shard - 1);
        self.cells.get(shard * self.per_shard + place)
    }

    /// What was learned of `key` under this salt.
    #[inline(always)]
    #[must_use]
    pub fn find(&self, shard: usize, key: Fingerprint, salt: u64) -> Option<[u64; 3]> {
        let cell = self.cell(shard, key)?;
        let tag = cell.tag.load(Ordering::Relaxed);
        if tag == 0 {
            return None;
        }
        let [first, second, third] = &cell.words;
        let words = [first, second, third].map(|word| word.load(Ordering::Relaxed));
        (tag == mixed_tag(key, salt, words)).then_some(words)
    }

    /// Learns. The shard's lock is held.
    pub fn learn(&self, shard: usize, key: Fingerprint, salt: u64, words: [u64; 3]) {
        if let Some(cell) = self.cell(shard, key) {
            for (to, word) in cell.words.iter().zip(words) {
                to.store(word, Ordering::Relaxed);
            }
            cell.tag
                .store(mixed_tag(key, salt, words), Ordering::Relaxed);
        }
    }

    /// Forgets what was learned of `key`: its state is about to change. The shard's lock is held.
    ///
    /// A cell that holds another key may be emptied as well, which costs that key one look at its state.
    #[inline(always)]
    pub fn forget(&self, shard: usize, key: Fingerprint) {
        if let Some(cell) = self.cell(shard, key)
            && cell.tag.load(Ordering::Relaxed) != 0
        {
            cell.tag.store(0, Ordering::Relaxed);
        }
    }
}

/// The tag of a key under a salt, mixed with what was learned; never 0, which is an empty cell.
#[inline]
fn mixed_tag(key: Fingerprint, salt: u64, [first, second, third]: [u64; 3]) -> u64 {
    let tag = (key.bits() >> 64) as u64 ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let fold = |one: u64, other: u64| {
        let product = u128::from(one) * u128::from(other);
        product as u64 ^ (product >> 64) as u64
    };
    let mixed = fold(
        first ^ 0x2d35_8dcc_aa6c_78a5,
        second ^ 0x8bb8_4b93_962e_acc9,
    );
    (tag ^ fold(mixed ^ 0x4b33_a62e_d433_d4a3, third ^ 0xd6e8_feb8_6659_fd93)) | 1
}

/// Without the keys.
impl fmt::Debug for LearnedCells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LearnedCells")
            .field("cells", &self.cells.len())
            .finish_non_exhaustive()
    }
}
