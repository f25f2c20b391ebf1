//! The time by the store's clock, as far as this process knows it.

use tollgate_core::Tick;

use crate::sync::{AtomicI64, AtomicU64, Ordering};

/// By how much the store's clock is ahead of this process's, to about a tenth of a second.
///
/// It changes only when it is off by more than that, so that a time that was converted with it can be converted back.
#[derive(Debug, Default)]
pub(crate) struct StoreTime {
    ahead: AtomicI64,
    /// Since when, by this process's clock.
    since: AtomicU64,
}

/// How long a reply may take, in µs: a time that differs by less is nothing new.
pub(crate) const SLACK: u64 = 100_000;

impl StoreTime {
    /// The store's clock showed `at` when it replied to a query that was sent at `sent`; the reply came at `now`.
    pub(crate) fn on_reply(&self, sent: Tick, now: Tick, at: Tick) {
        let ahead = i64::try_from(i128::from(at) - i128::from(sent)).unwrap_or(0);
        // A slow reply says little; it is better than nothing only while the store's clock is unknown.
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

    /// The time by this process's clock at which [`at`](Self::at) returned this; 0 if the store's clock has jumped since.
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
    fn a_time_is_converted_back_whatever_replies_came_since() {
        let time = StoreTime::default();
        time.on_reply(1_000_000, 1_000_500, 9_000_000);
        let at = time.at(2_000_000);
        assert_eq!(at, 10_000_000);
        time.on_reply(3_000_000, 3_000_500, 11_000_900);
        assert_eq!(time.local(at), 2_000_000);
    }

    #[test]
    fn a_time_from_before_a_jump_is_unknown() {
        let time = StoreTime::default();
        time.on_reply(1_000_000, 1_000_500, 9_000_000);
        let at = time.at(2_000_000);
        time.on_reply(3_000_000, 3_000_500, 3_611_000_000);
        assert_eq!(time.local(at), 0);
        assert_eq!(time.local(time.at(4_000_000)), 4_000_000);
        // One of a second only.
        let at = time.at(4_500_000);
        time.on_reply(5_000_000, 5_000_500, 3_614_000_000);
        assert_eq!(time.local(at), 0);
    }
}
