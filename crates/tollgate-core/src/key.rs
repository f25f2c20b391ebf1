//! Keys: whom a request counts against, and the fingerprint that stands for it.

use std::{
    fmt,
    hash::{Hash, Hasher},
};

/// What kind of thing a part of a key is.
///
/// The kind is hashed with the part, so that an API key that is spelled like an address is not that address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartKind(u8);

impl PartKind {
    /// The bucket of all requests that have no key.
    pub const SHARED: Self = Self(0);
    /// A constant.
    pub const CONSTANT: Self = Self(1);
    /// Text or bytes from code: a closure, [`Key::of`].
    pub const VALUE: Self = Self(2);
    /// The value of a header.
    pub const HEADER: Self = Self(3);
    /// A network address with its prefix length.
    pub const ADDRESS: Self = Self(4);
    /// A value that a middleware in front has put into the extensions.
    pub const EXTENSION: Self = Self(5);
    /// The request's method.
    pub const METHOD: Self = Self(6);
    /// The route's pattern.
    pub const ROUTE: Self = Self(7);
    /// A parameter of the path.
    pub const PATH_PARAMETER: Self = Self(8);
    /// A parameter of the query.
    pub const QUERY_PARAMETER: Self = Self(9);
    /// The value of a cookie.
    pub const COOKIE: Self = Self(10);
    /// A look-up's answer.
    pub const LOOK_UP: Self = Self(11);
    /// The path of the request.
    pub const PATH: Self = Self(12);
    /// The gRPC service that is called.
    pub const GRPC_SERVICE: Self = Self(14);
    /// The gRPC method that is called, with its service.
    pub const GRPC_METHOD: Self = Self(15);
    /// An entry of a gRPC call's metadata.
    pub const METADATA: Self = Self(16);

    /// Its number, for stores that name it.
    #[doc(hidden)]
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// A kind of your own. `id` is any number of yours; it never meets a kind of this crate.
    ///
    /// # Panics
    ///
    /// At compile time or run time if `id` is above 127.
    #[must_use]
    pub const fn custom(id: u8) -> Self {
        assert!(id < 128, "the id of a custom kind is at most 127");
        Self(128 + id)
    }
}

/// The parts of a key while an extractor collects them: length-prefixed, on the stack up to 96 bytes.
///
/// Each part is written with its kind and its length, so that no two sequences of parts meet by spelling: `("a_b", "c")`
/// and `("a", "b_c")` are two keys.
#[derive(Clone)]
pub struct KeyBuf {
    /// The parts while they fit. An array of our own: with `SmallVec` an acquire that makes its key takes 17 % more
    /// instructions, because each part is copied by a call.
    inline: [u8; INLINE],
    /// The number of bytes of all parts.
    len: usize,
    /// All parts where they do not fit.
    spilled: Vec<u8>,
}

const INLINE: usize = 6 * WORD;
const WORD: usize = 16;
/// A length that does not fit in a byte is written as this byte and eight more.
const LONG: u8 = 0xff;

impl KeyBuf {
    /// An empty key.
    #[inline]
    #[must_use]
    pub const fn new() -> Self {
        Self {
            inline: [0; INLINE],
            len: 0,
            spilled: Vec::new(),
        }
    }

    /// Adds a part.
    #[inline(always)]
    pub fn push(&mut self, kind: PartKind, part: impl AsRef<[u8]>) {
        let part = part.as_ref();
        if self.len == 0 && part.len() <= INLINE - 2 {
            return self.begin(kind, part);
        }
        let end = self.len + 2 + part.len();
        match self.inline.get_mut(self.len..end) {
            Some([kind_of, len, to @ ..]) => {
                *kind_of = kind.0;
                // Below 96, so that the length fits in a byte.
                *len = part.len() as u8;
                copy_short(to, part);
                self.end_at(end);
            }
            _ => self.push_spilled(kind, part),
        }
    }

