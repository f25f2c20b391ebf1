//! How many instances share a store, as the local shares count them.

use std::num::NonZeroU32;

use crate::time::Tick;

/// For how long fewer instances have to be known before the shares grow, in microseconds. A deployment, or a heartbeat
/// that came late, must not let everybody grow for a moment.
const LOWER_AFTER: u64 = 30_000_000;

/// The number of instances that the shares are cut for: it grows at once, and falls after a while.
#[derive(Clone, Debug)]
pub(crate) struct Instances {
    /// What the user said. Never fewer.
    least: NonZeroU32,
    counted: NonZeroU32,
    fewer: Option<Fewer>,
}

/// Fewer instances than are counted.
#[derive(Clone, Copy, Debug)]
struct Fewer {
    since: Tick,
    last: Tick,
    /// The most that were known in this time.
    most: NonZeroU32,
}

impl Instances {
    pub(crate) fn new(least: NonZeroU32) -> Self {
        Self {
            least,
            counted: least,
            fewer: None,
        }
    }

    pub(crate) fn least(&self) -> NonZeroU32 {
        self.least
    }

    pub(crate) fn counted(&self) -> NonZeroU32 {
        self.counted
    }

    /// Takes note of what a store knows at `now`, 0 if nothing. True if another number counts from now on.
    pub(crate) fn observe(&mut self, known: u32, now: Tick) -> bool {
        let Some(known) = NonZeroU32::new(known) else {
            // Not to know is no reason to believe that there are fewer.
            self.fewer = None;
            return false;
        };
        let known = known.max(self.least);
        if known >= self.counted {
            self.fewer = None;
            let grown = known > self.counted;
            self.counted = known;
            return grown;
        }
        let anew = Fewer {
            since: now,
            last: now,
            most: known,
        };
        let fewer = match self.fewer {
            // Nobody looks while the store is well: what was known before a longer pause says nothing of the pause.
            Some(fewer) if now.abs_diff(fewer.last) < LOWER_AFTER => Fewer {
                last: now,
                most: fewer.most.max(known),
                ..fewer
            },
            _ => anew,
        };
        if now.saturating_sub(fewer.since) < LOWER_AFTER {
            self.fewer = Some(fewer);
            return false;
        }
        self.counted = fewer.most;
        self.fewer = (known < fewer.most).then_some(anew);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    fn counting(known: u32) -> Instances {
        let mut instances = Instances::new(NonZeroU32::MIN);
        assert!(instances.observe(known, 0));
        instances
    }

    #[test]
    fn more_count_at_once() {
        let mut instances = counting(3);
        assert!(instances.observe(5, 1));
        assert!(!instances.observe(5, 2));
        assert_eq!(instances.counted().get(), 5);
    }

    #[test]
    fn fewer_count_after_half_a_minute() {
        let mut instances = counting(5);
        for second in 100..130 {
            assert!(!instances.observe(3, second * S), "{second}");
        }
        assert!(!instances.observe(3, 130 * S - 1));
        assert!(instances.observe(3, 130 * S));
        assert_eq!(instances.counted().get(), 3);
    }

    #[test]
    fn the_most_of_the_half_minute_counts() {
        let mut instances = counting(5);
        instances.observe(2, 100 * S);
        instances.observe(4, 115 * S);
        assert!(instances.observe(2, 130 * S));
        assert_eq!(instances.counted().get(), 4);
        // And two only if that stays so for as long again.
        instances.observe(2, 145 * S);
        assert!(!instances.observe(2, 159 * S));
        assert!(instances.observe(2, 160 * S));
        assert_eq!(instances.counted().get(), 2);
    }

    #[test]
    fn what_comes_back_or_is_not_known_begins_the_half_minute_anew() {
        for between in [5, 0] {
            let mut instances = counting(5);
            instances.observe(3, 100 * S);
            instances.observe(between, 115 * S);
            assert!(!instances.observe(3, 130 * S), "{between}");
            assert_eq!(instances.counted().get(), 5, "{between}");
        }
    }

    #[test]
    fn a_pause_without_checks_does_not_count() {
        let mut instances = counting(5);
        instances.observe(3, 100 * S);
        assert!(!instances.observe(3, 86_400 * S));
        assert!(!instances.observe(3, 86_429 * S));
        assert!(instances.observe(3, 86_430 * S));
    }

    #[test]
    fn a_clock_that_goes_back_makes_it_later_and_never_earlier() {
        let mut instances = counting(5);
        instances.observe(3, 100 * S);
        assert!(!instances.observe(3, 80 * S));
        assert!(!instances.observe(3, 105 * S));
        assert_eq!(instances.counted().get(), 5);
    }

    #[test]
    fn never_fewer_than_the_user_said() {
        let mut instances = Instances::new(NonZeroU32::new(4).expect("not zero"));
        for seconds in (0..100).step_by(10) {
            assert!(!instances.observe(2, seconds * S));
        }
        assert_eq!(instances.counted().get(), 4);
    }
}
