//! Two secrets: the fingerprint of a process that finds both names of a state.

use tollgate_core::Fingerprint;

use crate::secret::Secret;

/// Two secrets, of which one is in force.
pub(crate) struct Rotation {
    newer: Secret,
    older: Secret,
    /// Whether the newer secret is in force.
    moves: bool,
    /// Ties fingerprints in this process to nothing that a client could compute.
    mask: [u8; 32],
}

impl Rotation {
    /// The secret in force and the one before it, or if states do not move, the one after it.
    pub(crate) fn new(current: Secret, other: Secret, moves: bool) -> Self {
        let (newer, older) = if moves {
            (current, other)
        } else {
            (other, current)
        };
        let mask = blake3::derive_key("tollgate-redis, mask of digests", newer.key());
        Self {
            newer,
            older,
            moves,
            mask,
        }
    }

    /// Whether states move to the name by the newer secret.
    pub(crate) fn moves(&self) -> bool {
        self.moves
    }

    /// The fingerprints by the newer secret and by the older.
    pub(crate) fn both(&self, key: Fingerprint) -> (Fingerprint, Fingerprint) {
        let digest = self.unmask(key);
        (self.newer.sign(digest), self.older.sign(digest))
    }

    /// What stands for a key in this process, from its digest. A permutation, so that it can be undone where names are
    /// written: four rounds of a Feistel network over halves.
    pub(crate) fn mask(&self, digest: [u8; 16]) -> Fingerprint {
        let bits = u128::from_le_bytes(digest);
        let (mut left, mut right) = ((bits >> 64) as u64, bits as u64);
        for round in 0..4 {
            (left, right) = (right, left ^ self.round(round, right));
        }
        Fingerprint::from_bits(u128::from(left) << 64 | u128::from(right))
    }

    fn unmask(&self, key: Fingerprint) -> [u8; 16] {
        let (mut left, mut right) = ((key.bits() >> 64) as u64, key.bits() as u64);
        for round in (0..4).rev() {
            (left, right) = (right ^ self.round(round, left), left);
        }
        (u128::from(left) << 64 | u128::from(right)).to_le_bytes()
    }

    fn round(&self, round: u8, half: u64) -> u64 {
        let mut input = [round; 9];
        input[1..].copy_from_slice(&half.to_le_bytes());
        let hash = blake3::keyed_hash(&self.mask, &input);
        hash.as_bytes()[..8]
            .iter()
            .fold(0, |half, byte| half << 8 | u64::from(*byte))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_undone() {
        let [one, other] = [1, 2].map(|byte| Secret::from_bytes([byte; 32]).expect("32 bytes"));
        let rotation = Rotation::new(one, other, true);
        for bit in 0..128 {
            let digest = (1_u128 << bit).to_le_bytes();
            assert_ne!(rotation.mask(digest).bits(), 1 << bit);
            assert_eq!(rotation.unmask(rotation.mask(digest)), digest);
        }
    }
}
