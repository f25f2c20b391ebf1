//! Pauses between attempts to connect.

use std::time::Duration;

use fastrand::Rng;

/// Full jitter: each pause is anything from nothing to a bound that doubles, so that many processes that lost the same
/// server do not come back at once.
#[derive(Debug)]
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    attempts: u32,
    rng: Rng,
}

impl Backoff {
    pub(super) fn new(first: Duration, longest: Duration, seed: u64) -> Self {
        Self {
            first,
            longest,
            attempts: 0,
            rng: Rng::with_seed(seed),
        }
    }

    pub(super) fn next(&mut self) -> Duration {
        let bound = self.bound();
        self.attempts = self.attempts.saturating_add(1);
        bound.mul_f64(self.rng.f64())
    }

    /// The server answered something: the next trouble is a new one.
    pub(super) fn reset(&mut self) {
        self.attempts = 0;
    }

    fn bound(&self) -> Duration {
        self.first
            .saturating_mul(1 << self.attempts.min(20))
            .min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_bound_and_begin_anew() {
        let (first, longest) = (Duration::from_millis(50), Duration::from_secs(5));
        let mut backoff = Backoff::new(first, longest, 3);
        let bounds: Vec<_> = (0..9)
            .map(|_| {
                let bound = backoff.bound();
                assert!(backoff.next() <= bound);
                bound.as_millis()
            })
            .collect();
        assert_eq!(bounds, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        backoff.reset();
        assert_eq!(backoff.bound(), first);
    }

    #[test]
    fn processes_that_lost_one_server_do_not_come_back_together() {
        let pause = |seed| {
            let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(1), seed);
            backoff.next()
        };
        let mut pauses: Vec<_> = (0..1_000).map(pause).collect();
        pauses.sort();
        // Fifty thousandths of a second hold about fifty of a thousand attempts.
        for from in (0..950).step_by(50) {
            let from = Duration::from_millis(from);
            let until = from + Duration::from_millis(50);
            let together = pauses
                .iter()
                .filter(|&&pause| from <= pause && pause < until);
            let together = together.count();
            assert!(together < 100, "{together} in {from:?}");
        }
    }
}
