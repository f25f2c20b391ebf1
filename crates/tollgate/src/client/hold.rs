//! For how long a server is left alone.

use std::time::Duration;

/// What a server asked for, and what is added so that the clients of one server do not all come back at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) asked: Duration,
    pub(super) spread: Duration,
}

impl Hold {
    /// Adds up to this many percent; `chance`, from 0 to 1, says how much of that.
    ///
    /// No more is added than there is to the `longest` hold, nor beyond the patience of the request that was refused, of
    /// which `room` is left: it may be sent again when the hold is over. Where even what was asked for is beyond its
    /// patience, that is no bound.
    pub(super) fn new(
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
            spread: most.mul_f64(chance.clamp(0.0, 1.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn spread(asked: Duration, room: Duration, chance: f64) -> Duration {
        Hold::new(asked, 10, 600 * SECOND, room, chance).spread
    }

    #[test]
    fn up_to_the_percent_of_a_hold_is_added() {
        for (chance, expected) in [(0.0, 0), (0.5, 500), (1.0, 1_000)] {
            let spread = spread(10 * SECOND, 60 * SECOND, chance);
            assert_eq!(spread, Duration::from_millis(expected));
        }
    }

    #[test]
    fn no_hold_is_longer_than_the_longest() {
        let room = 3_600 * SECOND;
        assert_eq!(spread(600 * SECOND, room, 1.0), Duration::ZERO);
        assert_eq!(spread(580 * SECOND, room, 1.0), 20 * SECOND);
    }

    #[test]
    fn the_request_that_was_refused_can_be_sent_again_within_its_patience() {
        assert_eq!(spread(100 * SECOND, 100 * SECOND, 1.0), Duration::ZERO);
        assert_eq!(spread(100 * SECOND, 104 * SECOND, 0.5), 2 * SECOND);
    }

    #[test]
    fn a_hold_beyond_the_patience_is_spread_all_the_same() {
        assert_eq!(spread(100 * SECOND, 99 * SECOND, 1.0), 10 * SECOND);
    }

    #[test]
    fn the_longest_durations_do_not_overflow() {
        let hold = Hold::new(Duration::MAX, 255, Duration::MAX, Duration::MAX, 1.0);
        assert_eq!(hold.spread, Duration::ZERO);
    }
}
