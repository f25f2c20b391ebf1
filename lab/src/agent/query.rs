//! What a process and the store say to each other.

use tollgate_core::{Tick, algorithm::Assessment};
use tollgate_prefilter::{Grant, LeaseQuery};

/// What goes to the store.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InFlightQuery {
    /// The cost of the request that waits for the answer; 0 if none does.
    pub(crate) cost: u64,
    pub(crate) query: LeaseQuery,
    /// Units that were admitted alone.
    pub(crate) report: u64,
    /// Another rule denies the request: it takes nothing, and nothing is granted beside it.
    pub(crate) is_denied: bool,
    /// Units of a window that come back without a place in the process: the window, and how many.
    pub(crate) refund: Option<(u64, u64)>,
}

/// What comes back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) assessment: Assessment,
    pub(crate) grant: Option<Grant>,
    /// By the store's clock.
    pub(crate) at: Tick,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Admit,
    Refuse,
    LeaseQuery(InFlightQuery),
}
