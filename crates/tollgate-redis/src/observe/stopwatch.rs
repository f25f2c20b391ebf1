//! When a call began.

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
    pub(crate) fn elapsed(self) -> std::time::Duration {
        self.start.elapsed()
    }
}
