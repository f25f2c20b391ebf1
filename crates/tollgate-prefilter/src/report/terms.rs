//! The terms of a quota's reports.

use std::time::Duration;

use tollgate_core::{AlgorithmKind, Quota, Tick};

/// How often a process reports, and how many units it may admit before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportTerms {
    interval: Tick,
    max_unreported: u64,
    /// How many units of a bucket come back, and in how many µs.
    refill: Option<(u64, u64)>,
}

const ALGORITHM: &str =
    "a log never holds more than its limit, so it cannot count units that were admitted above it";
const NOTHING: &str = "with no unreported units, every request queries the store";
const TOO_MANY: &str = "more unreported units than the limit are no limit";

impl ReportTerms {
    /// The terms of a quota.
    ///
    /// # Errors
    ///
    /// Why a process cannot count the quota by itself, or not with this `max_unreported`.
    pub fn new(
        quota: &Quota,
        interval: Duration,
        max_unreported: u64,
    ) -> Result<Self, &'static str> {
        if matches!(
            quota.algorithm(),
            AlgorithmKind::SlidingLog | AlgorithmKind::Concurrent | AlgorithmKind::Unlimited
        ) {
            return Err(ALGORITHM);
        }
        if max_unreported == 0 {
            return Err(NOTHING);
        }
        if max_unreported > quota.limit() {
            return Err(TOO_MANY);
        }
        Ok(Self {
            interval: u64::try_from(interval.as_micros()).unwrap_or(u64::MAX),
            max_unreported,
            refill: matches!(
                quota.algorithm(),
                AlgorithmKind::Gcra | AlgorithmKind::TokenBucket | AlgorithmKind::LeakyBucket
            )
            .then(|| {
                let period = u64::try_from(quota.period().as_micros()).unwrap_or(u64::MAX);
                (quota.rate().max(1), period)
            }),
        })
    }

    /// How often a process reports, in µs.
    pub const fn interval(&self) -> Tick {
        self.interval
    }

    /// How many µs later a state is fresh if `units` more are used, rounded up: the time in which a bucket refills
    /// by them. 0 of a window, whose end stays where it is.
    pub(crate) fn puts_off(&self, units: u64) -> Tick {
        let Some((rate, period)) = self.refill else {
            return 0;
        };
        if let Some(product) = units.checked_mul(period) {
            return product.div_ceil(rate);
        }
        let micros = (u128::from(units) * u128::from(period)).div_ceil(u128::from(rate));
        Tick::try_from(micros).unwrap_or(Tick::MAX)
    }

    /// The most units that a process has admitted and not reported.
    pub const fn max_unreported(&self) -> u64 {
        self.max_unreported
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{MAX_PERIOD, SECOND};

    use super::*;

    fn puts_off(quota: &Quota, units: u64) -> Tick {
        let terms = ReportTerms::new(quota, SECOND, 1).expect("it reports");
        terms.puts_off(units)
    }

    #[test]
    fn units_of_a_bucket_put_off_when_it_is_full_and_those_of_a_window_do_not() {
        assert_eq!(puts_off(&Quota::gcra(3, SECOND), 2), 666_667);
        assert_eq!(
            puts_off(&Quota::token_bucket(9).refill(4, SECOND), 1),
            250_000
        );
        assert_eq!(puts_off(&Quota::fixed_window(3, SECOND), 2), 0);
        assert_eq!(puts_off(&Quota::sliding_window(3, SECOND), 2), 0);
        let most = puts_off(&Quota::gcra(1, MAX_PERIOD), u64::MAX);
        assert_eq!(most, Tick::MAX);
    }

    #[test]
    fn what_cannot_be_reported_says_why() {
        let of = |quota: Quota, most| ReportTerms::new(&quota, SECOND, most);
        for quota in [Quota::sliding_log(10, SECOND), Quota::concurrent(10)] {
            assert_eq!(of(quota, 5), Err(ALGORITHM));
        }
        assert_eq!(of(Quota::gcra(10, SECOND), 0), Err(NOTHING));
        assert_eq!(of(Quota::gcra(10, SECOND), 11), Err(TOO_MANY));
        for most in [1, 10] {
            let terms = of(Quota::fixed_window(10, SECOND), most).expect("it reports");
            assert_eq!(
                (terms.interval(), terms.max_unreported()),
                (1_000_000, most)
            );
        }
    }
}
