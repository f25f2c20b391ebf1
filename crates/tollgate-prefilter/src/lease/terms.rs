//! The terms of a quota's leases.

use tollgate_core::{AlgorithmKind, Quota, Tick};

use crate::lease::schedule_terms::ScheduleTerms;

/// How much of a quota may be on lease, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTerms {
    reserve: u64,
    tracked_life: Tick,
    window: Option<Tick>,
    share: u64,
    least: u64,
    schedule: Option<ScheduleTerms>,
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

/// A lease is at most a fourth of what is left, and a fourth of what may still be on lease: leases become small as either runs out,
/// and near the limit every unit is requested from the store.
const SHARE: u64 = 4;

/// A lease of one unit spares no call.
const LEAST_GRANT: u64 = 2;

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
            AlgorithmKind::TokenBucket | AlgorithmKind::Gcra | AlgorithmKind::LeakyBucket => None,
            // Windows of a calendar differ in length. Their number is their last microsecond.
            _ if quota.calendar_of().is_some() => Some(1),
            AlgorithmKind::FixedWindow | AlgorithmKind::SlidingWindow => {
                Some(micros(quota.period().as_micros()))
            }
            _ => return Err(ALGORITHM),
        };
        let limit = quota.limit();
        // A limit is below 2^50.
        let reserve = limit * u64::from(share_permille.min(1_000)) / 1_000;
        let reserve = reserve.min(MOST_RESERVE);
        if limit < LEAST_LIMIT || reserve < LEAST_RESERVE {
            return Err(SMALL);
        }
        Ok(Self {
            reserve,
            tracked_life: TRACKED_LIFE,
            window,
            share: SHARE,
            least: LEAST_GRANT,
            schedule: match window {
                None => ScheduleTerms::new(quota, reserve),
                Some(_) => None,
            },
        })
    }

    /// Terms of a bucket from numbers, for models and tests: the reserve, and for how long leases live.
    pub const fn of_bucket(reserve: u64, tracked_life: Tick) -> Self {
        Self {
            reserve,
            // Time is divided by it.
            tracked_life: if tracked_life == 0 { 1 } else { tracked_life },
            window: None,
            share: SHARE,
            least: LEAST_GRANT,
            schedule: None,
        }
    }

    /// Terms of a quota that counts in windows, from numbers: the reserve, and the length of the windows in µs. With windows of 0
    /// nothing is granted.
    pub const fn of_window(reserve: u64, window: Tick) -> Self {
        Self {
            window: Some(window),
            ..Self::of_bucket(reserve, TRACKED_LIFE)
        }
    }

    /// The same with leases of at most the `share`-th part of what is left and of what may still be on lease, and of at least
    /// `least` units. Default: 4 and 2.
    pub const fn in_grants_of(mut self, share: u64, least: u64) -> Self {
        (self.share, self.least) = (share, least);
        self
    }

    /// The same with scheduled leases on these terms, or with none.
    pub const fn with_schedule(mut self, schedule: Option<ScheduleTerms>) -> Self {
        self.schedule = schedule;
        self
    }

    /// The size of a lease if `wanted` units are requested, `level` are left and `room` may still be on lease; 0: none.
    pub fn grant(&self, wanted: u64, level: u64, room: u64) -> u64 {
        let share = self.share.max(1);
        let units = wanted.min(level / share).min(room.div_ceil(share));
        if units < self.least.max(1) { 0 } else { units }
    }

    /// The most units that are on lease at once, by all processes together.
    pub const fn reserve(&self) -> u64 {
        self.reserve
    }

    /// For how long a tracked lease lives, in µs by the store's clock. One of a window ends with the window.
    pub const fn tracked_life(&self) -> Tick {
        self.tracked_life
    }

    /// On what terms units are granted that the bucket does not have yet, if they are.
    pub const fn schedule(&self) -> Option<&ScheduleTerms> {
        self.schedule.as_ref()
    }

    /// The length in µs of the windows with which leases end, where the quota counts in windows.
    pub const fn window(&self) -> Option<Tick> {
        self.window
    }
}

fn micros(wide: u128) -> u64 {
    u64::try_from(wide).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::{MINUTE, SECOND};

    #[test]
    fn leases_become_small_as_either_runs_out() {
        let terms = LeaseTerms::of_bucket(100, 10);
        assert_eq!(terms.grant(1_000, 1_000, 100), 25);
        assert_eq!(terms.grant(1_000, 40, 100), 10);
        assert_eq!(terms.grant(7, 1_000, 100), 7);
        assert_eq!(terms.grant(1, 1_000, 100), 0);
        assert_eq!(terms.grant(1_000, 7, 100), 0);
        assert_eq!(terms.grant(1_000, 1_000, 4), 0);
    }

    #[test]
    fn no_more_is_on_lease_than_a_store_can_count() {
        let bytes = Quota::token_bucket(100_000_000_000).refill(1_000_000_000, SECOND);
        let terms = LeaseTerms::new(&bytes, 500).expect("it is granted");
        assert_eq!(terms.reserve(), u64::from(u32::MAX));
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
            terms.map(|terms| terms.reserve())
        };
        assert_eq!(reserve(20, 100), Ok(2));
        assert_eq!(reserve(20, 99), Err(SMALL));
        assert_eq!(reserve(19, 1_000), Err(SMALL));
        assert_eq!(reserve(20, 1_000), Ok(20));
    }
}
