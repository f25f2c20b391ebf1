//! Numbers that are given out once in a process.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that no rule set and no quota of a check had before in this process. It is never 0.
pub(crate) fn next_serial() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