    /// The first part, which most keys have alone, written in whole [words](Self::words): a word that is read shortly after it was
    /// written in pieces is waited for, longer than a check computes.
    #[inline]
    fn begin(&mut self, kind: PartKind, part: &[u8]) {
        self.len = 2 + part.len();
        let first = part
            .first_chunk()
            .map_or_else(|| short_word(part), |it| u128::from_le_bytes(*it));
        let head = u128::from(kind.0) | (part.len() as u128) << 8;
        let mut word = head | first << 16;
        let mut at = WORD - 2;
        for to in self.inline.as_chunks_mut().0 {
            *to = word.to_le_bytes();
            let Some(rest) = part.get(at..).filter(|rest| !rest.is_empty()) else {
                return;
            };
            word = match (rest.first_chunk(), part.last_chunk::<WORD>()) {
                (Some(whole), _) => u128::from_le_bytes(*whole),
                (None, Some(last)) => u128::from_le_bytes(*last) >> (8 * (WORD - rest.len())),
                (None, None) => short_word(rest),
            };
            at += WORD;
        }
    }

    #[cold]
    fn push_spilled(&mut self, kind: PartKind, part: &[u8]) {
        let bytes = self.spill();
        bytes.push(kind.0);
        match u8::try_from(part.len()) {
            Ok(len) if len < LONG => bytes.push(len),
            _ => {
                bytes.push(LONG);
                bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            }
        }
        bytes.extend_from_slice(part);
        self.len = bytes.len();
    }

    /// The parts on the heap.
    fn spill(&mut self) -> &mut Vec<u8> {
        if let Some(parts) = self.inline.get(..self.len) {
            self.spilled.clear();
            self.spilled.extend_from_slice(parts);
        }
        &mut self.spilled
    }

    /// Adds the parts of another key.
    pub fn append(&mut self, other: &Self) {
        let end = self.len + other.len();
        if end <= INLINE {
            self.inline[self.len..end].copy_from_slice(other.as_bytes());
        } else {
            self.spill().extend_from_slice(other.as_bytes());
        }
        self.end_at(end);
    }

    /// Forgets all parts from the one on that began when the key had `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        if len >= self.len {
            return;
        }
        if self.len > INLINE {
            self.spilled.truncate(len);
            if let Some(parts) = self.inline.get_mut(..len) {
                parts.copy_from_slice(&self.spilled);
            }
        }
        self.end_at(len);
    }

    /// The parts with their kinds, in order: for those who show keys to people.
    pub fn parts(&self) -> impl Iterator<Item = (PartKind, &[u8])> {
        let mut rest = self.as_bytes();
        std::iter::from_fn(move || {
            let (kind, after) = rest.split_first()?;
            let (len, after) = match after.split_first()? {
                (&LONG, after) => {
                    let (len, after) = after.split_first_chunk()?;
                    (usize::try_from(u64::from_le_bytes(*len)).ok()?, after)
                }
                (len, after) => (usize::from(*len), after),
            };
            let (part, after) = after.split_at_checked(len)?;
            rest = after;
            Some((PartKind(*kind), part))
        })
    }

    /// The number of bytes collected.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no part was added yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets all parts.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// The encoded parts in words of 16 bytes, the last one with zeros behind.
    #[inline]
    pub(crate) fn words(&self, mut each: impl FnMut(u128)) {
        let on_stack = self.inline.as_chunks().0;
        if let Some(words) = on_stack.get(..self.len.div_ceil(WORD)) {
            return words
                .iter()
                .for_each(|word| each(u128::from_le_bytes(*word)));
        }
        let (words, rest) = self.spilled.as_chunks();
        words
            .iter()
            .for_each(|word| each(u128::from_le_bytes(*word)));
        if !rest.is_empty() {
            each(short_word(rest));
        }
    }

    /// The key on the stack has this many bytes, with zeros behind up to the end of a word.
    #[inline]
    fn end_at(&mut self, len: usize) {
        self.len = len;
        match self
            .inline
            .get_mut(len..)
            .and_then(|behind| behind.first_chunk_mut::<WORD>())
        {
            Some(behind) => *behind = [0; WORD],
            None => self.inline.iter_mut().skip(len).for_each(|byte| *byte = 0),
        }
    }

    /// The encoded parts.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.inline.get(..self.len).unwrap_or(&self.spilled)
    }
}

