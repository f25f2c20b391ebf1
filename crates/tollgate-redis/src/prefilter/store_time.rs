//! The time by the store's clock, as far as this process knows it.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use tollgate_core::Tick;

/// By how much the store's clock is ahead of this process's, to about a tenth of a second.
///
/// It stays the same for as long as it is right to that, so that a time which was told by it can be read again.
#[derive(Debug, Default)]
pub(crate) struct StoreTime {
    ahead: AtomicI64,
    /// Since when, by this process's clock.
    since: AtomicU64,
}

/// As long as an answer may have been under way: one that says another time by less says nothing new.
pub(super) const SLACK: u64 = 100_000;

impl StoreTime {
    /// The store has said that it was `at` when it answered a query that was sent at `sent`, and `now` is heard.
    pub(crate) fn told(&self, (sent, now): (Tick, Tick), at: Tick) {
        let ahead = i64::try_from(i128::from(at) - i128::from(sent)).unwrap_or(0);
        // One that was under way for long says little; only of a clock that nobody knows it is better than nothing.
        let is_slow = now.saturating_sub(sent) > SLACK && self.since.load(Ordering::Relaxed) > 0;
        if !is_slow && ahead.abs_diff(self.ahead.load(Ordering::Relaxed)) > SLACK {
            self.since.store(now, Ordering::Relaxed);
            self.ahead.store(ahead, Ordering::Relaxed);
        }
    }

    /// The time by the store's clock.
    #[inline]
    pub(crate) fn at(&self, now: Tick) -> Tick {
        now.saturating_add_signed(self.ahead.load(Ordering::Relaxed))
    }

    /// The time by this process's clock at which [`at`](Self::at) was said; 0 if the store's clock has been seen to jump
    /// since.
    pub(crate) fn local(&self, at: Tick) -> Tick {
        let local = i128::from(at) - i128::from(self.ahead.load(Ordering::Relaxed));
        let local = Tick::try_from(local).unwrap_or(0);
        if local < self.since.load(Ordering::Relaxed) {
            return 0;
        }
        local
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_was_told_is_read_again_whatever_answers_came_since() {
        let time = StoreTime::default();
        time.told((1_000_000, 1_000_500), 9_000_000);
        let at = time.at(2_000_000);
        assert_eq!(at, 10_000_000);
        time.told((3_000_000, 3_000_500), 11_000_900);
        assert_eq!(time.local(at), 2_000_000);
    }

    #[test]
    fn a_time_from_before_a_jump_is_not_known_any_more() {
        let time = StoreTime::default();
        time.told((1_000_000, 1_000_500), 9_000_000);
        let at = time.at(2_000_000);
        time.told((3_000_000, 3_000_500), 3_611_000_000);
        assert_eq!(time.local(at), 0);
        assert_eq!(time.local(time.at(4_000_000)), 4_000_000);
        // One of a second only.
        let at = time.at(4_500_000);
        time.told((5_000_000, 5_000_500), 3_614_000_000);
        assert_eq!(time.local(at), 0);
    }
}
