//! What a call to Redis is for, and when it began.

/// What a call is sent for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallFor {
    Requests,
    Settlements,
    Reports,
    /// Leases that go back without a request.
    Leases,
    Resets,
    /// What is in use of slots, without a request.
    Slots,
}

/// When a call began; read only where somebody measures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch {
    #[cfg(feature = "metrics")]
    start: tokio::time::Instant,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self {
            #[cfg(feature = "metrics")]
            start: tokio::time::Instant::now(),
        }
    }

    #[cfg(feature = "metrics")]
    pub(super) fn elapsed(self) -> std::time::Duration {
        self.start.elapsed()
    }
}
