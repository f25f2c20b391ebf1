//! Sliding window in sub-buckets: a hard limit in any window, at a fixed size.
//!
//! # Promise
//!
//! In every window of length `W`, whatever its start, at most
//!
//! ```text
//! limit
//! ```
//!
//! units are admitted. The window is cut into `n` aligned sub-buckets of `d = ⌈W / n⌉` µs (60 unless
//! [said otherwise](crate::Quota::buckets)). A sub-bucket counts whole for as long as the window touches it: the estimate
//! is never too low.
//!
//! # Worst case
//!
//! It is the client that pays for the cut. A unit counts for at least `W` and at most `(n + 1) · d`, which is
//! `W · (1 + 1/n)` if `n` divides `W`: with 60 sub-buckets a steady client gets a sixtieth less than its limit. An
//! interpolated count of the oldest sub-bucket would spare it that, and admit 102 to 111 for a limit of 100; this one
//! never admits 101.
//!
//! # State
//!
//! The number of the newest sub-bucket, and `n + 1` counts of 4 bytes on the heap, from the first unit on: 53 to 80 bytes a key in
//! the memory store, and 244 with 60 sub-buckets. A decision adds up the counts.
//!
//! # When to take it, and when not
//!
//! Take it where the limit is a promise and too large for a [`sliding_log`](super::sliding_log). Fewer sub-buckets cost
//! less memory and let go later. Not for millions of keys where an estimate will do: a
//! [`sliding_window`](super::sliding_window) needs a fifth of the memory. Limits up to `u32::MAX`.
//!
//! # Examples
//!
//! ```
//! use tollgate_core::{MINUTE, Quota, Retry, algorithm::{Algorithm, SlidingBuckets}};
//!
//! let quota = SlidingBuckets::new(&Quota::sliding_buckets(100, MINUTE)).expect("a valid quota");
//! let mut state = Default::default();
//! // A quarter into a sub-bucket of one second.
//! let now = 1_700_000_000_250_000;
//! quota.take(&mut state, now, 100);
//! // A minute, and what was left of the sub-bucket.
//! assert_eq!(quota.assess(&state, now, 1).retry, Retry::after_micros(60_750_000));
//! assert!(quota.assess(&state, now + 60_750_000, 100).fits);
//! ```
//!
//! With fewer sub-buckets:
//!
//! ```
//! use tollgate_core::{
//!     HOUR, Quota,
//!     algorithm::{Algorithm, SlidingBuckets},
//! };
//!
//! let quota = Quota::sliding_buckets(1_000, HOUR).buckets(6);
//! let quota = SlidingBuckets::new(&quota).expect("a valid quota");
//! let mut state = Default::default();
//! quota.take(&mut state, 1_700_000_000_000_000, 1);
//! assert_eq!(SlidingBuckets::heap_bytes(&state), 28);
//! ```

use std::mem;

use crate::{
    algorithm::{
        aging::{Aging, deny_one},
        assessment::{Algorithm, Assessment, DenyBound, Taken},
    },
    algorithm_kind::AlgorithmKind,
    quota::Quota,
    time::{Tick, micros},
};

/// A sliding window in sub-buckets, made ready. See the [module documentation](self).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlidingBuckets {
    limit: u64,
    /// The width of a sub-bucket in µs, rounded up.
    width: u64,
    /// Sub-buckets in a window.
    buckets: u64,
}

/// 24 bytes, and from the first unit on 4 bytes a sub-bucket on the heap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlidingBucketsState {
    /// The number of the newest sub-bucket since the epoch.
    newest: u64,
    /// Those of the sub-buckets up to the newest, the oldest first.
    units: Box<[u32]>,
}

impl SlidingBucketsState {
    /// After a refund: of a state without units nothing is left, also not how far a clock that went back was ahead.
    fn begin_anew_if_empty(&mut self) {
        if self.units.iter().all(|units| *units == 0) {
            *self = Self::default();
        }
    }
}

