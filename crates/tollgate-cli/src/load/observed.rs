//! Which limit answers show.

use std::time::Duration;

/// A request of one client: when it was sent, and whether it was allowed.
pub(crate) type Sent = (Duration, bool);

/// The limit that answers show.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ObservedLimit {
    /// Allowed requests a second, once some were denied.
    pub(crate) rate: f64,
    /// How many passed at once before that.
    pub(crate) burst: u64,
}

impl ObservedLimit {
    /// By the requests of one client, in the order in which they were sent. `None`: it was never denied.
    pub(crate) fn of(requests: &[Sent]) -> Option<Self> {
        let first = requests.iter().position(|(_, allowed)| !allowed)?;
        let (begin, denied, end) = (
            requests[0].0,
            requests[first].0,
            requests[requests.len() - 1].0,
        );
        // Requests that are sent at once come in any order: those of the next moment count as before it.
        let settled = denied + (end - denied) / 20;
        let allowed = requests.iter().filter(|(_, allowed)| *allowed);
        let (before, after): (Vec<&Sent>, Vec<&Sent>) =
            allowed.partition(|(sent, _)| *sent <= settled);
        let seconds = (end - settled).as_secs_f64();
        let rate = if seconds > 0.0 {
            after.len() as f64 / seconds
        } else {
            0.0
        };
        // What came back meanwhile was not part of the burst.
        let burst = before.len() as f64 - rate * (settled - begin).as_secs_f64();
        Some(Self {
            rate,
            burst: burst.round().max(0.0) as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers of a bucket of whole units, to requests at `each` a second for ten seconds after some at once.
    fn answers(rate: f64, size: f64, at_once: u32, each: u32) -> Vec<Sent> {
        let (mut left, mut before) = (size, 0.0);
        let later = (1..=each * 10).map(|number| f64::from(number) / f64::from(each));
        let times = std::iter::repeat_n(0.0, at_once as usize).chain(later);
        let answers = times.map(|time| {
            left = (left + (time - before) * rate).min(size);
            before = time;
            let allowed = left >= 1.0 - 1e-9;
            left -= f64::from(u8::from(allowed));
            (Duration::from_secs_f64(time), allowed)
        });
        answers.collect()
    }

    #[test]
    fn the_numbers_of_a_bucket_are_found_within_two_percent() {
        for (rate, size, at_once, each) in [
            (20.0, 50.0, 100, 60),
            (20.0, 50.0, 0, 60),
            (5.0, 1.0, 3, 20),
            (200.0, 10.0, 0, 1_000),
        ] {
            let observed =
                ObservedLimit::of(&answers(rate, size, at_once, each)).expect("some are denied");
            let wrong = (observed.rate - rate).abs() / rate;
            assert!(wrong <= 0.02, "{rate} {size}: {observed:?}");
            assert!(
                (observed.burst as f64 - size).abs() <= 1.0,
                "{rate} {size}: {observed:?}"
            );
        }
        assert_eq!(ObservedLimit::of(&answers(20.0, 50.0, 0, 19)), None);
        assert_eq!(ObservedLimit::of(&[]), None);
    }
}
