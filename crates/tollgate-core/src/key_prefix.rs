//! The first letters of a key's fingerprint.

use std::fmt;

use crate::key::Fingerprint;

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

#[cfg(all(test, not(tollgate_shuttle)))]
mod tests {
    use super::*;

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
