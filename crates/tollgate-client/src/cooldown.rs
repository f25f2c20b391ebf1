//! A server's cooldown.

use std::time::Duration;

/// The wait that a server asks for, and the jitter on top, so that its clients do not all return at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cooldown {
    pub(crate) asked: Duration,
    pub(crate) jitter: Duration,
}

impl Cooldown {
    /// Adds up to `percent`; `chance`, from 0 to 1, is the share of it.
    ///
    /// The jitter extends the wait neither beyond `longest` nor beyond `room`, the time that the rejected request may still
    /// wait, so that it can be retried. If the wait itself exceeds `room`, `room` does not matter.
    pub(crate) fn new(
        asked: Duration,
        percent: u8,
        longest: Duration,
        room: Duration,
        chance: f64,
    ) -> Self {
        let most = asked
            .saturating_mul(u32::from(percent))
            .checked_div(100)
            .unwrap_or_default()
            .min(longest.saturating_sub(asked));
        let most = match room.checked_sub(asked) {
            Some(room) => most.min(room),
            None => most,
        };
        Self {
            asked,
            jitter: most.mul_f64(chance.clamp(0.0, 1.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn jitter(asked: Duration, room: Duration, chance: f64) -> Duration {
        Cooldown::new(asked, 10, 600 * SECOND, room, chance).jitter
    }

    #[test]
    fn up_to_the_percent_is_added() {
        for (chance, expected) in [(0.0, 0), (0.5, 500), (1.0, 1_000)] {
            let jitter = jitter(10 * SECOND, 60 * SECOND, chance);
            assert_eq!(jitter, Duration::from_millis(expected));
        }
    }

    #[test]
    fn no_cooldown_exceeds_the_longest() {
        let room = 3_600 * SECOND;
        assert_eq!(jitter(600 * SECOND, room, 1.0), Duration::ZERO);
        assert_eq!(jitter(580 * SECOND, room, 1.0), 20 * SECOND);
    }

    #[test]
    fn jitter_leaves_time_to_retry_the_rejected_request() {
        assert_eq!(jitter(100 * SECOND, 100 * SECOND, 1.0), Duration::ZERO);
        assert_eq!(jitter(100 * SECOND, 104 * SECOND, 0.5), 2 * SECOND);
    }

    #[test]
    fn a_wait_beyond_the_room_gets_its_full_jitter() {
        assert_eq!(jitter(100 * SECOND, 99 * SECOND, 1.0), 10 * SECOND);
    }
}
