//! For how long the bucket has had nothing to grant, and how large a scheduled lease is worth it.

use tollgate_core::Tick;

use crate::lease::{grant::Grant, terms::ScheduleTerms};

/// What is left of a scheduled lease is lost, and a burst of requests leaves much of it. So none is requested until nothing was granted
/// for a while, and none that is much larger than what was spent of the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScheduledLeaseSizer {
    /// Since when nothing was granted but scheduled leases, in ms; 0 where that is not so.
    since: u32,
    /// The units at most of the next scheduled lease; 0: not known yet.
    most: u32,
}

/// The size of the first scheduled lease.
const FIRST: u32 = 8;

/// After 2 s without a query, nothing is known any more. At its limit, a process queries at least once a second.
const SILENCE: Tick = 2_000_000;

impl ScheduledLeaseSizer {
    /// A query is sent, after a `pause` since the one before.
    pub(crate) fn on_query_after(&mut self, pause: Tick) {
        if pause >= SILENCE {
            self.since = 0;
        }
    }

    /// The store has replied.
    pub(crate) fn on_reply(&mut self, now: Tick, grant: Option<&Grant>) {
        match grant {
            Some(Grant::Scheduled { .. }) => {}
            Some(_) => self.since = 0,
            None if self.since == 0 => self.since = millis(now),
            None => {}
        }
    }

    /// A scheduled lease is over, and `left` of its units were not spent.
    pub(crate) fn on_expired(&mut self, size: u64, left: u64) {
        let spent = size.saturating_sub(left);
        let most = if left == 0 { size * 2 } else { spent };
        self.most = u32::try_from(most).unwrap_or(u32::MAX).max(1);
    }

    /// The size of the scheduled lease to request, if requests will likely need `demand` units in its time.
    pub(crate) fn next_size(&self, now: Tick, demand: u64, terms: &ScheduleTerms) -> u64 {
        let dry = millis(now).wrapping_sub(self.since);
        if self.since == 0 || Tick::from(dry) < terms.horizon / 4_000 {
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

    fn terms() -> ScheduleTerms {
        ScheduleTerms::new(&Quota::gcra(1_000, SECOND), 100).expect("it is granted")
    }

    #[test]
    fn none_is_asked_for_until_nothing_was_granted_for_a_while() {
        let (mut sizer, terms) = (ScheduledLeaseSizer::default(), terms());
        assert_eq!(sizer.next_size(START, 100, &terms), 0);
        sizer.on_reply(START, None);
        let then = START + terms.horizon / 4;
        sizer.on_reply(then - 2_000, None);
        assert_eq!(sizer.next_size(then - 2_000, 100, &terms), 0);
        assert_eq!(sizer.next_size(then, 100, &terms), 8);
        let generation = 7;
        sizer.on_reply(
            then,
            Some(&Grant::Tracked {
                units: 2,
                generation,
            }),
        );
        assert_eq!(sizer.next_size(then, 100, &terms), 0);
    }

    #[test]
    fn who_has_not_asked_for_two_seconds_begins_anew() {
        let (mut sizer, terms) = (ScheduledLeaseSizer::default(), terms());
        sizer.on_reply(START, None);
        sizer.on_query_after(1_999_999);
        assert_eq!(sizer.next_size(START + 3_000_000, 100, &terms), 8);
        sizer.on_query_after(2_000_000);
        assert_eq!(sizer.next_size(START + 5_000_000, 100, &terms), 0);
    }

    #[test]
    fn they_grow_while_they_are_spent_and_shrink_to_what_is_spent() {
        let (mut sizer, terms) = (ScheduledLeaseSizer::default(), terms());
        sizer.on_reply(START, None);
        let then = START + SECOND.as_micros() as u64;
        sizer.on_expired(8, 0);
        assert_eq!(sizer.next_size(then, 100, &terms), 16);
        assert_eq!(sizer.next_size(then, 11, &terms), 11);
        sizer.on_expired(16, 11);
        assert_eq!(sizer.next_size(then, 100, &terms), 5);
        // At least a unit.
        sizer.on_expired(5, 5);
        assert_eq!(sizer.next_size(then, 0, &terms), 1);
        sizer.on_expired(1, 0);
        assert_eq!(sizer.next_size(then, 100, &terms), 2);
    }
}
