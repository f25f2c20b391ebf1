//! A rule for a part of the clients.

use tollgate::key::KeyBuf;

/// Which keys a rule is enforced for: a part of them, the same in all processes and versions. A key that is in at 5 % is still
/// in at 20 %.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rollout {
    /// A hash of the rule's name, so that rules differ in their keys.
    seed: u64,
    /// Hashes below this are in.
    end: u64,
}

impl Rollout {
    pub(crate) fn new(rule: &str, permille: u64) -> Self {
        let parts = u128::from(permille.min(1_000)) << 64;
        Self {
            seed: hash(0xcbf2_9ce4_8422_2325, rule.as_bytes()),
            // All of them at 1000, but for one hash in 2^64.
            end: u64::try_from(parts / 1_000).unwrap_or(u64::MAX),
        }
    }

    pub(crate) fn has(&self, key: &KeyBuf) -> bool {
        let mut state = self.seed;
        for (_, part) in key.parts() {
            state = hash(state, &(part.len() as u64).to_le_bytes());
            state = hash(state, part);
        }
        mixed(state) < self.end
    }
}

/// FNV-1a. It is part of the format: another hash would put other clients in.
fn hash(seed: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(seed, |state, byte| {
        (state ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Spreads a hash over all of its bits.
fn mixed(mut n: u64) -> u64 {
    n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

#[cfg(test)]
mod tests {
    use tollgate::Key;

    use super::*;

    fn key(n: u64) -> Key {
        Key::of(format!("customer-{n}"))
    }

    #[test]
    fn of_many_keys_as_many_are_in_as_was_said_and_stay_in() {
        let at = |permille| Rollout::new("search", permille);
        for (permille, least, most) in [
            (0, 0, 0),
            (50, 4_500, 5_500),
            (200, 19_500, 20_500),
            (1_000, 100_000, 100_000),
        ] {
            let rollout = at(permille);
            let inside = (0..100_000)
                .filter(|n| rollout.has(key(*n).as_ref()))
                .count();
            assert!((least..=most).contains(&inside), "{permille}: {inside}");
        }
        let (few, more) = (at(50), at(200));
        for n in 0..100_000 {
            assert!(
                !few.has(key(n).as_ref()) || more.has(key(n).as_ref()),
                "{n}"
            );
        }
    }

    #[test]
    fn the_same_clients_are_in_in_every_process_and_version() {
        let rollout = Rollout::new("search", 100);
        let inside: Vec<u64> = (0..60).filter(|n| rollout.has(key(*n).as_ref())).collect();
        assert_eq!(
            inside,
            [23, 30, 44, 55, 57],
            "the clients that are in at 10 %"
        );
    }

    #[test]
    fn rules_differ_in_their_clients() {
        let (one, other) = (Rollout::new("one", 500), Rollout::new("other", 500));
        let both = (0..10_000).filter(|n| one.has(key(*n).as_ref()) && other.has(key(*n).as_ref()));
        let both = both.count();
        assert!((2_200..2_800).contains(&both), "{both}");
    }
}
