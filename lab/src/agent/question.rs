//! What a process and the store say to each other.

use tollgate_core::{Tick, algorithm::Assessment};
use tollgate_prefilter::{Ask, Lot};

/// What goes to the store.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Question {
    /// The cost of the request that waits for the answer; 0 if none does.
    pub(crate) cost: u64,
    pub(crate) ask: Ask,
    /// Units that were admitted alone.
    pub(crate) report: u64,
}

/// What comes back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) assessment: Assessment,
    pub(crate) lot: Option<Lot>,
    /// By the store's clock.
    pub(crate) at: Tick,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Admit,
    Refuse,
    Ask(Question),
}