impl SlidingBuckets {
    /// Sub-buckets that count at an instant: the current one, and all that overlap the window before it.
    fn len(&self) -> u64 {
        self.buckets + 1
    }

    /// The number of the sub-bucket that stands for `now`. A state of the future counts as it is, so that time that
    /// goes back never refills.
    fn number(&self, state: &SlidingBucketsState, now: Tick) -> u64 {
        (now / self.width).max(state.newest)
    }

    /// Where a repair leaves the newest sub-bucket: no further ahead than the next one.
    ///
    /// Not in the sub-bucket of `now`: what was taken at the start of the newest one would be let go a sub-bucket early.
    /// And not so near to the epoch that the oldest would lie before it.
    fn repaired_newest(&self, newest: u64, now: Tick) -> u64 {
        let next = (now / self.width).saturating_add(1);
        newest.min(next.max(self.buckets))
    }

    /// Whether the newest sub-bucket holds units and lies where a repair at `now` would leave it.
    fn is_settled(&self, state: &SlidingBucketsState, now: Tick) -> bool {
        self.newest_used(state, 0) == Some(self.repaired_newest(state.newest, now))
    }

    /// Makes `number` the newest sub-bucket.
    fn advance(&self, state: &mut SlidingBucketsState, number: u64) {
        let len = self.len();
        if state.units.len() as u64 != len {
            state.units = vec![0; len as usize].into_boxed_slice();
            state.newest = number;
            return;
        }
        // At most all of them.
        let gone = number.saturating_sub(state.newest).min(len) as usize;
        state.units[..gone].fill(0);
        state.units.rotate_left(gone);
        state.newest = state.newest.max(number);
    }
}

impl Aging for SlidingBuckets {
    fn limit(&self) -> u64 {
        self.limit
    }

    fn counting<'a>(
        &'a self,
        state: &'a SlidingBucketsState,
        now: Tick,
    ) -> impl DoubleEndedIterator<Item = (u64, u64)> + 'a {
        let oldest = self.number(state, now).saturating_sub(self.buckets);
        let (newest, units) = (state.newest, state.units.iter().rev().enumerate().rev());
        units.filter_map(move |(age, units)| {
            let number = newest.checked_sub(age as u64)?;
            (number >= oldest).then_some((number, u64::from(*units)))
        })
    }

    fn mark(&self, state: &SlidingBucketsState, now: Tick) -> u64 {
        self.number(state, now)
    }

    /// Those that lie beyond move to it. The others stay: each denial by a clock that is behind would age them.
    fn repaired(&self, _state: &SlidingBucketsState, number: u64, now: Tick) -> u64 {
        self.repaired_newest(number, now)
    }

    fn gone_at(&self, number: u64) -> Tick {
        number.saturating_add(self.len()).saturating_mul(self.width)
    }
}

impl Algorithm for SlidingBuckets {
    type State = SlidingBucketsState;
    const HAS_HEAP: bool = true;

    fn new(quota: &Quota) -> Option<Self> {
        let quota = quota.valid_for(AlgorithmKind::SlidingBuckets)?;
        let buckets = u64::from(quota.bucket_count());
        Some(Self {
            limit: quota.limit(),
            width: micros(quota.period()).div_ceil(buckets),
            buckets,
        })
    }

    fn assess(&self, state: &SlidingBucketsState, now: Tick, cost: u64) -> Assessment {
        self.assess_aging(state, now, cost)
    }

    fn take(&self, state: &mut SlidingBucketsState, now: Tick, cost: u64) {
        if cost == 0 {
            return;
        }
        let number = self.number(state, now);
        self.advance(state, number);
        if let [.., units] = &mut *state.units {
            // At most the limit, which validation keeps within 32 bits.
            *units = units.saturating_add(u32::try_from(cost).unwrap_or(u32::MAX));
        }
    }

