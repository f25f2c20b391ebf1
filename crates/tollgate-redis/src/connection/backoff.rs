//! Pauses between attempts to connect.

use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;

/// A pause is at most this part of the time for which there has been no connection, unless that is below the first bound.
const PART_OF_OUTAGE: u32 = 12;

/// Full jitter: each pause is anything from nothing to a bound that grows with the time without a server, so that many
/// processes that lost the same one do not come back at once, and none comes back late after a short outage.
#[derive(Debug)]
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    /// Since when there has been no server that is of use.
    since: Option<Instant>,
    rng: Rng,
}

impl Backoff {
    pub(super) fn new(first: Duration, longest: Duration, seed: u64) -> Self {
        Self {
            first,
            longest,
            since: None,
            rng: Rng::with_seed(seed),
        }
    }

    /// The pause before the next attempt, at this time.
    pub(super) fn next(&mut self, now: Instant) -> Duration {
        self.bound(now).mul_f64(self.rng.f64())
    }

    /// The server was of use: the next trouble is a new one.
    pub(super) fn reset(&mut self) {
        self.since = None;
    }

    fn bound(&mut self, now: Instant) -> Duration {
        let since = *self.since.get_or_insert(now);
        let part = now.saturating_duration_since(since) / PART_OF_OUTAGE;
        part.max(self.first).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_the_outage_to_their_bound_and_begin_anew() {
        let (first, longest) = (Duration::from_millis(50), Duration::from_secs(5));
        let mut backoff = Backoff::new(first, longest, 3);
        let began = Instant::now();
        for (outage_ms, bound_ms) in [
            (0, 50),
            (500, 50),
            (1_200, 100),
            (3_000, 250),
            (12_000, 1_000),
            (60_000, 5_000),
            (600_000, 5_000),
        ] {
            let now = began + Duration::from_millis(outage_ms);
            assert_eq!(backoff.bound(now).as_millis(), bound_ms);
            assert!(backoff.next(now) <= backoff.bound(now));
        }
        backoff.reset();
        assert_eq!(backoff.bound(began + longest), first);
    }

    #[test]
    fn processes_that_lost_one_server_do_not_come_back_together() {
        let pause = |seed| {
            let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(1), seed);
            backoff.next(Instant::now())
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
