//! The terms of a quota's leases, and what a process and a store say about them.

use tollgate_core::{AlgorithmKind, Quota, Tick, micros, refill_time};

/// How much of a quota may be on lease, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTerms {
    /// The most units that are on lease at once, by all processes together.
    pub reserve: u64,
    /// For how long a tracked lease lives, in µs by the store's clock; not 0. One of a window ends with the window.
    pub tracked_life: Tick,
    /// The length in µs of the windows with which leases end, where the quota counts in windows.
    pub window: Option<Tick>,
    /// On what terms units are granted that the bucket does not have yet, if they are.
    pub schedule: Option<ScheduleTerms>,
}

/// For how long a tracked lease lives, in µs: 10 s. Generations of leases are this long, for readers of a state.
pub(crate) const TRACKED_LIFE: Tick = 10_000_000;

/// Each unit of a log has its own time, and sub-buckets are over before a lease would pay.
const ALGORITHM: &str =
    "its algorithm has no lease; buckets, fixed windows and sliding windows have";

const SMALL: &str =
    "a limit below 20, or a reserve below 2 units, is too small to be granted in leases";

/// Limits below this gain nothing.
const LEAST_LIMIT: u64 = 20;

/// A scheduled lease is at most a fourth of what there is, as a tracked one.
const SHARE: u64 = 4;

/// A smaller reserve is too small for a lease of a useful size.
const LEAST_RESERVE: u64 = 2;

/// A store keeps what is on lease in 32 bits.
const MOST_RESERVE: u64 = u32::MAX as u64;

impl LeaseTerms {
    /// The terms of a quota with this share, in thousandths, on lease at most, and never more than 2^32 − 1 units.
    ///
    /// # Errors
    ///
    /// Why the quota has no lease.
    pub fn new(quota: &Quota, share_permille: u16) -> Result<Self, &'static str> {
        let window = match quota.algorithm() {
            algorithm if algorithm.is_bucket() => None,
            // Windows of a calendar differ in length. Their number is their last microsecond.
            _ if quota.calendar_of().is_some() => Some(1),
            AlgorithmKind::FixedWindow | AlgorithmKind::SlidingWindow => {
                Some(micros(quota.period()))
            }
            _ => return Err(ALGORITHM),
        };
        let limit = quota.limit();
        // A limit is below 2^50.
        let reserve = (limit * u64::from(share_permille.min(1_000)) / 1_000).min(MOST_RESERVE);
        if limit < LEAST_LIMIT || reserve < LEAST_RESERVE {
            return Err(SMALL);
        }
        Ok(Self {
            reserve,
            tracked_life: TRACKED_LIFE,
            window,
            schedule: match window {
                None => ScheduleTerms::new(quota, reserve),
                Some(_) => None,
            },
        })
    }
}

// The terms of scheduled leases: leases of units that a bucket does not have yet.

/// How much of a bucket's future may be granted, and how far ahead.
///
/// A scheduled lease is taken from the bucket at once, below empty if need be, and spent as its units come back: the first of them an
/// interval after all that was taken before has come back. So processes queue for them. The more of the horizon is granted, the
/// smaller the next lease: no process takes it all, and each gets a share.
///
/// ```text
/// query         after           span              life
///   |-------------|---------------|-----------------|      in the process, the first two from the reply on
///                 what was taken  its own units     what is left is lost
///                 before comes    come back
///                 back
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduleTerms {
    /// How far ahead units are granted, in µs.
    pub horizon: Tick,
    /// How long a scheduled lease lives, in µs from when its query was sent.
    pub life: Tick,
    /// A scheduled lease is granted only where no more units than this are left.
    pub below: u64,
    share: u64,
    rate: u64,
    period: Tick,
}

/// What is granted further ahead is missing for longer if it is not used: 2 s.
const LONGEST: Tick = 2_000_000;

/// The horizon is at most this part of the time in which the bucket fills up.
const PART: Tick = 2;

/// A store keeps what is owed in 32 bits.
const MOST: u64 = (u32::MAX / 2) as u64;

/// Where the largest has fewer units, none is granted.
const PAYS: u64 = 8;

