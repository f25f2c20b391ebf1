//! The start of a check.

/// The start of a check; the clock is read only with the feature `metrics`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer {
    #[cfg(feature = "metrics")]
    start: std::time::Instant,
}

impl Timer {
    #[inline]
    #[cfg_attr(
        feature = "metrics",
        expect(
            clippy::disallowed_methods,
            reason = "a duration for a histogram decides nothing"
        )
    )]
    pub(crate) fn start() -> Self {
        Self {
            #[cfg(feature = "metrics")]
            start: std::time::Instant::now(),
        }
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn elapsed(self) -> std::time::Duration {
        self.start.elapsed()
    }
}
