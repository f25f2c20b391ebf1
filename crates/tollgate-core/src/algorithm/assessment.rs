//! What an algorithm is: the trait, and what it answers.

use std::{fmt, time::Duration};

use crate::{
    algorithm::gcra_state::GcraState, held_slots::HeldSlots, key::Fingerprint, quota::Quota,
    time::Tick,
};

/// A quota made ready for its algorithm: pure functions of (state, now, cost).
///
/// No method reads a clock, and none panics, whatever the state and the time. Time that goes back never refills.
pub trait Algorithm: fmt::Debug + Clone + PartialEq + Send + Sync + 'static {
    /// What is kept per key. The default is the fresh state: nothing was ever used.
    type State: fmt::Debug + Clone + Default + PartialEq + Send + 'static;

    /// Whether states hold memory on the heap.
    const HAS_HEAP: bool = false;

    /// Whether a request holds what it takes until it ends: such a state is not evicted, and time gives nothing back.
    const HOLDS_SLOTS: bool = false;

    /// Makes a [validated](Quota::validate) quota ready. `None` if it is of another algorithm or not valid.
    fn new(quota: &Quota) -> Option<Self>;

    /// The same quota for a rule whose requests wait for at most this long: its states may lie so far behind the quota. Only
    /// buckets can.
    fn waiting(self, _at_most: Duration) -> Self {
        self
    }

    /// Whether requests wait for units.
    #[inline]
    fn waits(&self) -> bool {
        false
    }

    /// The same quota for a rule whose [charges](Self::charge) take up to `at_most` units more than there are. Only buckets,
    /// windows and sub-buckets can.
    fn with_debt(self, _at_most: u64) -> Self {
        self
    }

    /// The same quota for a state that a denial leaves as it is: no [repair](Self::repair) brings it nearer, however far ahead
    /// it lies.
    fn without_repair(&self) -> Self {
        self.clone()
    }

    /// Decides about a state that `writer` has written, as it is: a threshold that reads the state of a rule whose requests wait
    /// sees its queue.
    fn observe(&self, _writer: &Self, state: &Self::State, now: Tick, cost: u64) -> Assessment {
        self.assess(state, now, cost)
    }

    /// When `cost` units fit, as of a state that was [repaired](Self::repair) at `now`, unless it is [not to
    /// be](Self::without_repair). `None` for a cost that never fits, and where nothing waits.
    fn instant(&self, _state: &Self::State, _now: Tick, _cost: u64) -> Option<Instant> {
        None
    }

    /// Takes `cost` units at `now` that a request uses from `start` on, which is not before their own [`instant`](Self::instant).
    /// The answer is the state before, for a [refund](Self::refund_queued). `None` where nothing waits: nothing was taken.
    fn take_from(
        &self,
        _state: &mut Self::State,
        _now: Tick,
        _start: Instant,
        _cost: u64,
    ) -> Option<GcraState> {
        None
    }

    /// Gives back units of a rule whose requests wait: only if no request has taken any since, and the state was neither repaired
    /// nor converted; then it becomes what it was `before`, where that is known. False: the units lapse. Where nothing waits it
    /// is a [`refund`](Self::refund).
    fn refund_queued(
        &self,
        state: &mut Self::State,
        now: Tick,
        taken: Taken,
        _before: Option<GcraState>,
        cost: u64,
    ) -> bool {
        self.refund(state, now, taken, cost);
        true
    }

    /// Decides about `cost` units at `now`, without taking them.
    ///
    /// A cost of 0 always fits and shows the units left. A cost above the limit never fits: [`Retry::Never`].
    ///
    /// If the cost fits, the numbers are those after [`take`](Self::take), and `retry` says when the same cost fits again. If
    /// it does not fit, they are those after [`repair`](Self::repair). For a cost of 0 with nothing left, `retry` is that of
    /// one denied unit.
    fn assess(&self, state: &Self::State, now: Tick, cost: u64) -> Assessment;

    /// Takes `cost` units that [`assess`](Self::assess) has just found to fit at the same `now`. A cost of 0 changes nothing.
    fn take(&self, state: &mut Self::State, now: Tick, cost: u64);

    /// The same of [slots](Self::HOLDS_SLOTS), for a request that holds them until it ends. The state is that of this key.
    fn hold(_state: &mut Self::State, _key: Fingerprint, _cost: u64) -> Option<HeldSlots> {
        None
    }

    /// Takes `units` whether they fit or not, up to the [debt](Self::with_debt) that the rule allows. Returns those that lapse.
    fn charge(&self, state: &mut Self::State, now: Tick, units: u64) -> u64 {
        let fit = units.min(self.assess(state, now, 0).remaining);
        self.take(state, now, fit);
        units - fit
    }

    /// The units that have to come back before any fit.
    fn debt(&self, _state: &Self::State, _now: Tick) -> u64 {
        0
    }

    /// Decides, and takes the units if they fit.
    #[inline]
    fn acquire(&self, state: &mut Self::State, now: Tick, cost: u64) -> Assessment {
        let answer = self.assess(state, now, cost);
        if answer.fits {
            self.take(state, now, cost);
        }
        answer
    }

    /// Moves a state that lies far in the future near to `now`, without giving back a unit. Called on a denial: a clock has
    /// gone back, or a limit was lowered.
    ///
    /// An arrival time moves to `now` plus the burst, entries of a log to `now`, a window or sub-bucket to the one after
    /// that of `now`. A state that is nearer stays as it is.
    fn repair(&self, state: &mut Self::State, now: Tick);

    /// Gives back up to `cost` of the units that were [taken](Taken), as far as time has not given them back yet.
    ///
    /// Never gives more than the units taken still weigh, so that a refund never lifts above what would be left had the
    /// units never been taken.
    ///
    /// # Accuracy
    ///
    /// Exact for windows, sub-buckets and logs. A bucket that has partly refilled gives back up to one microsecond's refill
    /// less. It identifies units by the arrival time that they reached when they were taken. If units taken before them were
    /// refunded since, and the bucket was empty in between, it may give back units that have refilled already, but never more
    /// than were taken. A [`Ticket`](crate::Ticket), which may be held for long, therefore counts every refill against its
    /// units first. After a [repair](Self::repair), a refund may find other units, or none.
    fn refund(&self, state: &mut Self::State, now: Tick, taken: Taken, cost: u64);

    /// The same for units that were taken under the quota `before`, from a state that was [converted](Self::convert) to this
    /// quota since. The units are converted too: this gives back what they count for here.
    ///
    /// # Accuracy
    ///
    /// Never gives more than the units weigh now, whenever the state was converted.
    ///
    /// Exact if windows and sub-buckets keep their length. In windows of another length, units count from the time of the
    /// conversion, which no state records. A refund gives them back only if they certainly still count: if they would under
    /// both quotas, had each applied all along. Otherwise they expire with their window.
    ///
    /// A bucket gives back what the units weigh at the faster of the two rates: too little by at most the difference of the
    /// rates since they were taken. If its burst is smaller, and it may have been full when it was converted, it gives back
    /// less by the difference of the bursts, because the conversion dropped as many units.
    fn refund_converted(
        &self,
        _before: &Self,
        state: &mut Self::State,
        now: Tick,
        taken: Taken,
        cost: u64,
    ) {
        self.refund(state, now, taken, cost);
    }

    /// The first tick at which the state equals a fresh one and may be dropped.
    fn fresh_at(&self, state: &Self::State) -> Tick;

    /// Converts a state that was written under the quota `before`. Used units stay used.
    ///
    /// A bucket keeps the used units as they are, and is full if the new burst is smaller. A window of the same length, and
    /// sub-buckets of the same width and number, keep their counts. In a window of another length, units that count now count
    /// as if just taken; in a log, only those that would expire at once in the new window.
    fn convert(&self, before: &Self, state: &Self::State, now: Tick) -> Self::State;

    /// Whether a denial under this quota leaves a state to `writer`, the quota that wrote it, instead of converting it. The
    /// state then refills as under `writer`, until units are taken under this quota.
    ///
    /// Cutting a state to a smaller limit drops usage of the larger one: a client that alternates between the two quotas would
    /// never run out. Windows and logs therefore leave a state to a writer whose limit is not smaller, unless its window is longer:
    /// no two plans of a rule differ in that. A bucket converts only usage that fits its burst, and only if that refills sooner, so
    /// that a faster rate applies at once.
    fn defers_to(&self, writer: &Self, state: &Self::State, now: Tick) -> bool;

    /// A bound that stays true for as long as nothing is given back: after a denial, enough to deny again without the
    /// state. `None`: there is no such bound.
    fn deny_bound(&self, _state: &Self::State, _now: Tick) -> Option<DenyBound> {
        None
    }

    /// Denies by the bound of an earlier denial, at any later or earlier time, exactly as [`assess`](Self::assess) would for
    /// the unchanged state. `None`: the bound does not decide, read the state.
    fn deny_by(&self, _bound: DenyBound, _now: Tick, _cost: u64) -> Option<Assessment> {
        None
    }

    /// The state after `cost` units were taken at `now` that fit, and the answer. `None`: they do not, or there is more to look at.
    #[inline]
    fn fit(&self, state: &Self::State, now: Tick, cost: u64) -> Option<(Self::State, Assessment)> {
        if self.is_ahead(state, now) {
            return None;
        }
        let mut after = state.clone();
        let answer = self.acquire(&mut after, now, cost);
        answer.fits.then_some((after, answer))
    }

    /// Whether the state is of a later window than `now`. A store that read its clock before it locked the state then reads
    /// the clock again: units taken at `now` would be counted in a window that `now` is not in.
    fn is_ahead(&self, _state: &Self::State, _now: Tick) -> bool {
        false
    }

    /// The heap memory of a state in bytes.
    fn heap_bytes(_state: &Self::State) -> usize {
        0
    }
}

