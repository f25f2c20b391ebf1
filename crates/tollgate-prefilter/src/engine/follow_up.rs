//! What is to be sent without a request that waits for it.

use smallvec::SmallVec;
use tollgate_core::store::{Receipt, Settlement};

use crate::engine::query::Query;

/// What the store has to send now, and no request waits for.
#[derive(Debug, Default)]
#[must_use = "units are lost if it is not sent"]
pub struct FollowUp {
    /// Units to settle. Those next to each other with the same settlement are of one ticket, and go in one call.
    pub settle: SmallVec<[(Receipt, Settlement); 1]>,
    /// Leases that go back.
    pub queries: Vec<Query>,
}

impl FollowUp {
    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.settle.is_empty() && self.queries.is_empty()
    }
}
