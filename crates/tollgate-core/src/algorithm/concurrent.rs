//! Slots: at most N at once.
//!
//! # Promise
//!
//! At no time do more than `limit` slots of a key belong to running requests. A request takes its slots when it is admitted and
//! holds them until it ends: time alone brings nothing back. Its cost is the number of slots.
//!
//! # Worst case
//!
//! A request that never ends holds its slot for ever. Give what holds slots a timeout.
//!
//! # What differs from a rate
//!
//! - **The [ticket](crate::Ticket) holds the slots**, and returns them exactly once: when it is dropped, at the latest. A
//!   decision that no ticket was made of returns them when its last clone is dropped.
//! - **`remaining` is the number of free slots.** A reset time does not exist.
//! - **`retry` is an estimate** where the quota says how long a slot is [typically](crate::Quota::typically) held: slots are taken
//!   to come back evenly, so that `n` missing ones of `limit` take `n / limit` of that time. Otherwise it is
//!   [`Retry::Unknown`].
//! - **A lowered limit ends nothing.** From 20 to 10, nothing starts until fewer than 10 run.
//! - **A state with slots in use is never evicted**, and a [reset](crate::Limiter::reset) leaves it as it is: its slots belong to
//!   requests that run.
//!
//! # State
//!
//! A count of 48 bytes on the heap; 80 to 96 bytes a key in the memory store. A slot in use is a handle of that count, so it
//! comes back without a look-up.
//!
//! # When to take it, and when not
//!
//! Take it for what is expensive while it runs: exports, uploads, streams, model calls. It does not limit how often short
//! requests come: take a rate as well, and both are decided together. A request that finds no free slot takes no unit of its
//! rate.
//!
//! # Examples
//!
//! ```
//! use tollgate_core::{Quota, Retry, SECOND, algorithm::{Algorithm, Concurrent}, store::Fingerprint};
//!
//! let quota = Concurrent::new(&Quota::concurrent(2).typically(30 * SECOND)).expect("a valid quota");
//! let mut state = Default::default();
//! let now = 1_700_000_000_000_000;
//! let held = Concurrent::hold(&mut state, Fingerprint::from_bits(7), 2);
//! let answer = quota.assess(&state, now, 1);
//! assert!(!answer.fits);
//! assert_eq!(answer.retry, Retry::After(15 * SECOND));
//! // Time brings nothing back: the end of a request does.
//! assert!(!quota.assess(&state, now + 1_000_000_000, 1).fits);
//! drop(held);
//! assert!(quota.assess(&state, now, 1).fits);
//! ```

use std::sync::Arc;

use crate::{
    algorithm::assessment::{Algorithm, Assessment, Retry, Taken},
    algorithm_kind::AlgorithmKind,
    held_slots::{HeldSlots, SlotCount},
    key::Fingerprint,
    quota::Quota,
    time::{Tick, micros},
};

/// A number of slots, made ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrent {
    limit: u64,
    /// How long a slot is typically held, in µs; 0 where it is not known.
    typical: u64,
}

/// How many slots are in use. A clone has a count of its own.
#[derive(Default)]
pub struct ConcurrentState(Option<Arc<SlotCount>>);

/// The memory of a count, as it is allocated.
const COUNT_BYTES: usize = 48;

impl ConcurrentState {
    /// How many slots are in use: more than the limit where that was lowered.
    #[must_use]
    pub fn in_use(&self) -> u64 {
        self.0.as_ref().map_or(0, SlotCount::in_use)
    }

    fn count(&mut self, key: Fingerprint) -> &Arc<SlotCount> {
        self.0.get_or_insert_with(|| SlotCount::new(key))
    }
}

impl Clone for ConcurrentState {
    fn clone(&self) -> Self {
        let mut copy = Self::default();
        copy.count(Fingerprint::from_bits(0)).add(self.in_use());
        copy
    }
}

impl PartialEq for ConcurrentState {
    fn eq(&self, other: &Self) -> bool {
        self.in_use() == other.in_use()
    }
}

impl Eq for ConcurrentState {}

crate::debug_fields!(ConcurrentState, it => in_use: it.in_use());

impl Concurrent {
    /// Decides about `cost` slots where so many are in use.
    #[must_use]
    pub fn assess_in_use(&self, in_use: u64, cost: u64) -> Assessment {
        let free = self.limit.saturating_sub(in_use);
        let fits = cost <= free;
        let remaining = if fits { free - cost } else { free };
        Assessment {
            fits,
            remaining,
            reset_after: 0,
            retry: self.retry(cost, remaining),
        }
    }

    /// When `cost` slots fit, or one, if `free` are: as if slots came back evenly.
    fn retry(&self, cost: u64, free: u64) -> Retry {
        let lacks = cost.max(1).saturating_sub(free);
        if lacks == 0 {
            return Retry::Now;
        }
        if cost > self.limit {
            return Retry::Never;
        }
        if self.typical == 0 {
            return Retry::Unknown;
        }
        let product = u128::from(lacks) * u128::from(self.typical);
        let time = product.div_ceil(u128::from(self.limit.max(1)));
        Retry::after_micros(u64::try_from(time).unwrap_or(u64::MAX))
    }
}

impl Algorithm for Concurrent {
    type State = ConcurrentState;

    const HOLDS_SLOTS: bool = true;

    fn new(quota: &Quota) -> Option<Self> {
        let quota = quota.valid_for(AlgorithmKind::Concurrent)?;
        Some(Self {
            limit: quota.limit(),
            typical: quota.typical_hold_time().map_or(0, micros),
        })
    }

    #[inline]
    fn assess(&self, state: &ConcurrentState, _now: Tick, cost: u64) -> Assessment {
        self.assess_in_use(state.in_use(), cost)
    }

    fn take(&self, state: &mut ConcurrentState, _now: Tick, cost: u64) {
        state.count(Fingerprint::from_bits(0)).add(cost);
    }

    fn hold(state: &mut ConcurrentState, key: Fingerprint, cost: u64) -> Option<HeldSlots> {
        Some(state.count(key).hold(cost))
    }

    /// Slots in use belong to requests that run, whatever the clock says.
    fn repair(&self, _state: &mut ConcurrentState, _now: Tick) {}

    /// Nothing: slots go back when those that are [held](Self::hold) are dropped, and a refund as well would return them twice.
    fn refund(&self, _state: &mut ConcurrentState, _now: Tick, _taken: Taken, _cost: u64) {}

    /// Never while slots are in use.
    fn fresh_at(&self, state: &ConcurrentState) -> Tick {
        match state.in_use() {
            0 => 0,
            _ => Tick::MAX,
        }
    }

    /// The same slots in use.
    fn convert(&self, _before: &Self, state: &ConcurrentState, _now: Tick) -> ConcurrentState {
        state.clone()
    }

    fn defers_to(&self, _writer: &Self, _state: &ConcurrentState, _now: Tick) -> bool {
        false
    }

    fn heap_bytes(_state: &ConcurrentState) -> usize {
        COUNT_BYTES
    }
}
