//! Fingerprints of keys.

use std::{
    fmt,
    hash::{BuildHasher, Hasher as _},
};

use crate::key::{Fingerprint, KeyBuf};

/// Makes fingerprints with seeds of this store: fast, and never the same in two processes.
#[derive(Clone, Default)]
pub(super) struct Hasher {
    low: foldhash::fast::RandomState,
    high: foldhash::fast::RandomState,
}

impl Hasher {
    #[inline]
    pub(super) fn fingerprint(&self, key: &KeyBuf) -> Fingerprint {
        let hash = |state: &foldhash::fast::RandomState| {
            let mut hasher = state.build_hasher();
            hasher.write(key.as_bytes());
            hasher.finish()
        };
        Fingerprint::from_bits(u128::from(hash(&self.low)) | u128::from(hash(&self.high)) << 64)
    }
}

/// The seeds are secret.
impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hasher(..)")
    }
}
