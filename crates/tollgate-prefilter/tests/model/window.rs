//! Windows of a few microseconds.

use std::{fmt::Debug, sync::Arc, time::Duration};

use tollgate_core::{
    Quota, Tick,
    algorithm::{
        Algorithm, FixedWindow, FixedWindowState, SlidingWindow, SlidingWindowState, Taken,
    },
};
use tollgate_prefilter::{Grant, LeaseQuery, LeaseTerms, ReturnedLease};
use tollgate_test_reference::{LeaseSize, WindowGrantor, WindowState};

use crate::{alive::Bytes, fault::Fault, world::ModelStore};

/// A quota that counts in windows, and what counts of the window before after so many ticks of this one, times the length.
pub(crate) trait Windowed:
    Algorithm<State: Copy + Debug + PartialEq + Send + Sync> + Clone + Send + Sync + 'static
{
    fn quota(limit: u64, length: Duration) -> Quota;

    fn overlap(into: Tick, length: Tick) -> u64;

    /// The units in the counters of a state.
    fn used(state: &Self::State) -> u64;

    /// In how many windows units weigh.
    const WEIGHS: u64;
}

impl Windowed for FixedWindow {
    fn quota(limit: u64, length: Duration) -> Quota {
        Quota::fixed_window(limit, length)
    }

    fn overlap(_into: Tick, _length: Tick) -> u64 {
        0
    }

    fn used(state: &FixedWindowState) -> u64 {
        state.used()
    }

    const WEIGHS: u64 = 1;
}

impl Windowed for SlidingWindow {
    fn quota(limit: u64, length: Duration) -> Quota {
        Quota::sliding_window(limit, length)
    }

    fn overlap(into: Tick, length: Tick) -> u64 {
        length - into
    }

    fn used(state: &SlidingWindowState) -> u64 {
        state.used()
    }

    const WEIGHS: u64 = 2;
}

#[derive(Clone, Debug)]
pub(crate) struct Window<A: Windowed> {
    /// The same in all states of a world, by limit: a state is copied for each step.
    fixed: Arc<Fixed<A>>,
    state: WindowState<A::State>,
    limit: u64,
    now: Tick,
    /// What was really admitted in this window, and in the one before.
    current: u64,
    previous: u64,
    exceeded: bool,
    /// The limit that is not in force, and the largest that was in this window, and in the one before.
    other: u64,
    most: [u64; 2],
    /// What may exceed the limit in this window, and in the one before.
    excused: [u64; 2],
}

/// A limit.
#[derive(Debug)]
struct Fixed<A> {
    quota: A,
    grantor: WindowGrantor<A>,
    terms: LeaseTerms,
    length: Tick,
}

impl<A: Windowed> Fixed<A> {
    fn new(limit: u64, length: Tick, terms: &LeaseTerms) -> Self {
        let quota = A::new(&A::quota(limit, Duration::from_micros(length))).expect("a window");
        let mut grantor = WindowGrantor::new(quota.clone(), terms).expect("a window");
        grantor.size = LeaseSize { share: 1, least: 1 };
        Self {
            grantor,
            quota,
            terms: *terms,
            length,
        }
    }
}

impl<A: Windowed> Window<A> {
    pub(crate) fn new(limit: u64, length: Tick, terms: &LeaseTerms) -> Self {
        Self {
            fixed: Arc::new(Fixed::new(limit, length, terms)),
            state: WindowState::default(),
            limit,
            now: Self::START,
            current: 0,
            previous: 0,
            exceeded: false,
            other: limit,
            most: [limit; 2],
            excused: [0; 2],
        }
    }

    /// The same whose limit may change to another.
    pub(crate) fn or(mut self, other: u64) -> Self {
        self.other = other;
        self
    }

    /// The units that count at a time, or did in the window before.
    fn counted(&self, at: Tick) -> u64 {
        let mut counts = self.state.counts;
        // A unit more, for what is over is seen by who takes.
        self.fixed.quota.take(&mut counts, at, 1);
        A::used(&counts) - 1
    }

    /// What may pass now.
    fn most(&self) -> u64 {
        let [most, before] = self.most;
        let [excused, excused_before] = self.excused;
        most.max(before) + excused + excused_before
    }
}

impl<A: Windowed> PartialEq for Window<A> {
    fn eq(&self, other: &Self) -> bool {
        let counts = |of: &Self| (of.now, of.current, of.previous, of.exceeded);
        let limits = |of: &Self| (of.limit, of.most, of.excused);
        self.state == other.state && counts(self) == counts(other) && limits(self) == limits(other)
    }
}

impl<A: Windowed> ModelStore for Window<A> {
    const START: Tick = 60_000;

