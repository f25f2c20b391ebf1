//! For how long the bucket has had nothing to lend, and how large a segment is worth it.

use tollgate_core::Tick;

use crate::lease::{lot::Lot, segments::SegmentTerms};

/// What is left of a segment is lost, and a burst of requests leaves much of it. So none is asked for until nothing was lent
/// for a while, and none that is much larger than what was spent of the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Thirst {
    /// Since when nothing was lent but segments, in ms; 0 where that is not so.
    since: u32,
    /// The units at most of the next segment; 0: not known yet.
    most: u32,
}

/// The size of the first segment.
const FIRST: u32 = 8;

/// Who has not asked for so long knows nothing any more: 2 s. At a limit that is held a process asks once a second at least.
const SILENCE: Tick = 2_000_000;

impl Thirst {
    /// A question is asked, so long after the one before.
    pub(crate) fn asks_after(&mut self, pause: Tick) {
        if pause >= SILENCE {
            self.since = 0;
        }
    }

    /// Something was asked for.
    pub(crate) fn answered(&mut self, now: Tick, lot: Option<&Lot>) {
        match lot {
            Some(Lot::Segment { .. }) => {}
            Some(_) => self.since = 0,
            None if self.since == 0 => self.since = millis(now),
            None => {}
        }
    }

    /// A segment is over, and so many of its units were not spent.
    pub(crate) fn drank(&mut self, size: u64, left: u64) {
        let spent = size.saturating_sub(left);
        let most = if left == 0 { size * 2 } else { spent };
        self.most = u32::try_from(most).unwrap_or(u32::MAX).max(1);
    }

    /// The size of the segment to ask for, where so many units are likely asked for in its time.
    pub(crate) fn wants(&self, now: Tick, demand: u64, terms: &SegmentTerms) -> u64 {
        let dry = millis(now).wrapping_sub(self.since);
        if self.since == 0 || Tick::from(dry) < terms.line() / 4_000 {
            return 0;
        }
        let most = if self.most == 0 { FIRST } else { self.most };
        terms.units(demand.max(1).min(u64::from(most)), 0)
    }
}

/// An odd number, so that it is not 0. They come again after 49 days; differences do not.
fn millis(now: Tick) -> u32 {
    (now / 1_000) as u32 | 1
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Quota, SECOND};

    use super::*;

    const START: Tick = 1_000_000_000;

    fn terms() -> SegmentTerms {
        SegmentTerms::new(&Quota::gcra(1_000, SECOND), 100).expect("it is lent")
    }

    #[test]
    fn none_is_asked_for_until_nothing_was_lent_for_a_while() {
        let (mut thirst, terms) = (Thirst::default(), terms());
        assert_eq!(thirst.wants(START, 100, &terms), 0);
        thirst.answered(START, None);
        let then = START + terms.line() / 4;
        thirst.answered(then - 2_000, None);
        assert_eq!(thirst.wants(then - 2_000, 100, &terms), 0);
        assert_eq!(thirst.wants(then, 100, &terms), 8);
        let generation = 7;
        thirst.answered(
            then,
            Some(&Lot::Parking {
                units: 2,
                generation,
            }),
        );
        assert_eq!(thirst.wants(then, 100, &terms), 0);
    }

    #[test]
    fn who_has_not_asked_for_two_seconds_begins_anew() {
        let (mut thirst, terms) = (Thirst::default(), terms());
        thirst.answered(START, None);
        thirst.asks_after(1_999_999);
        assert_eq!(thirst.wants(START + 3_000_000, 100, &terms), 8);
        thirst.asks_after(2_000_000);
        assert_eq!(thirst.wants(START + 5_000_000, 100, &terms), 0);
    }

    #[test]
    fn they_grow_while_they_are_spent_and_shrink_to_what_is_spent() {
        let (mut thirst, terms) = (Thirst::default(), terms());
        thirst.answered(START, None);
        let then = START + SECOND.as_micros() as u64;
        thirst.drank(8, 0);
        assert_eq!(thirst.wants(then, 100, &terms), 16);
        assert_eq!(thirst.wants(then, 11, &terms), 11);
        thirst.drank(16, 11);
        assert_eq!(thirst.wants(then, 100, &terms), 5);
        // However little is asked for: a unit at least.
        thirst.drank(5, 5);
        assert_eq!(thirst.wants(then, 0, &terms), 1);
        thirst.drank(1, 0);
        assert_eq!(thirst.wants(then, 100, &terms), 2);
    }

    #[test]
    fn none_is_larger_than_the_terms_have() {
        let (mut thirst, terms) = (Thirst::default(), terms());
        thirst.answered(START, None);
        thirst.drank(100, 0);
        let then = START + SECOND.as_micros() as u64;
        assert_eq!(thirst.wants(then, 1_000, &terms), 112);
    }
}
