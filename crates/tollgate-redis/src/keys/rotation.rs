//! Two secrets: both names of a state.

use tollgate_core::store::Fingerprint;

use crate::keys::{mask::Mask, secret::Secret};

/// Two secrets, one of them in force.
pub(crate) struct Rotation {
    newer: Secret,
    older: Secret,
    /// Whether the newer secret is in force.
    moves: bool,
    mask: Mask,
}

impl Rotation {
    /// The secret in force and the one before it, or if states do not move, the one after it.
    pub(crate) fn new(current: Secret, other: Secret, moves: bool) -> Self {
        let (newer, older) = if moves {
            (current, other)
        } else {
            (other, current)
        };
        Self {
            mask: Mask::of(&newer),
            newer,
            older,
            moves,
        }
    }

    /// Whether states move to the name by the newer secret.
    pub(crate) fn moves(&self) -> bool {
        self.moves
    }

    /// The tags of the secrets, first of the one in force.
    pub(crate) fn tags(&self) -> [String; 2] {
        let (newer, older) = (self.newer.tag(), self.older.tag());
        if self.moves {
            [newer, older]
        } else {
            [older, newer]
        }
    }

    /// What stands for a key in this process, from its digest.
    pub(crate) fn mask(&self, digest: [u8; 16]) -> Fingerprint {
        self.mask.put_on(digest)
    }

    /// The fingerprints by the newer secret and by the older.
    pub(crate) fn both(&self, key: Fingerprint) -> (Fingerprint, Fingerprint) {
        let digest = self.mask.take_off(key);
        (self.newer.sign(digest), self.older.sign(digest))
    }
}
