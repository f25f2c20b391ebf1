//! The time by the store's clock, as far as this process knows it.

use std::sync::atomic::{AtomicI64, Ordering};

use tollgate_core::Tick;

/// By how much the store's clock is ahead of this process's, as its last answer said.
///
/// Nothing is decided by it: it is what a decision that was made here says of when it was made.
#[derive(Debug, Default)]
pub(crate) struct StoreTime(AtomicI64);

impl StoreTime {
    /// The store has said that it was `at` when it answered a question that was sent at `sent`.
    pub(crate) fn told(&self, sent: Tick, at: Tick) {
        let ahead = i64::try_from(i128::from(at) - i128::from(sent)).unwrap_or(0);
        self.0.store(ahead, Ordering::Relaxed);
    }

    /// A time by this process's clock before that at which it was `at` by the store's.
    pub(crate) fn local(&self, at: Tick) -> Tick {
        /// By as much an answer may have been under way.
        const SLACK: Tick = 100_000;
        let ahead = self.0.load(Ordering::Relaxed);
        let local = i128::from(at) - i128::from(ahead);
        u64::try_from(local).unwrap_or(0).saturating_sub(SLACK)
    }

    /// The time by the store's clock.
    #[inline]
    pub(crate) fn at(&self, now: Tick) -> Tick {
        now.saturating_add_signed(self.0.load(Ordering::Relaxed))
    }
}
