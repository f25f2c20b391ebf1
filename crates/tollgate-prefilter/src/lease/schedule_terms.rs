//! The terms of scheduled leases: leases of units that a bucket does not have yet.

use tollgate_core::{Quota, Tick};

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
    horizon: Tick,
    life: Tick,
    share: u64,
    below: u64,
    rate: u64,
    period: Tick,
}

/// What is granted further ahead is missing for longer if it is not used: 2 s.
const LONGEST: Tick = 2_000_000;

/// The horizon is at most this part of the time in which the bucket fills up.
const PART: Tick = 2;

/// A scheduled lease is at most this part of what is left of the horizon.
const SHARE: u64 = 4;

/// A store keeps what is owed in 32 bits.
const MOST: u64 = (u32::MAX / 2) as u64;

/// Where the largest has fewer units, none is granted.
const PAYS: u64 = 8;

impl ScheduleTerms {
    /// The terms of a bucket with this reserve for tracked leases. `None` if no scheduled lease would be worth it.
    pub(crate) fn new(quota: &Quota, reserve: u64) -> Option<Self> {
        let (rate, period) = (quota.rate(), micros(quota.period().as_micros()));
        let room = quota.limit().saturating_sub(reserve);
        let horizon = (time_of(room, rate, period) / PART).min(LONGEST);
        // As long again, or nearly, for what comes at its end.
        let terms =
            Self::by_hand(rate, period, room, horizon, horizon / 4 * 7)?.in_shares_of(SHARE);
        let most = terms.units(u64::MAX, 0);
        (PAYS..=MOST).contains(&most).then_some(terms)
    }

    /// The same from numbers, for models and tests: `rate` units in `period` µs, the units that are not reserved, the horizon and
    /// the life of a scheduled lease in µs. `None` where the bucket would fill up while a scheduled lease is out.
    pub fn by_hand(rate: u64, period: Tick, room: u64, horizon: Tick, life: Tick) -> Option<Self> {
        let back = u128::from(life) * u128::from(rate);
        let back = u64::try_from(back.div_ceil(u128::from(period.max(1)))).ok()?;
        Some(Self {
            horizon,
            life,
            share: 1,
            below: room.checked_sub(back)?,
            rate,
            period,
        })
    }

    const fn in_shares_of(mut self, share: u64) -> Self {
        self.share = share;
        self
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
        time_of(units, self.rate, self.period)
    }

    /// How far ahead units are granted, in µs.
    pub const fn horizon(&self) -> Tick {
        self.horizon
    }

    /// How long a scheduled lease lives, in µs from when its query was sent.
    pub const fn life(&self) -> Tick {
        self.life
    }

    /// A scheduled lease is granted only where no more units than this are left.
    pub const fn below(&self) -> u64 {
        self.below
    }
}

/// In µs, rounded up.
fn time_of(units: u64, rate: u64, period: Tick) -> Tick {
    let time = (u128::from(units) * u128::from(period)).div_ceil(u128::from(rate.max(1)));
    micros(time)
}

fn micros(wide: u128) -> u64 {
    u64::try_from(wide).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use tollgate_core::{MINUTE, SECOND};

    use super::*;

    #[test]
    fn the_line_is_half_a_bucket_or_two_seconds() {
        let terms = ScheduleTerms::new(&Quota::gcra(1_000, SECOND), 100).expect("it is granted");
        assert_eq!((terms.horizon(), terms.life()), (450_000, 787_500));
        assert_eq!(terms.below(), 1_000 - 100 - 788);
        let terms = ScheduleTerms::new(&Quota::gcra(6_000, MINUTE), 600).expect("it is granted");
        assert_eq!((terms.horizon(), terms.life()), (2_000_000, 3_500_000));
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
        assert_eq!(tight.map(|terms| terms.below()), Some(0));
    }
}
