//! The exact counters that everything is compared with.

use tollgate_core::{AlgorithmKind, Quota, Tick};

/// What was admitted of a key, in whole numbers, with nothing of the project's code in it.
///
/// Of a bucket: it holds `units · period` and leaks `rate` of them each µs. Of a window: what was admitted in this one and in the
/// one before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Exact {
    used: u64,
    before: u64,
    at: Tick,
}

impl Exact {
    /// Counts units, whether there is room or not. Gives by what part of the limit it runs over.
    pub(crate) fn count(&mut self, quota: &Quota, now: Tick, cost: u64) -> f64 {
        self.pass(quota, now);
        self.used += cost * unit(quota);
        let most = full(quota);
        self.weight(quota).saturating_sub(most) as f64 / most as f64
    }

    /// Whether there is room.
    pub(crate) fn has_room(&mut self, quota: &Quota, now: Tick, cost: u64) -> bool {
        self.pass(quota, now);
        self.weight(quota) + cost * unit(quota) <= full(quota)
    }

    /// What part of the limit is free.
    pub(crate) fn room(&mut self, quota: &Quota, now: Tick) -> f64 {
        self.pass(quota, now);
        1.0 - self.weight(quota) as f64 / full(quota) as f64
    }

    fn pass(&mut self, quota: &Quota, now: Tick) {
        if is_bucket(quota) {
            self.used = self
                .used
                .saturating_sub((now - self.at).saturating_mul(quota.rate()));
        } else {
            let windows = now / unit(quota) - self.at / unit(quota);
            if windows > 0 {
                self.before = if windows == 1 { self.used } else { 0 };
                self.used = 0;
            }
        }
        self.at = now;
    }

    fn weight(&self, quota: &Quota) -> u64 {
        if quota.algorithm() != AlgorithmKind::SlidingWindow {
            return self.used;
        }
        // The window before weighs by the part that is not over. Units of it are whole periods.
        let rest = unit(quota) - self.at % unit(quota);
        self.used + self.before / unit(quota) * rest
    }
}

fn is_bucket(quota: &Quota) -> bool {
    !matches!(
        quota.algorithm(),
        AlgorithmKind::FixedWindow | AlgorithmKind::SlidingWindow
    )
}

/// A unit in parts: as many as its period has µs.
fn unit(quota: &Quota) -> u64 {
    // The laboratory's quotas have periods of a day at most.
    u64::try_from(quota.period().as_micros()).unwrap_or(u64::MAX)
}

fn full(quota: &Quota) -> u64 {
    quota.limit() * unit(quota)
}