impl ScheduleTerms {
    /// The terms of a bucket with this reserve for tracked leases. `None` if no scheduled lease would be worth it.
    pub(crate) fn new(quota: &Quota, reserve: u64) -> Option<Self> {
        let (rate, period) = (quota.rate(), micros(quota.period()));
        let room = quota.limit().saturating_sub(reserve);
        let horizon = (refill_time(room, rate, period) / PART).min(LONGEST);
        // As long again, or nearly, for what comes at its end.
        let mut terms = Self::by_hand(rate, period, room, horizon, horizon / 4 * 7)?;
        terms.share = SHARE;
        let most = terms.units(u64::MAX, 0);
        (PAYS..=MOST).contains(&most).then_some(terms)
    }

    /// The same from numbers, for models and tests: `rate` units in `period` µs, the units that are not reserved, the horizon and
    /// the life of a scheduled lease in µs. `None` where the bucket would fill up while a scheduled lease is out.
    pub fn by_hand(rate: u64, period: Tick, room: u64, horizon: Tick, life: Tick) -> Option<Self> {
        let product = u128::from(life) * u128::from(rate);
        let back = u64::try_from(product.div_ceil(u128::from(period.max(1)))).ok()?;
        Some(Self {
            horizon,
            life,
            share: 1,
            below: room.checked_sub(back)?,
            rate,
            period,
        })
    }

    /// The size of a scheduled lease if `wanted` units are requested, and what was taken before is refilled within `after` µs; 0:
    /// none.
    pub fn units(&self, wanted: u64, after: Tick) -> u64 {
        let time = self.horizon.saturating_sub(after) / self.share.max(1);
        let units = u128::from(time) * u128::from(self.rate) / u128::from(self.period.max(1));
        u64::try_from(units).unwrap_or(u64::MAX).min(wanted)
    }

    /// The time in µs in which these units come back.
    pub fn span(&self, units: u64) -> Tick {
        refill_time(units, self.rate, self.period)
    }
}

// What a store grants, and what a process says about leases in a query.

/// A lease as a store grants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// Tracked by the store until it expires, so that unspent units can be returned.
    Tracked {
        /// Units.
        units: u64,
        /// The number by which the store tracks it: of a generation, or of a window.
        generation: u64,
    },
    /// Units that will be refilled soon, to be spent as they are. Unspent units are lost.
    Scheduled {
        /// Units.
        units: u64,
        /// After how many µs their refill begins: until then, what was taken before is refilled.
        after: Tick,
    },
}

impl Grant {
    /// Its units.
    pub const fn units(&self) -> u64 {
        match self {
            Self::Tracked { units, .. } | Self::Scheduled { units, .. } => *units,
        }
    }
}

/// A tracked lease that a process returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReturnedLease {
    /// The units it was granted with.
    pub size: u64,
    /// The units that were not spent.
    pub left: u64,
    /// The number by which the store tracks it.
    pub generation: u64,
}

/// What a process says about leases in a query to the store. The default requests none and returns none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseQuery {
    /// A lease that is returned.
    pub returned: Option<ReturnedLease>,
    /// Units wanted in a tracked lease.
    pub tracked: u64,
    /// Units wanted in a scheduled lease, if the bucket is empty.
    pub scheduled: u64,
}

impl LeaseQuery {
    /// The same that returns this lease.
    pub const fn with_returned(mut self, returned: Option<ReturnedLease>) -> Self {
        self.returned = returned;
        self
    }

    /// Whether it neither requests nor returns a lease.
    pub const fn is_empty(&self) -> bool {
        self.returned.is_none() && !self.requests_grant()
    }

    /// Whether it requests a lease.
    pub const fn requests_grant(&self) -> bool {
        self.tracked > 0 || self.scheduled > 0
    }
}

