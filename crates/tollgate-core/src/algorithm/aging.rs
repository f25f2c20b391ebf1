//! Units that are let go in the order in which they were taken: of sub-buckets, and of a log.

use crate::{
    algorithm::assessment::{Algorithm, Assessment, DenyBound, Retry},
    time::{Tick, micros},
};

/// A quota that remembers units by a mark, which grows with the time at which they were taken.
pub(super) trait Aging: Algorithm {
    fn limit(&self) -> u64;

    /// The marks that count with their units, the oldest first. Those of the future count, so that time that goes back never refills.
    fn counting<'a>(
        &'a self,
        state: &'a Self::State,
        now: Tick,
    ) -> impl DoubleEndedIterator<Item = (u64, u64)> + 'a;

    /// The mark of units that are taken at `now`.
    fn mark(&self, state: &Self::State, now: Tick) -> u64;

    /// Where a denial at `now` leaves a mark, which repairs what lies ahead.
    fn repaired(&self, state: &Self::State, mark: u64, now: Tick) -> u64;

    /// When units with this mark stop to count.
    fn gone_at(&self, mark: u64) -> Tick;

    fn used(&self, state: &Self::State, now: Tick) -> u64 {
        self.counting(state, now).map(|(_, units)| units).sum()
    }

    fn newest_used(&self, state: &Self::State, now: Tick) -> Option<u64> {
        let mut newest_first = self.counting(state, now).rev();
        newest_first.find_map(|(mark, units)| (units > 0).then_some(mark))
    }

    /// The mark with which so many units are gone. `None`: there are fewer.
    fn goes_with(&self, state: &Self::State, now: Tick, mut must_go: u64) -> Option<u64> {
        let mut oldest_first = self.counting(state, now);
        oldest_first.find_map(|(mark, units)| {
            must_go = must_go.saturating_sub(units);
            (must_go == 0).then_some(mark)
        })
    }

    fn denial(&self, state: &Self::State, now: Tick, cost: u64) -> Assessment {
        let used = self.used(state, now);
        let must_go = (used + cost.min(self.limit())).saturating_sub(self.limit());
        let goes = self.goes_with(state, now, must_go);
        let wait = |mark| {
            let gone_at = self.gone_at(self.repaired(state, mark, now));
            gone_at.saturating_sub(now)
        };
        Assessment {
            fits: false,
            remaining: self.limit().saturating_sub(used),
            reset_after: self.newest_used(state, now).map_or(0, wait),
            retry: match goes.filter(|_| cost <= self.limit()) {
                Some(mark) => Retry::after_micros(wait(mark)),
                None => Retry::Never,
            },
        }
    }

    fn assess_aging(&self, state: &Self::State, now: Tick, cost: u64) -> Assessment {
        let left = self.limit().saturating_sub(self.used(state, now));
        if cost > left {
            return self.denial(state, now, cost);
        }
        let newest = match cost {
            0 => self.newest_used(state, now),
            _ => Some(self.mark(state, now)),
        };
        let remaining = left - cost;
        let wait = |mark| self.gone_at(mark).saturating_sub(now);
        let reset_after = newest.map_or(0, wait);
        Assessment {
            fits: true,
            remaining,
            reset_after,
            retry: if remaining == 0 && cost == 0 {
                self.denial(state, now, 1).retry
            } else if remaining < cost {
                // Once more, without the units that must go; at last those that are taken now.
                let goes = self.goes_with(state, now, cost - remaining);
                Retry::after_micros(goes.map_or(reset_after, wait))
            } else {
                Retry::Now
            },
        }
    }

    /// Until when a denial of one unit holds, and until when anything counts: until the oldest units go, nothing changes. `None` where
    /// some units are left.
    fn bound_of_one(&self, state: &Self::State, now: Tick) -> Option<DenyBound> {
        let one = self.denial(state, now, 1);
        match one.retry {
            Retry::After(wait) if one.remaining == 0 => {
                Some(DenyBound(now + micros(wait), now + one.reset_after))
            }
            _ => None,
        }
    }
}

/// Denies one unit by such a bound.
pub(super) fn deny_one(bound: DenyBound, now: Tick, cost: u64) -> Option<Assessment> {
    (cost == 1 && now < bound.0).then(|| Assessment {
        fits: false,
        remaining: 0,
        reset_after: bound.1.saturating_sub(now),
        retry: Retry::after_micros(bound.0 - now),
    })
}
