//! Cells that are read without a lock: the storage of deny caches.

use std::fmt;

use crate::{
    key::Fingerprint,
    sync::{AtomicU64, Ordering},
};

/// The cells of a deny cache. Each holds `WORDS` words about one key, or nothing, and is read without a lock.
///
/// A cell has one word more: the key's tag, mixed with the words. Words of two writes that a reader sees together do not mix
/// to the tag. So a torn read is a miss (but for one in 2^64), and readers never wait. The number of cells is fixed: two
/// share a cache line, and of three keys that fall on one line, the one that was inserted first is dropped.
///
/// A cell must have one writer at a time: callers of [`insert`](SeqLine::insert) and [`clear`](SeqLine::clear) hold a lock of the
/// shard.
///
/// ```
/// use tollgate_core::{store::{Fingerprint, SeqCells}};
///
/// let cells = SeqCells::new(1, 8);
/// let key = Fingerprint::from_bits(7 << 64);
/// let line = cells.line(0, key);
/// line.insert(key, 0, [10, 20, 30]);
/// assert_eq!(line.get(key, 0), Some([10, 20, 30]));
/// line.clear();
/// assert!(line.is_empty());
/// ```
///
/// Words that were inserted under one salt, such as the number of a quota, are not found under another:
///
/// ```
/// # use tollgate_core::{store::{Fingerprint, SeqCells}};
/// # let (cells, key) = (SeqCells::new(1, 8), Fingerprint::from_bits(7 << 64));
/// let line = cells.line(0, key);
/// line.insert(key, 1, [10, 20, 30]);
/// assert_eq!(line.get(key, 2), None);
/// ```
pub struct SeqCells<const WORDS: usize> {
    lines: Box<[SeqLine<WORDS>]>,
    /// Lines of a shard.
    per_shard: usize,
}

/// The cells on a cache line. The one that was filled last is the first, so that one look is enough for most.
#[repr(align(64))]
pub struct SeqLine<const WORDS: usize>([Cell<WORDS>; WAYS]);

/// Cells on a line.
const WAYS: usize = 2;

#[repr(align(32))]
struct Cell<const WORDS: usize> {
    words: [AtomicU64; WORDS],
    tag: AtomicU64,
}

impl<const WORDS: usize> SeqCells<WORDS> {
    /// `per_shard` cells for each of `shards`. Both are rounded up to powers of two, the first to two at least; a cell of
    /// two or three words has 32 bytes. One word does not compile: it would not show that it is whole.
    #[must_use]
    pub fn new(shards: usize, per_shard: usize) -> Self {
        const { assert!(WORDS >= 2) };
        let (shards, per_shard) = (shards.next_power_of_two(), per_shard.next_power_of_two());
        let per_shard = (per_shard / WAYS).max(1);
        Self {
            lines: (0..shards * per_shard).map(|_| SeqLine::empty()).collect(),
            per_shard,
        }
    }

    /// The memory of the cells, used or not.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }

    /// The line on which the cells of `key` are.
    ///
    /// # Panics
    ///
    /// There is no such shard.
    #[must_use]
    pub fn line(&self, shard: usize, key: Fingerprint) -> &SeqLine<WORDS> {
        let index = (key.bits() as u64 >> 24) as usize & (self.per_shard - 1);
        &self.lines[shard * self.per_shard + index]
    }
}

impl<const WORDS: usize> SeqLine<WORDS> {
    /// The words of `key` under this salt.
    #[inline(always)]
    pub fn get(&self, key: Fingerprint, salt: u64) -> Option<[u64; WORDS]> {
        self.0.iter().find_map(|cell| cell.read(key, salt))
    }

    /// Whether there is certainly no cell of any key.
    #[inline]
    pub fn is_empty(&self) -> bool {
        let [first, second] = &self.0;
        first.tag.load(Ordering::Relaxed) | second.tag.load(Ordering::Relaxed) == 0
    }

    /// Whether there may be a cell whose words satisfy `may_be`.
    pub fn any(&self, may_be: impl Fn(&[u64; WORDS]) -> bool) -> bool {
        let mut cells = self.0.iter();
        cells.any(|cell| !cell.is_empty() && may_be(&cell.words()))
    }

    /// Puts the words of `key` in. The caller holds the shard's lock.
    pub fn insert(&self, key: Fingerprint, salt: u64, words: [u64; WORDS]) {
        let [first, second] = &self.0;
        if first.is_empty() || first.read(key, salt).is_some() {
            first.write(mixed_tag(key, salt, words), words);
        } else if second.read(key, salt).is_some() {
            second.write(mixed_tag(key, salt, words), words);
        } else {
            second.write(first.tag.load(Ordering::Relaxed), first.words());
            first.write(mixed_tag(key, salt, words), words);
        }
    }