/// Two numbers whose meaning only the algorithm knows: a lower bound of a state that only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DenyBound(pub u64, pub u64);

/// When units fit that a request waits for. It starts on a tick; the debit is exact.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Instant {
    /// Rounded down: what is debited counts from here on.
    pub floor: Tick,
    /// Rounded up: when the request starts.
    pub start: Tick,
}

impl Instant {
    /// An instant between two ticks, or on one.
    pub const fn new(floor: Tick, start: Tick) -> Self {
        Self { floor, start }
    }

    /// The later of two: when a request starts that waits for both.
    pub fn or_later(self, other: Self) -> Self {
        Self {
            floor: self.floor.max(other.floor),
            start: self.start.max(other.start),
        }
    }
}

/// When and until when units were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Taken {
    /// When they were taken.
    pub at: Tick,
    /// When the state would have been fresh again after they were taken (`at` + `reset_after`), or earlier: units of a bucket
    /// are not given back beyond that.
    pub fresh_at: Tick,
}

impl Taken {
    /// Units that were taken at `at`, of a state that is fresh again at `fresh_at`.
    #[must_use]
    pub const fn new(at: Tick, fresh_at: Tick) -> Self {
        Self { at, fresh_at }
    }
}

/// The answer of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Assessment {
    /// Whether the cost fits.
    pub fits: bool,
    /// Units left: after the take if it fits, as they are if not.
    pub remaining: u64,
    /// Microseconds until the state equals the fresh one: after the take if it fits, as it is if not.
    pub reset_after: u64,
    /// When the same cost fits (again, if it fits now), provided that no other client uses the key. For a cost of 0, when one
    /// unit fits.
    pub retry: Retry,
}

