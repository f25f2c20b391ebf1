//! The exact leaky counter that everything is compared with.

use tollgate_core::{Quota, Tick};

/// A bucket in whole numbers, with nothing of the project's code in it: it holds `units · period` and leaks `rate` of them
/// each µs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Leaky {
    used: u64,
    at: Tick,
}

impl Leaky {
    /// Counts units, whether there is room or not. Gives by what part of the burst it runs over.
    pub(crate) fn count(&mut self, quota: &Quota, now: Tick, cost: u64) -> f64 {
        self.leak(quota, now);
        self.used += cost * period(quota);
        let most = quota.limit() * period(quota);
        self.used.saturating_sub(most) as f64 / most as f64
    }

    /// Whether there is room.
    pub(crate) fn has_room(&mut self, quota: &Quota, now: Tick, cost: u64) -> bool {
        self.leak(quota, now);
        self.used + cost * period(quota) <= quota.limit() * period(quota)
    }

    /// What part of the burst is free.
    pub(crate) fn room(&mut self, quota: &Quota, now: Tick) -> f64 {
        self.leak(quota, now);
        1.0 - self.used as f64 / (quota.limit() * period(quota)) as f64
    }

    fn leak(&mut self, quota: &Quota, now: Tick) {
        self.used = self.used.saturating_sub((now - self.at) * quota.rate());
        self.at = now;
    }
}

fn period(quota: &Quota) -> u64 {
    // The laboratory's quotas have periods of a minute at most.
    u64::try_from(quota.period().as_micros()).unwrap_or(u64::MAX)
}
