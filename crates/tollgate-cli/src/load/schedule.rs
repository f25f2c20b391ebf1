//! When requests are due, and whose they are: an open loop, which no slow answer holds up.

use std::time::Duration;

/// How many requests are due by when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    /// At once, at the start.
    pub(crate) burst: u64,
    /// A second, at the start and at the end.
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) lasts: Duration,
}

impl Schedule {
    pub(crate) fn requests(&self) -> u64 {
        let after = (self.from + self.to) / 2.0 * self.lasts.as_secs_f64();
        // A sum that is whole but for rounding is whole.
        self.burst + (after + 1e-9) as u64
    }

    /// When the request with this number is due, from 0.
    pub(crate) fn due(&self, number: u64) -> Duration {
        let after = number.saturating_sub(self.burst) as f64;
        // By then, `from · t + growth · t² / 2` requests are due.
        let growth = (self.to - self.from) / self.lasts.as_secs_f64();
        let due = match after {
            0.0 => 0.0,
            after if growth == 0.0 => after / self.from,
            after => {
                (2.0 * after)
                    / (self.from
                        + (self.from * self.from + 2.0 * growth * after)
                            .max(0.0)
                            .sqrt())
            }
        };
        Duration::from_secs_f64(due).min(self.lasts)
    }
}

/// Clients of which the first comes most often: the one with number `n` in proportion to `1 / n^skew`.
#[derive(Debug)]
pub(crate) struct Clients {
    /// The sums of their shares, up to each.
    sums: Vec<f64>,
    random: fastrand::Rng,
}

impl Clients {
    pub(crate) fn new(number: u32, skew: f64) -> Self {
        let shares = (1..=number).map(|client| f64::from(client).powf(-skew));
        let sums = shares.scan(0.0, |sum, share| {
            *sum += share;
            Some(*sum)
        });
        Self {
            sums: sums.collect(),
            random: fastrand::Rng::with_seed(1),
        }
    }

    /// Whose request is next, from 0.
    pub(crate) fn next(&mut self) -> u32 {
        let at = self.random.f64() * self.sums.last().copied().unwrap_or_default();
        let client = self.sums.partition_point(|sum| *sum <= at);
        client.min(self.sums.len().saturating_sub(1)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_due_as_the_rate_says() {
        let lasts = Duration::from_secs(10);
        let constant = Schedule {
            burst: 5,
            from: 20.0,
            to: 20.0,
            lasts,
        };
        assert_eq!(constant.requests(), 205);
        assert_eq!(
            (constant.due(4), constant.due(5), constant.due(105)),
            (Duration::ZERO, Duration::ZERO, lasts / 2)
        );
        let ramp = Schedule {
            burst: 0,
            from: 0.0,
            to: 100.0,
            lasts,
        };
        assert_eq!(ramp.requests(), 500);
        // A quarter of them in the first half.
        assert_eq!(ramp.due(125), lasts / 2);
        let down = Schedule {
            from: 100.0,
            to: 0.0,
            ..ramp
        };
        assert_eq!((down.due(375), down.due(500)), (lasts / 2, lasts));
    }

    #[test]
    fn clients_come_as_the_skew_says() {
        let mut clients = Clients::new(3, 1.0);
        let mut counts = [0_u32; 3];
        for _ in 0..110_000 {
            counts[clients.next() as usize] += 1;
        }
        // 6 : 3 : 2.
        for (count, share) in counts.into_iter().zip([60_000, 30_000, 20_000]) {
            assert!(count.abs_diff(share) < 1_000, "{counts:?}");
        }
    }
}
