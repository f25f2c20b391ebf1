//! What an engine holds.

use crate::table::key_table::TableUsage;

/// What an [`Engine`](crate::Engine) holds at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineUsage {
    /// The units of all leases.
    pub units_on_lease: u64,
    /// Units that were admitted and that the store does not know of.
    pub units_unreported: u64,
    /// Keys with a lease that has units, scheduled ones not included.
    pub leased_keys: u64,
    /// Keys with a scheduled lease that has units.
    pub scheduled_keys: u64,
    /// The table of keys.
    pub table: TableUsage,
}