impl Assessment {
    /// An answer with these numbers, in the order of the fields.
    #[must_use]
    pub const fn new(fits: bool, remaining: u64, reset_after: u64, retry: Retry) -> Self {
        Self {
            fits,
            remaining,
            reset_after,
            retry,
        }
    }
}

/// When to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retry {
    /// At once.
    Now,
    /// After this time, and not one microsecond earlier, for one client alone on the key.
    After(Duration),
    /// It is not known: the store did not answer.
    Unknown,
    /// Never: the cost is above what ever fits.
    Never,
}

impl Retry {
    /// After this many microseconds.
    #[inline]
    #[must_use]
    pub const fn after_micros(micros: u64) -> Self {
        Self::After(Duration::from_micros(micros))
    }

    /// The later of two: what to wait for where both have to pass. `Never` is the latest, then `Unknown`.
    #[must_use]
    pub fn or_later(self, other: Self) -> Self {
        match (self, other) {
            (Self::Never, _) | (_, Self::Never) => Self::Never,
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::After(a), Self::After(b)) => Self::After(a.max(b)),
            (Self::Now, later) | (later, Self::Now) => later,
        }
    }

    /// The time to wait: zero for [`Now`](Self::Now), `None` where there is no telling.
    #[must_use]
    pub const fn delay(self) -> Option<Duration> {
        match self {
            Self::Now => Some(Duration::ZERO),
            Self::After(delay) => Some(delay),
            Self::Unknown | Self::Never => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_of_two_is_the_same_in_either_order() {
        let retries = [
            Retry::Now,
            Retry::after_micros(5),
            Retry::after_micros(7),
            Retry::Unknown,
            Retry::Never,
        ];
        for (n, one) in retries.into_iter().enumerate() {
            for (m, other) in retries.into_iter().enumerate() {
                assert_eq!(one.or_later(other), retries[n.max(m)]);
            }
        }
        let (one, other) = (Instant::new(3, 4), Instant::new(4, 4));
        for later in [one.or_later(other), other.or_later(one)] {
            assert_eq!(later, other);
        }
        let far = Instant::new(8, 9);
        assert_eq!((one.or_later(far), far.or_later(one)), (far, far));
    }
}
