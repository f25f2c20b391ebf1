//! What was taken from a bucket beyond what it has.

use tollgate_core::{
    Quota, Retry, Tick,
    algorithm::{Algorithm, Assessment, Gcra, GcraState},
};

use crate::bucket_grantor::hold_back;

/// A bucket that may owe units: nothing fits until they have come back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overdraft {
    quota: Gcra,
    burst: u64,
    /// The arrival time of a bucket that was emptied at 0.
    empty: GcraState,
}

impl Overdraft {
    pub(crate) fn new(quota: &Quota, bucket: Gcra) -> Self {
        let mut empty = GcraState::default();
        hold_back(&bucket, &mut empty, 0, quota.limit());
        Self {
            quota: bucket,
            burst: quota.limit(),
            empty,
        }
    }

    /// The time in µs, rounded up, until the bucket owes nothing.
    pub(crate) fn time(&self, state: &GcraState, now: Tick) -> Tick {
        let whole = i128::from(state.tat) - i128::from(now) - i128::from(self.empty.tat);
        let time = whole + i128::from(state.rest > self.empty.rest);
        Tick::try_from(time.max(0)).unwrap_or(Tick::MAX)
    }

    /// What [`assess`](Algorithm::assess) says, where the bucket may owe units.
    pub(crate) fn assess(&self, state: &GcraState, now: Tick, cost: u64) -> Assessment {
        let owed = self.time(state, now);
        let then = self.quota.assess(state, now.saturating_add(owed), cost);
        if owed == 0 {
            return then;
        }
        Assessment::new(
            cost == 0,
            0,
            then.reset_after.saturating_add(owed),
            match then.retry {
                _ if then.fits && cost > 0 => Retry::after_micros(owed),
                Retry::Now => Retry::after_micros(owed),
                Retry::After(wait) => {
                    let wait = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
                    Retry::after_micros(owed.saturating_add(wait))
                }
                other => other,
            },
        )
    }

    /// Cuts what a clock that went back has added to the time that was owed.
    pub(crate) fn repair(&self, state: &mut GcraState, now: Tick, owed: Tick) {
        if self.time(state, now) > owed {
            *state = GcraState::default();
            let then = now.saturating_add(owed);
            hold_back(&self.quota, state, then, self.burst);
        }
    }
}
