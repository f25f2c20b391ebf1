//! Sliding log: each unit remembered, a hard limit in any window.
//!
//! # Promise
//!
//! In every window `[t, t + W)`, whatever its start, at most
//!
//! ```text
//! limit
//! ```
//!
//! units are admitted, and each comes back exactly `W` after it was taken. There is no rounding at all.
//!
//! # Worst case
//!
//! That of the promise. All of the limit may come at once.
//!
//! # State
//!
//! An entry for each instant at which units were taken; units of one instant are summed. 64 to 80 bytes a key in the
//! memory store (32 to 48 in its table, 32 on the heap), and 16 for each entry that there is room for: 4, 8, 16 and so on, up to one
//! for each unit of the limit. That, and the time to add entries up, is why the limit is at most [`MAX_LOG`].
//!
//! # When to take it, and when not
//!
//! Take it for small limits that have to hold: log-ins, password resets, one-time codes, payments. Not above some
//! hundreds of units or for millions of active keys: take [`sliding_buckets`](super::sliding_buckets), which never lets
//! more pass either. Not for an even pace: take [`gcra`](super::gcra).
//!
//! # Examples
//!
//! ```
//! use tollgate_core::{MINUTE, Quota, Retry, algorithm::{Algorithm, SlidingLog}};
//!
//! let quota = SlidingLog::new(&Quota::sliding_log(5, MINUTE)).expect("a valid quota");
//! let mut state = Default::default();
//! let now = 1_700_000_000_000_000;
//! quota.take(&mut state, now, 2);
//! quota.take(&mut state, now + 20_000_000, 3);
//! // Half a minute in, two units come in another half, and three twenty seconds later.
//! let later = now + 30_000_000;
//! assert_eq!(quota.assess(&state, later, 1).retry, Retry::after_micros(30_000_000));
//! assert_eq!(quota.assess(&state, later, 3).retry, Retry::after_micros(50_000_000));
//! ```

use std::collections::VecDeque;

use crate::{
    algorithm::{
        aging::{Aging, deny_one},
        assessment::{Algorithm, Assessment, DenyBound, Taken},
    },
    algorithm_kind::AlgorithmKind,
    quota::Quota,
    time::{Tick, micros},
};

pub use crate::quota::MAX_LOG;

/// A sliding log, made ready. See the [module documentation](self).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlidingLog {
    limit: u64,
    period: u64,
}

/// 8 bytes, and on the heap 32 and 16 for each instant that it has room for: 4, 8, 16 and so on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlidingLogState(
    // A box of a queue: a key that is empty costs a word, and most keys of a table have few entries.
    #[expect(clippy::box_collection, reason = "the table's entries stay small")]
    Option<Box<VecDeque<Entry>>>,
);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at: Tick,
    units: u64,
}

impl SlidingLogState {
    fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.0.iter().flat_map(|entries| entries.iter())
    }
}

impl SlidingLog {
    fn add(entries: &mut VecDeque<Entry>, now: Tick, units: u64) {
        match entries.back_mut() {
            // Units of one instant are summed: none overwrites another. A clock that stands or went back counts as the
            // newest instant seen, so that entries stay in order.
            Some(newest) if newest.at >= now => newest.units += units,
            _ => entries.push_back(Entry { at: now, units }),
        }
    }
}

impl Aging for SlidingLog {
    fn limit(&self) -> u64 {
        self.limit
    }

    fn counting<'a>(
        &'a self,
        state: &'a SlidingLogState,
        now: Tick,
    ) -> impl DoubleEndedIterator<Item = (u64, u64)> + 'a {
        let entries = state.entries().map(|entry| (entry.at, entry.units));
        entries.filter(move |(at, _)| self.gone_at(*at) > now)
    }

    fn mark(&self, state: &SlidingLogState, now: Tick) -> u64 {
        let newest = state.entries().next_back();
        newest.map_or(now, |entry| entry.at.max(now))
    }

    /// An entry of the future moves to now.
    fn repaired(&self, _state: &SlidingLogState, at: Tick, now: Tick) -> Tick {
        at.min(now)
    }

    fn gone_at(&self, at: Tick) -> Tick {
        at.saturating_add(self.period)
    }
}

