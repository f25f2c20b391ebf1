//! What really became of units.

use tollgate_core::{AlgorithmKind, Quota, Tick};

use crate::world::{LENGTH, World};

/// Units, by when the store counted them or a process spent them, in the store's time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Units {
    pub(crate) at: Tick,
    pub(crate) units: u64,
}

/// What really became of the units of the first rule.
#[derive(Debug, Default)]
pub(crate) struct Reference {
    /// Of requests that were let through and whose ticket was not cancelled, by request.
    admitted: Vec<(usize, Units)>,
    /// Taken for no request, because a reply or a lease was lost.
    lost: Vec<Units>,
    /// Admitted, and in a report that was lost.
    never_reported: u64,
    /// Of requests that came before a reset: they may come back after it.
    excused: u64,
}

impl Reference {
    pub(crate) fn admit(&mut self, request: usize, at: Tick, units: u64) {
        self.admitted.push((request, Units { at, units }));
    }

    /// A request was not let through after all. What was charged to it stays.
    pub(crate) fn cancel(&mut self, request: usize) {
        if let Some(place) = self.admitted.iter().position(|(of, _)| *of == request) {
            self.admitted.remove(place);
        }
    }

    pub(crate) fn lose(&mut self, at: Tick, units: u64) {
        self.lost.push(Units { at, units });
    }

    pub(crate) fn lose_report(&mut self, units: u64) {
        self.never_reported += units;
    }

    /// What was used is forgotten, and so many units of it may come back.
    pub(crate) fn reset(&mut self, excused: u64) {
        self.excused += excused;
        self.admitted.clear();
        self.lost.clear();
        self.never_reported = 0;
    }

    fn weighing<'a>(
        &self,
        world: &World,
        now: Tick,
        units: impl Iterator<Item = &'a Units>,
    ) -> u64 {
        let windows = match world.quota.algorithm() {
            AlgorithmKind::SlidingWindow => 2,
            _ => 1,
        };
        let weighs = |units: &&Units| units.at / LENGTH + windows > now / LENGTH;
        units.filter(weighs).map(|units| units.units).sum()
    }

    /// The units of the present window, and of the one before where it slides: admitted, and lost.
    pub(crate) fn of_window(&self, world: &World, now: Tick) -> (u64, u64) {
        let admitted = self.admitted.iter().map(|(_, units)| units);
        let admitted = self.weighing(world, now, admitted);
        (admitted, self.weighing(world, now, self.lost.iter()))
    }

    pub(crate) fn never_reported(&self) -> u64 {
        self.never_reported
    }

    pub(crate) fn excused(&self) -> u64 {
        self.excused
    }

    /// All that was admitted.
    pub(crate) fn total(&self) -> u64 {
        self.admitted.iter().map(|(_, units)| units.units).sum()
    }

    /// The most units that were admitted in one fixed window.
    pub(crate) fn most_in_a_window(&self) -> u64 {
        let of = |window: Tick| {
            let units = self.admitted.iter().map(|(_, units)| units);
            let units = units.filter(move |units| units.at / LENGTH == window);
            units.map(|units| units.units).sum()
        };
        let windows = self.admitted.iter().map(|(_, units)| units.at / LENGTH);
        windows.map(of).max().unwrap_or(0)
    }

    /// What an exact bucket has left from which only what was admitted was taken; below 0 if that was too much at any time.
    pub(crate) fn left_in_bucket(&self, quota: &Quota, now: Tick) -> i128 {
        let parts = quota.period().as_micros() as i128;
        let (full, rate) = (i128::from(quota.limit()) * parts, i128::from(quota.rate()));
        let mut admitted: Vec<_> = self.admitted.iter().map(|(_, units)| *units).collect();
        admitted.sort_by_key(|units| units.at);
        let (mut level, mut least, mut last) = (full, full, 0);
        for units in admitted {
            let passed = i128::from(units.at - last);
            level = full.min(level + passed * rate) - i128::from(units.units) * parts;
            (least, last) = (least.min(level), units.at);
        }
        let level = full.min(level + i128::from(now - last) * rate);
        if least < 0 { -1 } else { level / parts }
    }
}
