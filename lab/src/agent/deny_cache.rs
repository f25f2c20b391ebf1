//! What a process knows of the arrival time.

use tollgate_core::{
    Tick,
    algorithm::{Algorithm, DenyBound},
};

use crate::consistency::Terms;

/// A lower bound of the arrival time by the process's own clock, from the store's last answers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DenyCache {
    bound: Tick,
}

impl DenyCache {
    /// An answer to a query that was sent at `sent`: the arrival time was at least so far ahead.
    ///
    /// A thousandth less, for clocks that do not run alike, and a microsecond, for it was rounded up.
    pub(crate) fn learn(&mut self, sent: Tick, ahead: Tick) {
        let bound = sent + (ahead - ahead / 1_000).saturating_sub(1);
        self.bound = self.bound.max(bound);
    }

    /// Whether `cost` units certainly do not fit.
    pub(crate) fn refuses(&self, now: Tick, cost: u64, terms: &Terms) -> bool {
        // Beyond its burst a bucket owes units: nothing fits until they have come back, and then it is empty.
        let bound = self.bound.min(now.saturating_add(terms.fill()));
        let bound = DenyBound(bound, 0);
        // Of windows nothing is learned.
        let arrival = terms.arrival.as_ref();
        arrival.is_some_and(|arrival| arrival.deny_by(bound, now, cost).is_some())
    }
}
