//! How many instances share the store.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use tokio::time::Instant;

/// How many instances share the store, for requests; 0 before Redis has told.
#[derive(Debug, Default)]
pub(super) struct Instances(AtomicU32);

impl Instances {
    pub(super) fn known(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, count: u32) {
        self.0.store(count, Ordering::Relaxed);
    }
}

/// For how long Redis has to count fewer before the number falls.
///
/// A set of instances that is young, after a restart without a disk, has only those that have come back, and the first one
/// finds itself alone. In this time each that lives has connected again, waited for its breaker, and been heard twice.
const LOWER_AFTER: Duration = Duration::from_secs(30);

/// After a longer pause than this between two counts nothing is known of the time between them.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// What this instance believes of what Redis counts: more at once, and fewer only after a while without a gap.
#[derive(Debug, Default)]
pub(super) struct InstanceCount {
    believed: u32,
    fewer: Option<Fewer>,
}

/// Fewer instances than are believed.
#[derive(Clone, Copy, Debug)]
struct Fewer {
    since: Instant,
    last: Instant,
    /// The most that were counted in this time.
    most: u32,
}

impl InstanceCount {
    /// Redis has counted so many. Gives how many to believe in.
    pub(super) fn counted(&mut self, count: u32, now: Instant) -> u32 {
        if count >= self.believed {
            self.fewer = None;
            self.believed = count;
            return count;
        }
        let anew = Fewer {
            since: now,
            last: now,
            most: count,
        };
        let fewer = match self.fewer {
            Some(fewer) if now.duration_since(fewer.last) <= LONGEST_PAUSE => Fewer {
                last: now,
                most: fewer.most.max(count),
                ..fewer
            },
            _ => anew,
        };
        if now.duration_since(fewer.since) < LOWER_AFTER {
            self.fewer = Some(fewer);
        } else {
            self.believed = fewer.most;
            self.fewer = (count < fewer.most).then_some(anew);
        }
        self.believed
    }

    /// Redis has not counted: what it counted before says nothing of when it does again, for it may have been started anew.
    pub(super) fn miss(&mut self) {
        self.fewer = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An instance that has counted so many, and a clock.
    fn believing(count: u32) -> (InstanceCount, impl Fn(u64) -> Instant) {
        let began = Instant::now();
        let mut instances = InstanceCount::default();
        assert_eq!(instances.counted(count, began), count);
        (instances, move |seconds| {
            began + Duration::from_secs(seconds)
        })
    }

    #[test]
    fn more_are_believed_at_once() {
        let (mut instances, at) = believing(1);
        assert_eq!(instances.counted(4, at(5)), 4);
    }

    #[test]
    fn a_young_set_of_instances_lowers_nothing() {
        for order in 1..=4 {
            let (mut instances, at) = believing(4);
            // Each comes back to an empty set, and is counted with those that came before; then it is lost again.
            for crash in 0..10 {
                assert_eq!(instances.counted(order, at(20 * crash)), 4);
                assert_eq!(instances.counted(4, at(20 * crash + 5)), 4);
                instances.miss();
            }
        }
    }

    #[test]
    fn a_set_that_is_lost_again_and_again_lowers_nothing() {
        let (mut instances, at) = believing(4);
        for crash in 0..20 {
            assert_eq!(instances.counted(1, at(10 * crash)), 4);
            instances.miss();
        }
        // Nor does a pause in which nobody counted.
        let (mut instances, at) = believing(4);
        for pause in 0..20 {
            assert_eq!(instances.counted(1, at(16 * pause)), 4);
        }
    }

    #[test]
    fn fewer_are_believed_after_half_a_minute_and_then_the_most_of_it() {
        let (mut instances, at) = believing(5);
        for second in (100..130).step_by(5) {
            let count = if second == 115 { 3 } else { 2 };
            assert_eq!(instances.counted(count, at(second)), 5, "{second}");
        }
        assert_eq!(instances.counted(2, at(130)), 3);
        for second in (135..160).step_by(5) {
            assert_eq!(instances.counted(2, at(second)), 3, "{second}");
        }
        assert_eq!(instances.counted(2, at(160)), 2);
    }

    #[test]
    fn who_comes_back_begins_the_half_minute_anew() {
        let (mut instances, at) = believing(5);
        assert_eq!(instances.counted(3, at(100)), 5);
        assert_eq!(instances.counted(5, at(110)), 5);
        for second in (115..145).step_by(5) {
            assert_eq!(instances.counted(3, at(second)), 5, "{second}");
        }
        assert_eq!(instances.counted(3, at(145)), 3);
    }
}
