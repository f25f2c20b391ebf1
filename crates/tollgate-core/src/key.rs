//! Keys: whom a request counts against, and the fingerprint that stands for it.

use std::fmt;

use smallvec::SmallVec;

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

/// The parts of a key while an extractor collects them: length-prefixed, on the stack up to 64 bytes.
///
/// Each part is written with its kind and its length, so that no two sequences of parts meet by spelling: `("a_b", "c")`
/// and `("a", "b_c")` are two keys.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KeyBuf(SmallVec<[u8; 64]>);

impl KeyBuf {
    /// An empty key.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a part.
    #[inline]
    pub fn push(&mut self, kind: PartKind, part: impl AsRef<[u8]>) {
        let part = part.as_ref();
        let mut head = [0; 9];
        head[0] = kind.0;
        head[1..].copy_from_slice(&(part.len() as u64).to_le_bytes());
        self.0.extend_from_slice(&head);
        self.0.extend_from_slice(part);
    }

    /// Adds the parts of another key.
    pub fn append(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
    }

    /// Forgets all parts from the one on that began when the key had `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    /// The number of bytes collected.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no part was added yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets all parts.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The encoded parts.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Shows the length only: a key is somebody's address or secret.
impl fmt::Debug for KeyBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyBuf({} bytes)", self.0.len())
    }
}

/// A key made from code: what a worker or a handler hands to a limiter.
///
/// ```
/// use tollgate_core::Key;
///
/// assert_ne!(Key::of(["a_b", "c"]), Key::of(["a", "b_c"]));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key(KeyBuf);

impl Key {
    /// A key of these parts, in this order.
    pub fn of<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> Self {
        let mut key = KeyBuf::new();
        for part in parts {
            key.push(PartKind::VALUE, part);
        }
        Self(key)
    }

    /// The one key of a rule that counts everybody together; also the bucket of requests without a key.
    #[must_use]
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

impl AsRef<KeyBuf> for Key {
    fn as_ref(&self) -> &KeyBuf {
        &self.0
    }
}

impl AsRef<Self> for KeyBuf {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// What stands for a key in a store: 128 bits, made by the store with a secret of its own.
///
/// It is the identity of a state: two keys with one fingerprint would share a budget. With 128 bits and a secret that
/// does not happen by chance (one in 10^26 for a million keys) and cannot be brought about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(u128);

impl Fingerprint {
    /// A fingerprint with these bits.
    #[inline]
    #[must_use]
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

/// Shows nothing: a fingerprint ties log lines to a person.
impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fingerprint(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_meet_by_spelling() {
        let keys = [
            Key::of(["a_b", "c"]),
            Key::of(["a", "b_c"]),
            Key::of(["a", "b", "c"]),
            Key::of(["abc"]),
            Key::of(["abc", ""]),
            Key::of(["", "abc"]),
        ];
        for (i, a) in keys.iter().enumerate() {
            for b in &keys[i + 1..] {
                assert_ne!(a, b);
            }
        }
    }

    #[test]
    fn a_part_of_another_kind_is_another_key() {
        let mut header = KeyBuf::new();
        header.push(PartKind::HEADER, "192.0.2.1");
        let mut value = KeyBuf::new();
        value.push(PartKind::VALUE, "192.0.2.1");
        assert_ne!(header, value);
    }

    #[test]
    fn nothing_of_a_key_is_printed() {
        let key = Key::of(["secret-token"]);
        assert!(!format!("{key:?}").contains("secret"));
        assert_eq!(
            format!("{:?}", Fingerprint::from_bits(7)),
            "Fingerprint(..)"
        );
    }
}
