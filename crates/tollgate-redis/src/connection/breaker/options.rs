//! When the circuit breaker opens, and for how long.

use std::time::Duration;

/// When requests are kept from a server that fails, and for how long: the circuit breaker of each server.
///
/// ```
/// use std::time::Duration;
///
/// use tollgate_redis::{BreakerOptions, Keys, RedisStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // Stops for 30 s after 3 failures.
/// let breaker = BreakerOptions::default().failures(3).pause(Duration::from_secs(30));
/// let store = RedisStore::builder("unix:///nowhere", "shop", Keys::plain()).breaker(breaker).connect()?;
/// # drop(store);
/// # Ok(())
/// # }
/// ```
///
/// The values are checked by [`connect`](crate::RedisStoreBuilder::connect).
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct BreakerOptions {
    pub(in crate::connection) failures: u32,
    pub(in crate::connection) window: Duration,
    pub(in crate::connection) busy: u32,
    pub(in crate::connection) percent: u32,
    pub(in crate::connection) pause: Duration,
    pub(in crate::connection) longest_pause: Duration,
    pub(in crate::connection) probes: u32,
    pub(in crate::connection) ramp: Duration,
}

/// The shares of requests, in percent, that are let through after the probes, one after the other.
pub(in crate::connection) const SHARES: [u8; 2] = [10, 50];

/// The parts of a window. Failures within one part of another count as one.
pub(in crate::connection) const SLICES: u32 = 8;

impl Default for BreakerOptions {
    fn default() -> Self {
        Self {
            failures: 5,
            window: Duration::from_secs(1),
            busy: 20,
            percent: 50,
            pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(10),
            probes: 2,
            ramp: Duration::from_millis(300),
        }
    }
}

impl BreakerOptions {
    /// How many failures open it. Default: 5; at least 1.
    ///
    /// Failures within an eighth of the [window](Self::window) of each other count as one, however many calls failed: a
    /// stall fails everything that was in flight. With little traffic they have to be in a row, without an answer in between.
    /// On a [busy](Self::busy) connection the [failure rate](Self::failure_rate) has to be reached as well.
    pub fn failures(mut self, failures: u32) -> Self {
        self.failures = failures;
        self
    }

    /// The share of calls, in percent, that have to fail within the [window](Self::window) on a [busy](Self::busy) connection.
    /// Default: 50; 1 to 100.
    pub fn failure_rate(mut self, percent: u32) -> Self {
        self.percent = percent;
        self
    }

    /// From this number of calls within the [window](Self::window) on, the [failure rate](Self::failure_rate) decides, and no longer
    /// a row of failures. Default: 20; at least 1.
    pub fn busy(mut self, calls: u32) -> Self {
        self.busy = calls;
        self
    }

