//! What became of requests.

use serde::{Deserialize, Serialize};

/// What became of the requests of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) layout: u64,
    pub(crate) allowed: u64,
    /// Verdicts by who made them.
    pub(crate) store: u64,
    pub(crate) deny_cached: u64,
    pub(crate) lease: u64,
    pub(crate) eventual: u64,
    pub(crate) fallback: u64,
}

impl Counts {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            layout: self.layout + other.layout,
            allowed: self.allowed + other.allowed,
            store: self.store + other.store,
            deny_cached: self.deny_cached + other.deny_cached,
            lease: self.lease + other.lease,
            eventual: self.eventual + other.eventual,
            fallback: self.fallback + other.fallback,
        }
    }
}
