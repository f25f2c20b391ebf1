//! What stands for a digest in a process.

use tollgate_core::store::Fingerprint;

use crate::keys::secret::Secret;

/// A permutation of digests that cannot be followed without the secret: four rounds of a Feistel network over
/// halves.
///
/// Anybody can compute a digest, and would choose keys that fall on one place of a table. What comes out of this never
/// leaves the process, so that it has to be fast, and need not withstand somebody who sees it. It can be undone, where a
/// name is written.
#[derive(Clone)]
pub(crate) struct Mask([Round; 4]);

#[derive(Clone, Copy, Default)]
struct Round {
    plus: u64,
    times: u64,
}

impl Mask {
    /// The same in all processes that know the secret.
    pub(crate) fn of(secret: &Secret) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("tollgate-redis, mask of digests");
        let mut bytes = hasher.update(secret.key()).finalize_xof();
        let mut word = || {
            let mut word = [0; 8];
            bytes.fill(&mut word);
            u64::from_le_bytes(word)
        };
        Self([(); 4].map(|()| Round {
            plus: word(),
            times: word(),
        }))
    }

    pub(crate) fn put_on(&self, digest: [u8; 16]) -> Fingerprint {
        let (mut left, mut right) = halves(u128::from_le_bytes(digest));
        for round in &self.0 {
            (left, right) = (right, left ^ round.of(right));
        }
        Fingerprint::from_bits(u128::from(left) << 64 | u128::from(right))
    }

    pub(crate) fn take_off(&self, key: Fingerprint) -> [u8; 16] {
        let (mut left, mut right) = halves(key.bits());
        for round in self.0.iter().rev() {
            (left, right) = (right ^ round.of(left), left);
        }
        (u128::from(left) << 64 | u128::from(right)).to_le_bytes()
    }
}

impl Round {
    /// Both halves of a product, in one.
    fn of(&self, half: u64) -> u64 {
        let product = u128::from(half ^ self.plus) * u128::from(self.times);
        let (high, low) = halves(product);
        high ^ low
    }
}

fn halves(bits: u128) -> (u64, u64) {
    ((bits >> 64) as u64, bits as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(byte: u8) -> Mask {
        Mask::of(&Secret::from_bytes([byte; 32]).expect("32 bytes"))
    }

    #[test]
    fn a_mask_is_undone() {
        for bit in 0..128 {
            let digest = (1_u128 << bit).to_le_bytes();
            assert_ne!(mask(1).put_on(digest).bits(), 1 << bit);
            assert_eq!(mask(1).take_off(mask(1).put_on(digest)), digest);
        }
    }

    #[test]
    fn every_bit_of_a_digest_and_of_the_secret_counts_for_all_of_what_comes_out() {
        let ones = |one: Fingerprint, other: Fingerprint| (one.bits() ^ other.bits()).count_ones();
        let bits = |bits: u128| mask(1).put_on(bits.to_le_bytes());
        for bit in 0..128 {
            let changed = ones(bits(0x5eed), bits(0x5eed ^ 1 << bit));
            assert!((32..96).contains(&changed), "{changed} by bit {bit}");
        }
        let digest = [7; 16];
        assert!(ones(mask(1).put_on(digest), mask(2).put_on(digest)) > 32);
    }
}