// For how long the bucket has had nothing to grant, and how large a scheduled lease is worth it.

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
    pub(crate) fn on_grant(&mut self, now: Tick, grant: Option<&Grant>) {
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
    use tollgate_core::{MINUTE, Quota, SECOND};

    use super::*;

    #[test]
    fn no_more_is_on_lease_than_a_store_can_count() {
        let bytes = Quota::token_bucket(100_000_000_000).refill(1_000_000_000, SECOND);
        let terms = LeaseTerms::new(&bytes, 500).expect("it is granted");
        assert_eq!(terms.reserve, u64::from(u32::MAX));
    }

    #[test]
    fn what_cannot_be_granted_says_why() {
        let of = |quota: Quota, permille| LeaseTerms::new(&quota, permille);
        assert_eq!(of(Quota::gcra(19, SECOND), 500), Err(SMALL));
        assert_eq!(of(Quota::gcra(1_000, SECOND), 1), Err(SMALL));
        assert_eq!(
            of(Quota::sliding_buckets(1_000, MINUTE), 500),
            Err(ALGORITHM)
        );
    }

    #[test]
    fn the_smallest_limit_that_is_granted_has_20_units_and_two_of_them_in_reserve() {
        let reserve = |limit, permille| {
            let terms = LeaseTerms::new(&Quota::fixed_window(limit, MINUTE), permille);
            terms.map(|terms| terms.reserve)
        };
        assert_eq!(reserve(20, 100), Ok(2));
        assert_eq!(reserve(20, 99), Err(SMALL));
        assert_eq!(reserve(19, 1_000), Err(SMALL));
        assert_eq!(reserve(20, 1_000), Ok(20));
    }

    #[test]
    fn the_line_is_half_a_bucket_or_two_seconds() {
        let terms = ScheduleTerms::new(&Quota::gcra(1_000, SECOND), 100).expect("it is granted");
        assert_eq!((terms.horizon, terms.life), (450_000, 787_500));
        assert_eq!(terms.below, 1_000 - 100 - 788);
        let terms = ScheduleTerms::new(&Quota::gcra(6_000, MINUTE), 600).expect("it is granted");
        assert_eq!((terms.horizon, terms.life), (2_000_000, 3_500_000));
        assert_eq!(terms.span(7), 70_000);
    }

    #[test]
    fn scheduled_leases_become_small_as_the_line_becomes_long() {
        let terms = ScheduleTerms::new(&Quota::gcra(1_000, SECOND), 100).expect("it is granted");
        assert_eq!((terms.units(7, 0), terms.units(1_000, 0)), (7, 112));
        assert_eq!(terms.units(1_000, 250_000), 50);
        assert_eq!((terms.units(7, 446_000), terms.units(7, 446_001)), (1, 0));
        assert_eq!(terms.units(7, 1_000_000), 0);
    }

    #[test]
    fn a_bucket_that_gives_a_unit_a_second_has_none() {
        assert_eq!(ScheduleTerms::new(&Quota::gcra(60, MINUTE), 6), None);
    }

    #[test]
    fn where_a_scheduled_lease_would_outlive_the_time_to_full_there_is_none() {
        assert_eq!(ScheduleTerms::by_hand(1, 1, 6, 2, 7), None);
        let tight = ScheduleTerms::by_hand(1, 1, 7, 2, 7);
        assert_eq!(tight.map(|terms| terms.below), Some(0));
    }

    const START: Tick = 1_000_000_000;

    fn terms() -> ScheduleTerms {
        ScheduleTerms::new(&Quota::gcra(1_000, SECOND), 100).expect("it is granted")
    }

    #[test]
    fn none_is_asked_for_until_nothing_was_granted_for_a_while() {
        let (mut sizer, terms) = (ScheduledLeaseSizer::default(), terms());
        assert_eq!(sizer.next_size(START, 100, &terms), 0);
        sizer.on_grant(START, None);
        let then = START + terms.horizon / 4;
        sizer.on_grant(then - 2_000, None);
        assert_eq!(sizer.next_size(then - 2_000, 100, &terms), 0);
        assert_eq!(sizer.next_size(then, 100, &terms), 8);
        let generation = 7;
        sizer.on_grant(
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
        sizer.on_grant(START, None);
        sizer.on_query_after(1_999_999);
        assert_eq!(sizer.next_size(START + 3_000_000, 100, &terms), 8);
        sizer.on_query_after(2_000_000);
        assert_eq!(sizer.next_size(START + 5_000_000, 100, &terms), 0);
    }

    #[test]
    fn they_grow_while_they_are_spent_and_shrink_to_what_is_spent() {
        let (mut sizer, terms) = (ScheduledLeaseSizer::default(), terms());
        sizer.on_grant(START, None);
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
