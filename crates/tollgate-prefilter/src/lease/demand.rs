//! How many units a second requests need.

use tollgate_core::Tick;

/// The average units a second that requests of one key in one process need, over about half a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    /// In thousandths of a unit a second.
    rate: u64,
    since: Tick,
    units: u64,
}

/// Half a second: short, because a busy key queries the store for every unit until it is over.
const MEMORY: u64 = 500_000;

impl Demand {
    /// Counts units that a request needs.
    pub(crate) fn count(&mut self, units: u64) {
        self.units = self.units.saturating_add(units);
    }

    /// Averages what was counted up to `now`.
    pub(crate) fn average(&mut self, now: Tick) {
        // Of the first units it is not known in what time they came.
        if self.since == 0 {
            (self.since, self.units) = (now, 0);
            return;
        }
        let passed = now.saturating_sub(self.since);
        if passed == 0 {
            return;
        }
        let rate = u128::from(self.units) * 1_000_000_000 / u128::from(passed);
        let (old, passed) = (u128::from(self.rate), u128::from(passed));
        let rate = (old * u128::from(MEMORY) + rate * passed) / (u128::from(MEMORY) + passed);
        self.rate = u64::try_from(rate).unwrap_or(u64::MAX);
        (self.since, self.units) = (now, 0);
    }

    /// For how long nothing was averaged, in µs.
    pub(crate) fn age(&self, now: Tick) -> Tick {
        now.saturating_sub(self.since)
    }

    /// The units that requests will likely need within this time, in µs.
    pub(crate) fn within(&self, time: Tick) -> u64 {
        let units = u128::from(self.rate) * u128::from(time) / 1_000_000_000;
        u64::try_from(units).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_a_steady_rate_within_a_second() {
        let mut demand = Demand::default();
        for request in 1..=1_000 {
            demand.count(1);
            demand.average(1_000_000 + request * 1_000);
        }
        let rate = demand.within(1_000_000);
        assert!((800..=1_001).contains(&rate), "{rate}");
    }

    #[test]
    fn a_key_that_fell_silent_is_forgotten() {
        let mut demand = Demand::default();
        for request in 1..=1_000 {
            demand.count(1);
            demand.average(1_000_000 + request * 1_000);
        }
        demand.count(1);
        demand.average(600_000_000);
        assert_eq!(demand.within(1_000_000), 0);
    }
}
