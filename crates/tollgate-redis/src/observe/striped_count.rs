//! A count that no two processors write.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::striped::PerStripe;

/// A count of what happens in requests: each stripe of threads counts for itself.
#[derive(Debug)]
pub(super) struct StripedCount(PerStripe<AtomicU64>);

impl Default for StripedCount {
    fn default() -> Self {
        Self(PerStripe::new(|_| AtomicU64::new(0)))
    }
}

impl StripedCount {
    #[inline]
    pub(super) fn add(&self) {
        self.0.here().fetch_add(1, Ordering::Relaxed);
    }

    /// What was counted since it was last taken.
    pub(super) fn take(&self) -> u64 {
        let stripes = self.0.iter();
        stripes.map(|count| count.swap(0, Ordering::Relaxed)).sum()
    }
}