    fn execute(
        &mut self,
        _fault: Option<Fault>,
        clock: Tick,
        cost: u64,
        query: &LeaseQuery,
    ) -> (bool, Option<Grant>) {
        let (answer, grant) = self
            .fixed
            .grantor
            .acquire(&mut self.state, clock, cost, query);
        if answer.fits {
            self.admit(cost);
        }
        (answer.fits, grant)
    }

    fn reset(&mut self, fault: Option<Fault>, clock: Tick) {
        match fault {
            Some(Fault::ResetForgets) => self.state = WindowState::default(),
            _ => self.fixed.grantor.reset(&mut self.state, clock),
        }
        (self.current, self.previous) = (0, 0);
    }

    fn admit(&mut self, units: u64) {
        self.current += units;
        let before = self.previous * A::overlap(self.now % self.fixed.length, self.fixed.length);
        self.exceeded |= units > 0
            && self.current * self.fixed.length + before > self.most() * self.fixed.length;
    }

    fn begin(&mut self) {
        self.admit(1);
    }

    fn take_back(&mut self, window: Option<u64>, units: u64) {
        let now = self.now / self.fixed.length;
        match window.map(|window| now - window) {
            Some(0) => self.current -= units,
            Some(1) => self.previous -= units,
            _ => {}
        }
    }

    fn refund(&mut self, clock: Tick, window: u64, units: u64) {
        let taken = Taken::new(clock, (window + A::WEIGHS) * self.fixed.length);
        let counts = &mut self.state.counts;
        self.fixed.quota.refund(counts, clock, taken, units);
    }

    fn change(&mut self) {
        std::mem::swap(&mut self.limit, &mut self.other);
        let (length, terms) = (self.fixed.length, &self.fixed.terms);
        self.fixed = Arc::new(Fixed::new(self.limit, length, terms));
        self.most[0] = self.most[0].max(self.limit);
    }

    fn excuse(&mut self, units: u64) {
        self.excused[0] += units;
    }

    fn tick(&mut self, now: Tick) {
        self.now = now;
        if now.is_multiple_of(self.fixed.length) {
            self.previous = std::mem::take(&mut self.current);
            self.most = [self.limit, self.most[0]];
            self.excused = [0, self.excused[0]];
        }
    }

    fn holds(&self) -> bool {
        !self.exceeded
    }

    fn covers(&self, clock: Tick, held: u64) -> bool {
        let left = self
            .fixed
            .quota
            .assess(&self.state.counts, clock, 0)
            .remaining;
        let before = self.previous * A::overlap(self.now % self.fixed.length, self.fixed.length);
        let used = (self.current + left + held) * self.fixed.length + before;
        // No process can spend what is left of a window that the one before fills.
        left + held == 0 || used <= self.most() * self.fixed.length
    }

    fn accounts_for(&self, clock: Tick, held: &[ReturnedLease], lost: [u64; 2]) -> bool {
        let counted = self.counted(clock);
        let admitted = [self.current, self.previous];
        let now = self.generation(clock);
        let weighs = |window: u64| window <= now && window + A::WEIGHS > now;
        let held = held.iter().filter(|lease| weighs(lease.generation));
        let held: u64 = held.map(|lease| lease.left).sum();
        let known = (0..A::WEIGHS as usize).map(|ago| admitted[ago] + lost[ago]);
        counted <= known.sum::<u64>() + held
    }

    fn generation(&self, clock: Tick) -> u64 {
        clock / self.fixed.length
    }

    fn phase(&self, at: Tick) -> u8 {
        (at % self.fixed.length) as u8
    }

    fn alive(&self, clock: Tick, _goes_back: bool, bytes: &mut Bytes) {
        // What the state says of this window and of the next: all there is to see of its counters.
        let left = |at: Tick| self.fixed.quota.assess(&self.state.counts, at, 0).remaining as u8;
        let start = clock - clock % self.fixed.length;
        let granted = if self.state.window == clock / self.fixed.length {
            self.state.granted
        } else {
            0
        };
        bytes.extend([
            (clock % self.fixed.length) as u8,
            self.current as u8,
            self.previous as u8,
            u8::from(self.exceeded),
            self.limit as u8,
            self.most[0] as u8,
            self.most[1] as u8,
            self.excused[0] as u8,
            self.excused[1] as u8,
            granted as u8,
        ]);
        bytes.extend((0..2 * self.fixed.length).map(|tick| left(start + tick)));
        // What is hidden behind a window that is full, and may come back: all that counts, and what will in the next window.
        let next = start + self.fixed.length;
        bytes.extend([clock, next].map(|at| self.counted(at) as u8));
    }
}