    /// Empties the line of a key whose state is about to change. The caller holds the shard's lock.
    ///
    /// The next request of each other key of the line looks at its state.
    #[inline]
    pub fn clear(&self) {
        if !self.is_empty() {
            self.remove_if(|_| true);
        }
    }

    /// Removes only cells whose words satisfy `may_be`.
    pub fn remove_if(&self, may_be: impl Fn(&[u64; WORDS]) -> bool) {
        for cell in &self.0 {
            if !cell.is_empty() && may_be(&cell.words()) {
                cell.tag.store(0, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn empty() -> Self {
        Self(std::array::from_fn(|_| Cell {
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            tag: AtomicU64::new(0),
        }))
    }
}

impl<const WORDS: usize> Cell<WORDS> {
    fn is_empty(&self) -> bool {
        self.tag.load(Ordering::Relaxed) == 0
    }

    fn words(&self) -> [u64; WORDS] {
        std::array::from_fn(|word| self.words[word].load(Ordering::Relaxed))
    }

    /// The words, if this is the cell of the key under the salt and no write is under way.
    fn read(&self, key: Fingerprint, salt: u64) -> Option<[u64; WORDS]> {
        let tag = self.tag.load(Ordering::Relaxed);
        if tag == 0 {
            return None;
        }
        let words = self.words();
        (tag == mixed_tag(key, salt, words)).then_some(words)
    }

    fn write(&self, tag: u64, words: [u64; WORDS]) {
        for (to, word) in self.words.iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
        self.tag.store(tag, Ordering::Relaxed);
    }
}

/// The tag of a key under a salt, mixed with the words; never 0, which is an empty cell.
fn mixed_tag<const WORDS: usize>(key: Fingerprint, salt: u64, words: [u64; WORDS]) -> u64 {
    let tag = (key.bits() >> 64) as u64 ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let fold = |one: u64, other: u64| {
        let product = u128::from(one) * u128::from(other);
        product as u64 ^ (product >> 64) as u64
    };
    let mut mixed = fold(
        words[0] ^ 0x2d35_8dcc_aa6c_78a5,
        words[1] ^ 0x8bb8_4b93_962e_acc9,
    );
    for word in &words[2..] {
        mixed = fold(mixed ^ 0x4b33_a62e_d433_d4a3, word ^ 0xd6e8_feb8_6659_fd93);
    }
    (tag ^ mixed) | 1
}

/// Without the keys.
impl<const WORDS: usize> fmt::Debug for SeqCells<WORDS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SeqCells")
            .field("cells", &(WAYS * self.lines.len()))
            .finish_non_exhaustive()
    }
}

/// Without the keys.
impl<const WORDS: usize> fmt::Debug for SeqLine<WORDS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SeqLine(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(bits: u128) -> Fingerprint {
        Fingerprint::from_bits(bits)
    }

    #[test]
    fn words_are_found_under_their_key_and_salt_only() {
        let cells = SeqCells::new(1, 8);
        let line = cells.line(0, key(0));
        line.insert(key(7 << 64), 1, [10, 20]);
        assert_eq!(line.get(key(7 << 64), 1), Some([10, 20]));
        assert_eq!(line.get(key(7 << 64), 2), None);
        assert_eq!(line.get(key(8 << 64), 1), None);
        line.clear();
        assert_eq!(line.get(key(7 << 64), 1), None);
    }

    #[test]
    fn of_three_keys_on_one_cache_line_the_one_that_was_inserted_first_is_dropped() {
        let cells = SeqCells::new(1, 2);
        let line = cells.line(0, key(0));
        for bits in [2, 4, 2, 6] {
            line.insert(key(bits << 64), 1, [bits as u64, 20]);
        }
        assert_eq!(line.get(key(2 << 64), 1), None);
        assert_eq!(line.get(key(4 << 64), 1), Some([4, 20]));
        assert_eq!(line.get(key(6 << 64), 1), Some([6, 20]));
    }

    #[test]
    fn each_word_is_part_of_the_tag() {
        let words = [0b101, 0b110, 0b11];
        let tag = mixed_tag(key(7), 0, words);
        for word in 0..3 {
            for bit in 0..64 {
                let mut other = words;
                other[word] ^= 1 << bit;
                assert_ne!(mixed_tag(key(7), 0, other), tag, "word {word}, bit {bit}");
            }
        }
    }
}