impl Algorithm for SlidingLog {
    type State = SlidingLogState;
    const HAS_HEAP: bool = true;

    fn new(quota: &Quota) -> Option<Self> {
        let quota = quota.valid_for(AlgorithmKind::SlidingLog)?;
        Some(Self {
            limit: quota.limit(),
            period: micros(quota.period()),
        })
    }

    fn assess(&self, state: &SlidingLogState, now: Tick, cost: u64) -> Assessment {
        self.assess_aging(state, now, cost)
    }

    fn take(&self, state: &mut SlidingLogState, now: Tick, cost: u64) {
        if cost == 0 {
            return;
        }
        let entries = state.0.get_or_insert_default();
        while entries
            .front()
            .is_some_and(|entry| self.gone_at(entry.at) <= now)
        {
            entries.pop_front();
        }
        Self::add(entries, now, cost);
    }

    fn repair(&self, state: &mut SlidingLogState, now: Tick) {
        let Some(entries) = &mut state.0 else { return };
        let mut moved = 0;
        while entries.back().is_some_and(|entry| entry.at > now) {
            moved += entries.pop_back().map_or(0, |entry| entry.units);
        }
        if moved > 0 {
            Self::add(entries, now, moved);
        }
    }

    fn refund(&self, state: &mut SlidingLogState, _now: Tick, taken: Taken, cost: u64) {
        let Some(entries) = &mut state.0 else { return };
        // The entry they were put into: the instant of the take, or the newest there was then.
        let at = taken.fresh_at.saturating_sub(self.period);
        if let Ok(index) = entries.binary_search_by_key(&at, |entry| entry.at) {
            let entry = &mut entries[index];
            entry.units = entry.units.saturating_sub(cost);
            if entry.units == 0 {
                entries.remove(index);
            }
        }
        if entries.is_empty() {
            state.0 = None;
        }
    }

    fn refund_converted(
        &self,
        before: &Self,
        state: &mut SlidingLogState,
        now: Tick,
        taken: Taken,
        cost: u64,
    ) {
        // Entries keep their instants under every quota. Only a conversion from a shorter window moves them, to an instant
        // that is not recorded.
        let at = taken.fresh_at.saturating_sub(before.period);
        let fresh_at = self.gone_at(at);
        self.refund(state, now, Taken { fresh_at, ..taken }, cost);
    }

    fn fresh_at(&self, state: &SlidingLogState) -> Tick {
        state
            .entries()
            .next_back()
            .map_or(0, |entry| self.gone_at(entry.at))
    }

    fn convert(&self, before: &Self, state: &SlidingLogState, now: Tick) -> SlidingLogState {
        // Entries are instants: they mean the same under any limit and a longer window. What the old window had let go
        // does not come back. What a shorter one would let go at once counts in it as if it had just been taken.
        let mut entries = VecDeque::new();
        let mut moved = 0;
        for (at, units) in before.counting(state, now) {
            if self.gone_at(at) > now {
                entries.push_back(Entry { at, units });
            } else {
                moved += units;
            }
        }
        if moved > 0 {
            Self::add(&mut entries, now, moved);
        }
        SlidingLogState((!entries.is_empty()).then(|| Box::new(entries)))
    }

    fn defers_to(&self, writer: &Self, _state: &SlidingLogState, _now: Tick) -> bool {
        writer.period <= self.period && writer.limit >= self.limit
    }

    fn deny_bound(&self, state: &SlidingLogState, now: Tick) -> Option<DenyBound> {
        // An entry of the future is still to be repaired, and its times with it.
        if state.entries().next_back()?.at > now {
            return None;
        }
        self.bound_of_one(state, now)
    }

    fn deny_by(&self, bound: DenyBound, now: Tick, cost: u64) -> Option<Assessment> {
        // The bound says when one unit fits; when several do is for the state to say. So it is where time has gone back
        // before the newest entry: a denial has to repair it.
        let in_place = bound.1.saturating_sub(now) <= self.period;
        deny_one(bound, now, cost).filter(|_| in_place)
    }

    fn heap_bytes(state: &SlidingLogState) -> usize {
        state.0.as_ref().map_or(0, |entries| {
            size_of::<VecDeque<Entry>>() + entries.capacity() * size_of::<Entry>()
        })
    }
}
