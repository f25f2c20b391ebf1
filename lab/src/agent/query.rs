//! What a process and the store say to each other.

/// What goes to the store.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InFlightQuery {
    /// The cost of the request that waits for the answer; 0 if none does.
    pub(crate) cost: u64,
    /// Units that were admitted alone.
    pub(crate) report: u64,
    /// Another rule denies the request: it takes nothing.
    pub(crate) is_denied: bool,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Admit,
    Refuse,
    Query(InFlightQuery),
}
