//! Keys: under which name a state lies in Redis.
//!
//! `prefix:{tag}:rule:a`, where the tag decides about the slot in a cluster, the last letter is that of the algorithm, and
//! the fingerprint, 22 letters and digits, is the tag or follows it. What clients send is in none of it but hashed, so
//! that no key has more than some 120 bytes, and no brace of a client decides about a slot.
//!
//! An algorithm has states of its own, as in memory: a rule that takes another one begins anew, and two versions of a
//! service do not write over each other while one replaces the other.
//!
//! ```
//! use tollgate_core::Fingerprint;
//! use tollgate_redis::keyspace::{Keyspace, Partition};
//!
//! let mut key = Vec::new();
//! Keyspace::new("tg", Partition::Key)?.write(&mut key, "api", b'a', Fingerprint::from_bits(7));
//! assert_eq!(key, b"tg:{AAAAAAAAAAAAAAAAAAAAAH}:api:a");
//! # Ok::<(), tollgate_core::RuleError>(())
//! ```
//!
//! All in one slot, so that rules with different keys are decided in one step in a cluster too:
//!
//! ```
//! use tollgate_core::Fingerprint;
//! use tollgate_redis::keyspace::{Keyspace, Partition};
//!
//! let mut key = Vec::new();
//! Keyspace::new("tg", Partition::One)?.write(&mut key, "api", b'a', Fingerprint::from_bits(7));
//! assert_eq!(key, b"{tg}:AAAAAAAAAAAAAAAAAAAAAH:api:a");
//! # Ok::<(), tollgate_core::RuleError>(())
//! ```

use tollgate_core::{Fingerprint, RuleError, RuleErrorKind};

/// What goes into one slot of a cluster. Without a cluster it does not matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Partition {
    /// All states of one client: requests whose rules have one key are decided in one step.
    #[default]
    Key,
    /// All states under the prefix.
    One,
}

/// The names of the states of a store.
#[derive(Clone, Debug)]
pub struct Keyspace {
    prefix: String,
    partition: Partition,
}

impl Keyspace {
    /// The names that begin with `prefix`: 1 to 32 letters, digits and `_ . : / -`.
    ///
    /// # Errors
    ///
    /// A prefix of other characters or another length. A brace would decide about the slot.
    pub fn new(prefix: impl Into<String>, partition: Partition) -> Result<Self, RuleError> {
        let prefix = prefix.into();
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:/-".contains(&byte);
        if !(1..=32).contains(&prefix.len()) || !prefix.bytes().all(fits) {
            return Err(RuleError::general(
                RuleErrorKind::Store,
                format!(
                    "{prefix:?} cannot begin the names of states; \
                     take 1 to 32 letters, digits and _ . : / -"
                ),
            ));
        }
        Ok(Self { prefix, partition })
    }

    /// The name of the set of instances. No state has it: those end in the letter of an algorithm.
    #[must_use]
    pub fn instances(&self) -> String {
        format!("{}:instances", self.prefix)
    }

    /// Writes the name of a state.
    pub fn write(&self, out: &mut Vec<u8>, rule: &str, family: u8, key: Fingerprint) {
        let (open, close) = match self.partition {
            Partition::Key => (&b":{"[..], &b"}:"[..]),
            Partition::One => (&b"}:"[..], &b":"[..]),
        };
        if self.partition == Partition::One {
            out.push(b'{');
        }
        out.extend_from_slice(self.prefix.as_bytes());
        out.extend_from_slice(open);
        out.extend(letters(key));
        out.extend_from_slice(close);
        out.extend_from_slice(rule.as_bytes());
        out.extend_from_slice(&[b':', family]);
    }
}

/// A fingerprint in base 64 with the letters that are safe in URLs, the highest bits first: 22 of them.
fn letters(key: Fingerprint) -> impl Iterator<Item = u8> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    (0..22)
        .rev()
        .map(move |place| LETTERS[(key.bits() >> (6 * place)) as usize & 63])
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_prefix_with_a_brace_is_refused() {
        for prefix in ["", "{tg}", "a b", &"x".repeat(33)] {
            let error = Keyspace::new(prefix, Partition::One).expect_err("it is no prefix");
            assert!(error.to_string().contains("letters, digits"), "{error}");
        }
    }

    #[test]
    fn each_bit_of_a_fingerprint_is_in_the_name() {
        let names: HashSet<Vec<u8>> = (0..128)
            .map(|bit| letters(Fingerprint::from_bits(1 << bit)).collect())
            .collect();
        assert_eq!(names.len(), 128);
    }
}
