//! How many instances share a store: a number that grows at once and falls after a while.

use std::{num::NonZeroU32, time::Duration};

use crate::time::{Tick, micros};

/// How long fewer instances have to be known before the number falls, in microseconds. A deployment, a late heartbeat, or a
/// server that lost its states must not lower the count for a moment.
const LOWER_AFTER: u64 = 30_000_000;

/// The number of instances that share a store. It grows at once, and falls to the most of half a minute with fewer.
///
/// For stores that count instances themselves, and for the shares that are cut by their number while a store fails.
#[must_use]
#[derive(Clone, Debug)]
pub struct InstanceCount {
    /// What the user said. Never fewer.
    least: NonZeroU32,
    counted: NonZeroU32,
    longest_pause: u64,
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

impl InstanceCount {
    /// A count that never falls below `least`.
    pub fn new(least: NonZeroU32) -> Self {
        Self {
            least,
            counted: least,
            longest_pause: LOWER_AFTER - 1,
            fewer: None,
        }
    }

    /// Sets the longest pause between two observations of fewer instances. After a longer one nothing is known of the time in
    /// between, and the half minute begins anew. Default: just under half a minute.
    pub fn longest_pause(self, pause: Duration) -> Self {
        Self {
            longest_pause: micros(pause),
            ..self
        }
    }

    /// The least number of instances.
    #[must_use]
    pub fn least(&self) -> NonZeroU32 {
        self.least
    }

    /// The number of instances to count with.
    #[must_use]
    pub fn counted(&self) -> NonZeroU32 {
        self.counted
    }

    /// Notes that `known` instances were seen at `now`; 0 if their number is not known. True if the count has changed.
    pub fn observe(&mut self, known: u32, now: Tick) -> bool {
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
        let last = now;
        let fewer = (self.fewer).filter(|it| now.abs_diff(it.last) <= self.longest_pause);
        let (since, most) = fewer.map_or((now, known), |it| (it.since, it.most.max(known)));
        if now.saturating_sub(since) < LOWER_AFTER {
            self.fewer = Some(Fewer { since, last, most });
            return false;
        }
        self.counted = most;
        self.fewer = (known < most).then_some(Fewer {
            since: now,
            last,
            most: known,
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    fn counting(known: u32) -> InstanceCount {
        let mut instances = InstanceCount::new(NonZeroU32::MIN);
        assert!(instances.observe(known, 0));
        instances
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
    fn one_that_is_back_between_two_looks_begins_the_half_minute_anew() {
        let mut instances = counting(5);
        for (known, second) in [(3, 100), (3, 110), (5, 115), (3, 120), (3, 130)] {
            assert!(!instances.observe(known, second * S), "{second}");
        }
    }

    #[test]
    fn the_longest_pause_counts_and_a_longer_one_does_not() {
        for (longer, is_lowered) in [(0, true), (1, false)] {
            let mut instances = counting(5).longest_pause(Duration::from_secs(15));
            instances.observe(3, 100 * S);
            instances.observe(3, 115 * S + longer);
            assert_eq!(instances.observe(3, 130 * S + longer), is_lowered);
        }
    }

    #[test]
    fn a_clock_that_goes_back_makes_it_later_and_never_earlier() {
        let mut instances = counting(5);
        instances.observe(3, 100 * S);
        assert!(!instances.observe(3, 80 * S));
        assert!(!instances.observe(3, 105 * S));
        assert_eq!(instances.counted().get(), 5);
    }

    /// Each instance comes back to an empty set, and is counted with those that came before; then the set is lost again.
    #[test]
    fn a_set_that_is_young_or_lost_again_and_again_lowers_nothing() {
        for young in 1..=4 {
            let mut instances = counting(4);
            for crash in 0..20 {
                instances.observe(young, 20 * crash * S);
                instances.observe(4, (20 * crash + 5) * S);
                instances.observe(0, (20 * crash + 6) * S);
                assert_eq!(instances.counted().get(), 4);
            }
        }
        let mut lost = counting(4);
        let mut paused = counting(4).longest_pause(Duration::from_secs(15));
        for crash in 0..20 {
            lost.observe(1, 10 * crash * S);
            lost.observe(0, (10 * crash + 1) * S);
            paused.observe(1, 16 * crash * S);
        }
        assert_eq!([lost.counted().get(), paused.counted().get()], [4, 4]);
    }
}
