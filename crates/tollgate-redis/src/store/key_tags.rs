//! How instances of a namespace write the keys of clients: two that write them otherwise never meet on a state, and a client
//! has a budget with each.

use std::collections::BTreeSet;

use crate::keys::{keys::Keys, keyspace::Partition};

/// How one instance writes keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KeyTags {
    partition: String,
    /// A tag of the secret that states are written by.
    written: String,
    /// Tags of all secrets that states are found by.
    known: BTreeSet<String>,
}

impl KeyTags {
    pub(super) fn of(keys: &Keys, partition: &Partition) -> Self {
        let tags = keys.tags();
        Self {
            partition: partition.to_string(),
            written: tags.first().cloned().unwrap_or_default(),
            known: tags.into_iter().collect(),
        }
    }

    /// In words: the partition, the tag of the secret that states are written by, and the others.
    pub(super) fn in_words(&self) -> String {
        let others = self.known.iter().filter(|tag| **tag != self.written);
        let words = [&self.partition, &self.written].into_iter().chain(others);
        words.map(String::as_str).collect::<Vec<_>>().join(" ")
    }

    /// Reads what an instance has said. What cannot be read was written by a version that says more.
    pub(super) fn read(words: &str) -> Option<Self> {
        let (partition, tags) = words.split_once(' ')?;
        let written = tags.split(' ').next()?;
        Some(Self {
            partition: partition.to_owned(),
            written: written.to_owned(),
            known: tags.split(' ').map(str::to_owned).collect(),
        })
    }

    /// Whether each of the two finds what the other writes. So do those of one step and the next, while a secret changes.
    pub(super) fn meets(&self, other: &Self) -> bool {
        self.partition == other.partition
            && self.known.contains(&other.written)
            && other.known.contains(&self.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::secret::Secret;

    fn secret(byte: u8) -> Secret {
        Secret::from_bytes([byte; 32]).expect("32 bytes")
    }

    fn tags(keys: &Keys) -> KeyTags {
        KeyTags::of(keys, &Partition::One)
    }

    #[test]
    fn the_steps_of_a_change_meet_the_next_one_and_no_other() {
        let (old, new) = (|| secret(7), || secret(8));
        let steps = [
            Keys::hashed(old()),
            Keys::hashed(old()).next(new()).expect("another"),
            Keys::hashed(new()).previous(old()).expect("another"),
            Keys::hashed(new()),
        ];
        for (place, step) in steps.iter().enumerate() {
            for (other, second) in steps.iter().enumerate() {
                let meets = tags(step).meets(&tags(second));
                assert_eq!(meets, place.abs_diff(other) < 2, "{place} and {other}");
            }
        }
    }

    #[test]
    fn other_secrets_other_partitions_and_plain_keys_do_not_meet() {
        let hashed = Keys::hashed(secret(7));
        assert!(tags(&hashed).meets(&tags(&Keys::hashed(secret(7)))));
        for other in [Keys::hashed(secret(8)), Keys::plain()] {
            assert!(!tags(&hashed).meets(&tags(&other)));
        }
        for partition in [Partition::Key, Partition::ByRule("api".into())] {
            assert!(!tags(&hashed).meets(&KeyTags::of(&hashed, &partition)));
        }
    }

    #[test]
    fn what_is_said_is_read_as_it_was_said_and_shows_no_secret() {
        let keys = Keys::hashed(secret(7)).next(secret(8)).expect("another");
        for partition in [Partition::One, Partition::ByRule("per-tenant".into())] {
            let tags = KeyTags::of(&keys, &partition);
            assert_eq!(KeyTags::read(&tags.in_words()), Some(tags.clone()));
            assert!(tags.in_words().len() < 80, "{}", tags.in_words());
        }
        assert_eq!(KeyTags::read("one"), None);
    }
}
