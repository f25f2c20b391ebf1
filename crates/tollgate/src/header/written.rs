//! What an inner limiter has written into a field that has room for one rule.

/// The numbers found there; `None` where there was none that can be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub(super) remaining: Option<u64>,
    pub(super) reset: Option<u64>,
}

impl Written {
    /// Whether it leaves the client less than this, or as much and for no shorter time. What cannot be read is no bound.
    pub(super) fn leaves_less(self, remaining: u64, reset: u64) -> bool {
        self.remaining.is_some_and(|written| {
            written < remaining
                || written == remaining && self.reset.is_none_or(|written| written >= reset)
        })
    }
}
