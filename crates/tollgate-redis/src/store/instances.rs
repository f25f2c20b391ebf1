//! How many instances share the store.

use std::sync::atomic::{AtomicU32, Ordering};

/// How many instances share the store, for requests; 0 before Redis has replied.
#[derive(Debug, Default)]
pub(super) struct Instances(AtomicU32);

impl Instances {
    pub(super) fn known(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, count: u32) {
        self.0.store(count, Ordering::Relaxed);
    }
}
