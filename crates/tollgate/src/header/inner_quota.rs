//! The quota that an inner limiter has written into fields for one rule.

/// The numbers found there; `None` for a missing or invalid one.
#[derive(Clone, Copy, Debug)]
pub(super) struct InnerQuota {
    pub(super) remaining: Option<u64>,
    pub(super) reset: Option<u64>,
}

impl InnerQuota {
    /// Whether it has fewer units left, or as many for at least the same time. An invalid number does not count.
    pub(super) fn leaves_less(self, remaining: u64, reset: u64) -> bool {
        self.remaining.is_some_and(|written| {
            written < remaining
                || written == remaining && self.reset.is_none_or(|written| written >= reset)
        })
    }
}