    fn repair(&self, state: &mut SlidingBucketsState, now: Tick) {
        let newest = self.repaired_newest(state.newest, now);
        let most = state.units.len().saturating_sub(1);
        let beyond = (state.newest - newest).min(most as u64) as usize;
        let (stay, move_back) = state.units.split_at_mut(state.units.len() - beyond);
        if let [.., last] = stay {
            for units in move_back {
                *last = last.saturating_add(mem::take(units));
            }
        }
        state.units.rotate_right(beyond);
        state.newest = newest;
    }

    fn refund(&self, state: &mut SlidingBucketsState, _now: Tick, taken: Taken, cost: u64) {
        let number = (taken.fresh_at / self.width).saturating_sub(self.len());
        let age = state.newest.checked_sub(number);
        let mut newest_first = state.units.iter_mut().rev();
        if let Some(units) = age.and_then(|age| newest_first.nth(usize::try_from(age).ok()?)) {
            *units = units.saturating_sub(u32::try_from(cost).unwrap_or(u32::MAX));
            state.begin_anew_if_empty();
        }
    }

    fn refund_converted(
        &self,
        before: &Self,
        state: &mut SlidingBucketsState,
        now: Tick,
        taken: Taken,
        cost: u64,
    ) {
        if before.width == self.width && before.buckets == self.buckets {
            self.refund(state, now, taken, cost);
            return;
        }
        // They were carried over into the sub-bucket in which they were taken, or a later one, if they counted until now.
        let first = taken.at / self.width;
        let number = self.number(state, now);
        if now >= taken.fresh_at || first < number.saturating_sub(self.buckets) {
            return;
        }
        let mut rest = u32::try_from(cost).unwrap_or(u32::MAX);
        let newer = state.newest.saturating_add(1).saturating_sub(first);
        let older = (state.units.len() as u64).saturating_sub(newer);
        for units in &mut state.units[older as usize..] {
            let back = rest.min(*units);
            (*units, rest) = (*units - back, rest - back);
        }
        state.begin_anew_if_empty();
    }

    fn fresh_at(&self, state: &SlidingBucketsState) -> Tick {
        // The newest sub-bucket is the first one looked at, and only refunds leave it empty.
        self.newest_used(state, 0)
            .map_or(0, |number| self.gone_at(number))
    }

    fn is_ahead(&self, state: &SlidingBucketsState, now: Tick) -> bool {
        state.newest > now / self.width
    }

    fn convert(
        &self,
        before: &Self,
        state: &SlidingBucketsState,
        now: Tick,
    ) -> SlidingBucketsState {
        if before.width == self.width && before.buckets == self.buckets {
            return state.clone();
        }
        // Other sub-buckets: what counts now counts in the new window as if it had just been taken.
        let used = before.used(state, now);
        let mut carried = SlidingBucketsState::default();
        self.take(&mut carried, now, used);
        carried
    }

    fn defers_to(&self, writer: &Self, _state: &SlidingBucketsState, _now: Tick) -> bool {
        writer.gone_at(0) <= self.gone_at(0) && writer.limit >= self.limit
    }

    fn deny_bound(&self, state: &SlidingBucketsState, now: Tick) -> Option<DenyBound> {
        // Only where even one unit fails: until the oldest units go, nothing changes.
        // Times are those of sub-buckets that a repair leaves in place, and none is empty after them.
        let is_settled = self.is_settled(state, now);
        self.bound_of_one(state, now).filter(|_| is_settled)
    }

    fn deny_by(&self, bound: DenyBound, now: Tick, cost: u64) -> Option<Assessment> {
        // The bound says when one unit fits; when several do is for the state to say. So it is where time has gone back
        // so far that a denial has to repair.
        let newest = (bound.1 / self.width).saturating_sub(self.len());
        let in_place = newest == self.repaired_newest(newest, now);
        deny_one(bound, now, cost).filter(|_| in_place)
    }

    fn heap_bytes(state: &SlidingBucketsState) -> usize {
        size_of_val::<[u32]>(&state.units)
    }
}