/// A word of fewer than 16 bytes, with zeros behind.
#[inline]
fn short_word(bytes: &[u8]) -> u128 {
    let ends = (bytes.first_chunk(), bytes.last_chunk());
    if let (Some(first), Some(last)) = ends {
        let (first, last) = (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
        return u128::from(first) | u128::from(last) << (8 * (bytes.len() - 8));
    }
    let little = bytes.iter().rev();
    little.fold(0, |word, byte| word << 8 | u128::from(*byte))
}

/// Copies between slices of one length. Most parts have 4 to 32 bytes (addresses, names, tokens), and are copied as two
/// blocks that may overlap, which is several times as fast as a call.
#[inline(always)]
fn copy_short(to: &mut [u8], from: &[u8]) {
    match from.len() {
        4..=7 => copy_ends::<4>(to, from),
        8..=16 => copy_ends::<8>(to, from),
        17..=32 => copy_ends::<16>(to, from),
        _ => to.copy_from_slice(from),
    }
}

/// Copies the first and the last `N` bytes, which are all bytes of slices of `N` to `2 · N`.
fn copy_ends<const N: usize>(to: &mut [u8], from: &[u8]) {
    let (mut first, mut last) = ([0; N], [0; N]);
    let end = from.len() - N;
    first.copy_from_slice(&from[..N]);
    last.copy_from_slice(&from[end..]);
    to[..N].copy_from_slice(&first);
    to[end..].copy_from_slice(&last);
}

impl Default for KeyBuf {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for KeyBuf {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for KeyBuf {}

impl Hash for KeyBuf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

// Shows the length only: a key may be a client's address or secret.
crate::debug_fields!(KeyBuf, it => len: it.len);

/// A key made from code: what a worker or a handler hands to a limiter.
///
/// ```
/// use tollgate_core::Key;
///
/// let account = Key::of("account-7");
/// let device = Key::of(("account-7", 42));
/// assert_ne!(account, device);
/// // Parts stay apart, however they are spelled.
/// assert_ne!(Key::of(["a_b", "c"]), Key::of(["a", "b_c"]));
/// // Of any number of parts:
/// let path: Key = "a/b/c".split('/').collect();
/// assert_eq!(path, Key::of(["a", "b", "c"]));
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key(KeyBuf);

impl Key {
    /// The single key of a rule that counts all clients together; also the bucket of requests without a key.
    pub fn shared() -> Self {
        let mut key = KeyBuf::new();
        key.push(PartKind::SHARED, []);
        Self(key)
    }
}

impl From<KeyBuf> for Key {
    fn from(key: KeyBuf) -> Self {
        Self(key)
    }
}

impl From<Key> for KeyBuf {
    fn from(key: Key) -> Self {
        key.0
    }
}

impl AsRef<KeyBuf> for Key {
    fn as_ref(&self) -> &KeyBuf {
        &self.0
    }
}

/// What stands for a key in a store: 128 bits, made by the store with a secret of its own.
///
/// It is the identity of a state: two keys with one fingerprint would share a budget. By chance that does not happen (with
/// the 111 bits that the memory store compares, one in 10^21 for a million keys), and who does not know the secret has
/// nothing to look for it with.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(u128);

impl Fingerprint {
    /// A fingerprint with these bits.
    #[inline]
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// The bits.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u128 {
        self.0
    }
}

// Shows nothing: a fingerprint ties log lines to a person.
crate::debug_fields!(Fingerprint);

// The first letters of a key's fingerprint.

/// The first eight letters of a key's fingerprint, for logs, top keys and support: they tell two clients apart, and not who they
/// are. A fingerprint is hashed with a secret of the store. On Redis all processes that have the same secret show the same letters
/// for a key. The name of the key's state in Redis has other letters, because the fingerprint is hashed once more there.
///
/// ```
/// use tollgate_core::{Key, Limiter, MINUTE, MemoryStore, Quota, Rule};
///
/// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("api", Quota::gcra(60, MINUTE))])?;
/// let check = limiter.check("api", &Key::of("account-7"))?;
/// assert_eq!(check.key().prefix().to_string().len(), 8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyPrefix(u64);

/// Six bits each.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const LENGTH: u32 = 8;
/// The first of 22 letters stands for two bits, the others for six.
const BITS: u32 = 2 + 6 * (LENGTH - 1);

impl KeyPrefix {
    /// The prefix of the highest 64 bits of a fingerprint.
    pub(crate) const fn of_high_bits(high: u64) -> Self {
        Self(high >> (64 - BITS))
    }
}

impl Fingerprint {
    /// Its first letters.
    #[must_use]
    pub const fn prefix(self) -> KeyPrefix {
        KeyPrefix::of_high_bits((self.bits() >> 64) as u64)
    }
}

impl fmt::Display for KeyPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |place: u32| LETTERS[(self.0 >> (6 * place)) as usize & 63] as char;
        let text: String = (0..LENGTH).rev().map(letter).collect();
        f.pad(&text)
    }
}

