//! A bucket of one unit a microsecond.

use std::{sync::Arc, time::Duration};

use tollgate_core::{
    Quota, Tick,
    algorithm::{Algorithm, Gcra},
};
use tollgate_prefilter::{Grant, LeaseQuery, LeaseTerms, ReturnedLease};
use tollgate_test_reference::{BucketGrantor, BucketState, LeaseSize};

use crate::{alive::Bytes, fault::Fault, world::ModelStore};

#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    /// The same in all states of a world: a state is copied for each step.
    pub(crate) fixed: Arc<Fixed>,
    pub(crate) state: BucketState,
    /// What the exact bucket holds.
    level: i64,
}

#[derive(Debug)]
pub(crate) struct Fixed {
    pub(crate) quota: Gcra,
    pub(crate) grantor: BucketGrantor,
    pub(crate) terms: LeaseTerms,
    burst: i64,
}

pub(crate) fn size(share: u64, least: u64) -> LeaseSize {
    LeaseSize { share, least }
}

impl Bucket {
    pub(crate) fn new(burst: u64, terms: LeaseTerms, size: LeaseSize) -> Self {
        let quota = Quota::token_bucket(burst).refill(1, Duration::from_micros(1));
        let mut grantor = BucketGrantor::new(&quota, terms).expect("a bucket");
        grantor.size = size;
        let fixed = Fixed {
            quota: Gcra::new(&quota).expect("a bucket"),
            grantor,
            terms,
            burst: burst as i64,
        };
        Self {
            state: BucketState::default(),
            level: fixed.burst,
            fixed: Arc::new(fixed),
        }
    }
}

impl PartialEq for Bucket {
    fn eq(&self, other: &Self) -> bool {
        (self.state, self.level) == (other.state, other.level)
    }
}

impl ModelStore for Bucket {
    // Long after what any model steps back, and the start of a generation of lives of up to 6.
    const START: Tick = 60_000;

    fn execute(
        &mut self,
        fault: Option<Fault>,
        clock: Tick,
        cost: u64,
        query: &LeaseQuery,
    ) -> (bool, Option<Grant>) {
        let query = Fault::before(fault, self, clock, query);
        let (answer, grant) = self
            .fixed
            .grantor
            .acquire(&mut self.state, clock, cost, &query);
        Fault::after(fault, self);
        if answer.fits {
            self.admit(cost);
        }
        (answer.fits, grant)
    }

    fn reset(&mut self, fault: Option<Fault>, clock: Tick) {
        match fault {
            Some(Fault::ResetForgets) => self.state = BucketState::default(),
            _ => self.fixed.grantor.reset(&mut self.state, clock),
        }
        self.level = self.fixed.burst;
    }

    fn admit(&mut self, units: u64) {
        self.level -= units as i64;
    }

    // The exact bucket is that of a world in which such a request never came.
    fn begin(&mut self) {}

    fn take_back(&mut self, _window: Option<u64>, _units: u64) {}

    fn refund(&mut self, _clock: Tick, _window: u64, _units: u64) {}

    fn change(&mut self) {}

    fn excuse(&mut self, _units: u64) {}

    fn tick(&mut self, _now: Tick) {
        self.level = self.fixed.burst.min(self.level + 1);
    }

    fn holds(&self) -> bool {
        self.level >= 0
    }

    fn covers(&self, clock: Tick, held: u64) -> bool {
        let mut state = self.state;
        self.fixed.grantor.settle(&mut state, clock);
        // A unit a microsecond: below nothing where scheduled leases are out.
        let used = state.arrival.tat.saturating_sub(clock);
        self.fixed.burst - used as i64 + held as i64 <= self.level
    }

    fn accounts_for(&self, _clock: Tick, _held: &[ReturnedLease], _lost: [u64; 2]) -> bool {
        true
    }

    fn generation(&self, clock: Tick) -> u64 {
        clock / self.fixed.terms.tracked_life
    }

    fn phase(&self, _at: Tick) -> u8 {
        0
    }

    fn alive(&self, clock: Tick, goes_back: bool, bytes: &mut Bytes) {
        let mut state = self.state;
        if !goes_back {
            // Whatever comes next begins with it.
            self.fixed.grantor.settle(&mut state, clock);
        }
        let leases = state.leases;
        let mut behind = 0;
        if leases.total() > 0 {
            behind = self.generation(clock) as i64 - leases.generation as i64;
        }
        bytes.extend([
            self.level as u8,
            state.arrival.tat.saturating_sub(clock) as u8,
            (clock % self.fixed.terms.tracked_life) as u8,
            behind.clamp(-20, 20) as u8,
            leases.current as u8,
            leases.previous as u8,
            state.owed as u8,
        ]);
    }
}
