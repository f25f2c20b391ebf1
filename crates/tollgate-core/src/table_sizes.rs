//! How large the local tables of a limiter are.

/// How large the local tables of a limiter are, in addition to its store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableSizes {
    /// The local shares and caps.
    pub(crate) fallback_keys: u64,
    pub(crate) fallback_bytes: u64,
    /// What a remote store has last said of keys.
    pub(crate) last_seen_bytes: u64,
    pub(crate) top_keys_bytes: u64,
}

impl TableSizes {
    pub(crate) fn all(self) -> [u64; 4] {
        [
            self.fallback_keys,
            self.fallback_bytes,
            self.last_seen_bytes,
            self.top_keys_bytes,
        ]
    }
}