crate::debug_fields!(KeyPrefix as Display);

#[cfg(feature = "serde")]
impl serde::Serialize for KeyPrefix {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_the_same_on_the_stack_and_on_the_heap() {
        // Parts of all lengths around the borders, in one buffer and appended from two.
        for first in [
            0, 1, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 62, 90, 92, 93, 94, 95, 96, 254, 255, 256,
            70_000,
        ] {
            for second in [0, 1, 7, 8, 13, 16, 17, 30, 32, 60, 62, 94, 254, 255] {
                let bytes = |len: usize| (0..len).map(|n| n as u8).collect::<Vec<_>>();
                let (first, second) = (bytes(first), bytes(second));

                let whole = Key::of([&first, &second]).0;
                assert!(whole.as_bytes().ends_with(&second));
                let mut appended = Key::of([&first]).0;
                let before = appended.clone();
                appended.append(&Key::of([&second]).0);
                assert_eq!(whole, appended);
                appended.truncate(before.len());
                assert_eq!(before, appended);
            }
        }
    }

    #[test]
    fn words_are_those_of_the_bytes_whatever_was_there_before() {
        let words = |key: &KeyBuf| {
            let mut words = Vec::new();
            key.words(|word| words.push(word.to_le_bytes()));
            words
        };
        let mut key = KeyBuf::new();
        for len in (0..100).chain((0..100).rev()) {
            for second in [None, Some(0), Some(3), Some(60)] {
                key.clear();
                let bytes: Vec<u8> = (1..=255).cycle().skip(len).take(len).collect();
                key.push(PartKind::HEADER, &bytes);
                let before = key.len();
                if let Some(second) = second {
                    let mut more = KeyBuf::new();
                    more.push(PartKind::VALUE, vec![0xff; second]);
                    match len % 2 {
                        0 => key.append(&more),
                        _ => key.push(PartKind::VALUE, vec![0xff; second]),
                    }
                }
                for _ in 0..2 {
                    let mut expected = key.as_bytes().to_vec();
                    expected.resize(key.len().next_multiple_of(WORD), 0);
                    assert_eq!(words(&key).concat(), expected, "{len} {second:?}");
                    key.truncate(before);
                }
            }
        }
    }

    #[test]
    fn a_key_is_made_of_its_parts_again() {
        for len in [0, 1, 90, 254, 255, 256, 70_000] {
            let part = vec![LONG; len];
            let mut key = KeyBuf::new();
            key.push(PartKind::HEADER, "a");
            key.push(PartKind::custom(3), &part);
            key.push(PartKind::SHARED, []);
            let parts: Vec<_> = key.parts().collect();
            let expected: [(PartKind, &[u8]); 3] = [
                (PartKind::HEADER, b"a"),
                (PartKind::custom(3), &part),
                (PartKind::SHARED, b""),
            ];
            assert_eq!(parts, expected);
        }
    }

    #[test]
    fn nothing_of_a_key_is_printed() {
        let key = Key::of("secret-token");
        let both = format!("{key:?} {:?}", key.0);
        assert!(!both.contains("secret"), "{both}");
        assert_eq!(
            format!("{:?}", Fingerprint::from_bits(7)),
            "Fingerprint { .. }"
        );
    }

    #[test]
    fn it_is_the_beginning_of_the_fingerprint_in_base_64() {
        let all = |key: u128| -> String {
            let places = (0..22).rev();
            places
                .map(|place| LETTERS[(key >> (6 * place)) as usize & 63] as char)
                .collect()
        };
        for key in [0, u128::MAX, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef] {
            let prefix = Fingerprint::from_bits(key).prefix();
            assert_eq!(prefix.to_string(), all(key)[..8]);
        }
    }
}
