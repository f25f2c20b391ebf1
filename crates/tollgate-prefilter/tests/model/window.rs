//! Windows of a few microseconds.

use std::{fmt::Debug, time::Duration};

use tollgate_core::{
    Quota, Tick,
    algorithm::{Algorithm, FixedWindow, SlidingWindow},
};
use tollgate_prefilter::{Ask, LeaseTerms, Lot, WindowLender, WindowState};

use crate::{fault::Fault, ledger::Ledger};

/// A quota that counts in windows, and what counts of the window before after so many ticks of this one, times the length.
pub(crate) trait Windowed:
    Algorithm<State: Debug + PartialEq + Send + Sync> + Clone + Send + Sync + 'static
{
    fn quota(limit: u64, length: Duration) -> Quota;

    fn overlap(into: Tick, length: Tick) -> u64;
}

impl Windowed for FixedWindow {
    fn quota(limit: u64, length: Duration) -> Quota {
        Quota::fixed_window(limit, length)
    }

    fn overlap(_into: Tick, _length: Tick) -> u64 {
        0
    }
}

impl Windowed for SlidingWindow {
    fn quota(limit: u64, length: Duration) -> Quota {
        Quota::sliding_window(limit, length)
    }

    fn overlap(into: Tick, length: Tick) -> u64 {
        length - into
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Window<A: Windowed> {
    quota: A,
    lender: WindowLender<A>,
    state: WindowState<A::State>,
    limit: u64,
    length: Tick,
    now: Tick,
    /// What was really admitted in this window, and in the one before.
    current: u64,
    previous: u64,
    exceeded: bool,
}

impl<A: Windowed> Window<A> {
    pub(crate) fn new(limit: u64, length: Tick, terms: &LeaseTerms) -> Self {
        let quota = A::new(&A::quota(limit, Duration::from_micros(length))).expect("a window");
        Self {
            lender: WindowLender::new(quota.clone(), terms).expect("a window"),
            quota,
            state: WindowState::default(),
            limit,
            length,
            now: Self::START,
            current: 0,
            previous: 0,
            exceeded: false,
        }
    }
}

impl<A: Windowed> PartialEq for Window<A> {
    fn eq(&self, other: &Self) -> bool {
        let counts = |of: &Self| (of.now, of.current, of.previous, of.exceeded);
        self.state == other.state && counts(self) == counts(other)
    }
}

impl<A: Windowed> Ledger for Window<A> {
    const START: Tick = 60_000;

    fn execute(
        &mut self,
        _fault: Option<Fault>,
        clock: Tick,
        cost: u64,
        ask: &Ask,
        _untracked: u64,
    ) -> Option<Lot> {
        let (answer, lot) = self.lender.acquire(&mut self.state, clock, cost, ask);
        if answer.fits {
            self.admit(cost);
        }
        lot
    }

    fn reset(&mut self, fault: Option<Fault>, clock: Tick) {
        match fault {
            Some(Fault::ResetForgets) => self.state = WindowState::default(),
            _ => self.lender.reset(&mut self.state, clock),
        }
        (self.current, self.previous) = (0, 0);
    }

    fn admit(&mut self, units: u64) {
        self.current += units;
        let before = self.previous * A::overlap(self.now % self.length, self.length);
        self.exceeded |=
            units > 0 && self.current * self.length + before > self.limit * self.length;
    }

    fn tick(&mut self, now: Tick) {
        self.now = now;
        if now.is_multiple_of(self.length) {
            self.previous = std::mem::take(&mut self.current);
        }
    }

    fn holds(&self) -> bool {
        !self.exceeded
    }

    fn covers(&self, clock: Tick, held: u64) -> bool {
        let left = self.quota.assess(&self.state.counts, clock, 0).remaining;
        let before = self.previous * A::overlap(self.now % self.length, self.length);
        let used = (self.current + left + held) * self.length + before;
        // Nobody can spend what is left of a window that the one before fills.
        left + held == 0 || used <= self.limit * self.length
    }

    fn generation(&self, clock: Tick) -> u64 {
        clock / self.length
    }

    fn phase(&self, at: Tick) -> u8 {
        (at % self.length) as u8
    }

    fn alive(&self, clock: Tick, _goes_back: bool, bytes: &mut Vec<u8>) {
        // What the state says of this window and of the next: all there is to see of its counters.
        let left = |at: Tick| self.quota.assess(&self.state.counts, at, 0).remaining as u8;
        let start = clock - clock % self.length;
        let lent = if self.state.window == clock / self.length {
            self.state.lent
        } else {
            0
        };
        bytes.extend([
            (clock % self.length) as u8,
            self.current as u8,
            self.previous as u8,
            u8::from(self.exceeded),
            lent as u8,
        ]);
        bytes.extend((0..2 * self.length).map(|tick| left(start + tick)));
        // What is hidden behind a window that is full, and may come back.
        let counts = &self.state.counts;
        let counted = if self.quota.fresh_at(counts) > clock {
            A::weight(counts)
        } else {
            0
        };
        bytes.push(counted as u8);
    }
}
