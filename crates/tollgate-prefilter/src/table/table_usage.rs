//! How large a table is.

/// How large a table of keys is at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableUsage {
    /// Keys with an entry.
    pub keys: u64,
    /// The memory of the table, also that without an entry.
    pub bytes: u64,
}
