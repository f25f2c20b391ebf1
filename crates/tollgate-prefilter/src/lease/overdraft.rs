//! What was taken from a bucket beyond what it has.

use tollgate_core::{
    Quota, Retry, Tick,
    algorithm::{Algorithm, Assessment, Gcra, GcraState},
};

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
        bucket.hold_back(&mut empty, 0, quota.limit());
        Self {
            quota: bucket,
            burst: quota.limit(),
            empty,
        }
    }

    /// The time in µs, rounded up, until the bucket owes nothing.
    pub(crate) fn time(&self, state: &GcraState, now: Tick) -> Tick {
        let whole = i128::from(state.tat()) - i128::from(now) - i128::from(self.empty.tat());
        let time = whole + i128::from(state.rest() > self.empty.rest());
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
            self.quota.hold_back(state, then, self.burst);
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::SECOND;

    use super::*;

    const START: Tick = 1_700_000_000_000_000;

    /// A bucket of ten units, seven a second, that owes so many.
    fn overdraft(units: u64) -> (Overdraft, GcraState) {
        let quota = Quota::token_bucket(10).refill(7, SECOND);
        let bucket = Gcra::new(&quota).expect("a bucket");
        let mut state = GcraState::default();
        bucket.take(&mut state, START, 10);
        bucket.take(&mut state, START, units);
        (Overdraft::new(&quota, bucket), state)
    }

    #[test]
    fn nothing_fits_until_what_is_owed_has_come_back_and_then_as_ever() {
        let (overdraft, state) = overdraft(7);
        assert_eq!(overdraft.time(&state, START), SECOND.as_micros() as u64);
        let answer = overdraft.assess(&state, START, 1);
        assert_eq!((answer.fits, answer.remaining), (false, 0));
        // Eight units are back after 8/7 s.
        assert_eq!(answer.retry, Retry::after_micros(1_142_858));
        assert_eq!(answer.reset_after, 2_428_572);
        assert!(!overdraft.assess(&state, START + 1_142_857, 1).fits);
        assert!(overdraft.assess(&state, START + 1_142_858, 1).fits);
        assert_eq!(overdraft.assess(&state, START, 11).retry, Retry::Never);
    }

    #[test]
    fn a_cost_that_fits_once_nothing_is_owed_does_not_wait_for_its_next_time() {
        // Seven units a µs: in the first µs four that are owed come back, and three more.
        let quota = Quota::token_bucket(10).refill(7, std::time::Duration::from_micros(1));
        let bucket = Gcra::new(&quota).expect("a bucket");
        let mut state = GcraState::default();
        bucket.take(&mut state, START, 10);
        bucket.take(&mut state, START, 4);
        let answer = Overdraft::new(&quota, bucket).assess(&state, START, 2);
        assert_eq!((answer.fits, answer.retry), (false, Retry::after_micros(1)));
    }

    #[test]
    fn a_clock_that_goes_back_adds_nothing_to_what_is_owed() {
        let (overdraft, mut state) = overdraft(7);
        let owed = overdraft.time(&state, START);
        overdraft.repair(&mut state, START - 5_000_000, owed);
        assert_eq!(overdraft.time(&state, START - 5_000_000), owed);
        let before = state;
        overdraft.repair(&mut state, START - 5_000_000, owed);
        assert_eq!(state, before);
    }
}
