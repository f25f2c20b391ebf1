//! The key of the tables.

use std::fmt;

use tollgate_core::store::Fingerprint;

/// A client's key under one [limit](crate::engine::limit::Limit).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableKey {
    /// The halves of its fingerprint: as one number they would take 16 bytes at a time.
    pub(crate) key: [u64; 2],
    pub(crate) limit: u32,
}

impl TableKey {
    #[inline]
    pub(crate) fn new(limit: u32, key: Fingerprint) -> Self {
        let bits = key.bits();
        Self {
            key: [(bits >> 64) as u64, bits as u64],
            limit,
        }
    }

    #[inline]
    pub(crate) fn key(self) -> Fingerprint {
        let [high, low] = self.key;
        Fingerprint::from_bits(u128::from(high) << 64 | u128::from(low))
    }

    /// A byte of the key.
    #[inline]
    pub(crate) fn tag(self) -> u8 {
        (self.key[1] >> 56) as u8
    }
}

/// Without the key.
impl fmt::Debug for TableKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableKey")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_what_it_was_made_of_and_its_tag_one_of_its_bytes() {
        let key = Fingerprint::from_bits(0x0123 << 112 | 0xab << 56 | 0x45);
        let slot = TableKey::new(3, key);
        assert_eq!((slot.key(), slot.limit, slot.tag()), (key, 3, 0xab));
    }
}