    /// How far back the [failure rate](Self::failure_rate) looks. Default: 1 s; 80 ms to 10 minutes.
    ///
    /// By default a server that stops to answer is left after half of it.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// How long no request is sent once it has opened: at least this, and up to half as long again at random, so that many
    /// processes do not come back at once. Default: 100 ms; at most an hour.
    ///
    /// It doubles each time that it opens again soon, up to the [longest pause](Self::longest_pause), and halves with each second
    /// that requests are answered in between. Within a long outage it is a sixteenth of the outage, if that is longer. A new
    /// connection ends a pause that is longer than this.
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self.longest_pause = self.longest_pause.max(pause);
        self
    }

    /// The longest pause. Default: 10 s; at least the [pause](Self::pause), at most an hour.
    pub fn longest_pause(mut self, pause: Duration) -> Self {
        self.longest_pause = pause;
        self
    }

    /// How many probes in a row have to be answered before requests are let through. Default: 2; at least 1.
    ///
    /// A probe is a script that writes a key of its own, which a replica and a full server refuse.
    pub fn probes(mut self, probes: u32) -> Self {
        self.probes = probes;
        self
    }

    /// For how long only a part of the requests is let through after the probes: 10 % for the first half of this time, and 50 %
    /// for the second. Default: 300 ms; at most an hour.
    ///
    /// It opens again if the [failure rate](Self::failure_rate) of these requests is reached by failures at two moments or more.
    pub fn ramp(mut self, ramp: Duration) -> Self {
        self.ramp = ramp;
        self
    }

    /// What is wrong with the first value that cannot be used.
    pub(crate) fn check(&self) -> Result<(), String> {
        const HOUR: Duration = Duration::from_secs(3600);
        let ranges = [
            (
                "a window",
                self.window,
                Duration::from_millis(80)..=HOUR / 6,
                "1 s",
            ),
            (
                "a pause",
                self.pause,
                Duration::from_millis(1)..=HOUR,
                "100 ms",
            ),
            (
                "a longest pause",
                self.longest_pause,
                self.pause..=HOUR,
                "10 s",
            ),
            ("a ramp", self.ramp, Duration::ZERO..=HOUR, "300 ms"),
        ];
        for (what, value, range, usual) in ranges {
            if !range.contains(&value) {
                let (least, most) = (range.start(), range.end());
                return Err(format!(
                    "{what} of {value:?} for the circuit breaker is not between {least:?} and {most:?}; {usual} is usual"
                ));
            }
        }
        let counts = [
            ("failures", self.failures, 5),
            ("calls of a busy connection", self.busy, 20),
            ("probes", self.probes, 2),
        ];
        for (what, value, usual) in counts {
            if value == 0 {
                return Err(format!(
                    "0 {what} would let the breaker do nothing; take at least 1, {usual} is usual"
                ));
            }
        }
        if !(1..=100).contains(&self.percent) {
            return Err(format!(
                "a failure rate of {} % is not between 1 and 100; 50 is usual",
                self.percent
            ));
        }
        Ok(())
    }

    /// The time within which failures count as one.
    pub(in crate::connection) fn slice(&self) -> Duration {
        (self.window / SLICES).max(Duration::from_millis(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_breaker_has_the_defaults_that_its_documentation_names() {
        let named = BreakerOptions::default()
            .failures(5)
            .window(Duration::from_secs(1))
            .busy(20)
            .failure_rate(50)
            .pause(Duration::from_millis(100))
            .longest_pause(Duration::from_secs(10))
            .probes(2)
            .ramp(Duration::from_millis(300));
        assert_eq!(BreakerOptions::default(), named);
    }

    #[test]
    fn the_least_and_the_most_of_each_value_can_be_used_and_nothing_beyond() {
        let fine = BreakerOptions::default;
        let (ms, hour) = (Duration::from_millis(1), Duration::from_secs(3_600));
        let tick = Duration::from_nanos(1);
        for (least, below) in [
            (fine().window(80 * ms), fine().window(80 * ms - tick)),
            (fine().pause(ms), fine().pause(ms - tick)),
            (
                fine().pause(2 * ms).longest_pause(2 * ms),
                fine().pause(2 * ms).longest_pause(2 * ms - tick),
            ),
            (fine().failures(1), fine().failures(0)),
            (fine().busy(1), fine().busy(0)),
            (fine().probes(1), fine().probes(0)),
            (fine().failure_rate(1), fine().failure_rate(0)),
            (fine().window(hour / 6), fine().window(hour / 6 + tick)),
            (
                fine().pause(hour).longest_pause(hour),
                fine().pause(hour + tick).longest_pause(hour + tick),
            ),
            (
                fine().longest_pause(hour),
                fine().longest_pause(hour + tick),
            ),
            (fine().ramp(hour), fine().ramp(hour + tick)),
            (fine().ramp(Duration::ZERO), fine().ramp(hour + tick)),
            (fine().failure_rate(100), fine().failure_rate(101)),
        ] {
            assert_eq!(least.check(), Ok(()));
            assert!(below.check().is_err(), "{below:?}");
        }
    }

    #[test]
    fn a_value_that_cannot_be_used_is_named_with_what_would_be_right() {
        let fine = BreakerOptions::default;
        assert_eq!(fine().check(), Ok(()));
        let half_a_minute = Duration::from_secs(30);
        assert_eq!(fine().failures(3).pause(half_a_minute).check(), Ok(()));
        for (options, words) in [
            (fine().failures(0), ["0 failures", "at least 1, 5 is"]),
            (fine().busy(0), ["0 calls", "20"]),
            (fine().probes(0), ["0 probes", "2"]),
            (fine().failure_rate(0), ["0 %", "1 and 100"]),
            (fine().failure_rate(101), ["101 %", "50"]),
            (fine().window(Duration::ZERO), ["0ns", "80ms"]),
            (fine().pause(Duration::ZERO), ["0ns", "100 ms"]),
            (fine().ramp(Duration::MAX), ["a ramp", "3600s"]),
            (
                fine().pause(half_a_minute).longest_pause(half_a_minute / 2),
                ["longest pause", "between 30s"],
            ),
        ] {
            let error = options.check().expect_err("it cannot be used");
            for word in words {
                assert!(error.contains(word), "{error}");
            }
        }
    }
}
