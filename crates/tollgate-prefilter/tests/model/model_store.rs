//! The store, and what was really admitted.

use std::fmt::Debug;

use tollgate_core::Tick;
use tollgate_prefilter::{Grant, LeaseQuery, ReturnedLease};

use crate::{alive::Bytes, fault::Fault};

/// A grantor with its state, and an exact limit that knows what was admitted where and when it was.
pub(crate) trait ModelStore: Clone + Debug + PartialEq + Send + Sync + 'static {
    /// When a world begins.
    const START: Tick;

    /// The store carries out a query.
    fn execute(
        &mut self,
        fault: Option<Fault>,
        clock: Tick,
        cost: u64,
        query: &LeaseQuery,
    ) -> (bool, Option<Grant>);

    /// The store forgets what was used, and so does the exact limit.
    fn reset(&mut self, fault: Option<Fault>, clock: Tick);

    /// A process has let through so many units.
    fn admit(&mut self, units: u64);

    /// A process has spent a unit on a request that may not be let through.
    fn begin(&mut self);

    /// So many of these units, which were counted in this window, were not let through.
    fn take_back(&mut self, window: Option<u64>, units: u64);

    /// The store is to take back units that were granted in this window.
    fn refund(&mut self, clock: Tick, window: u64, units: u64);

    /// The limit is another one.
    fn change(&mut self);

    /// So many units that are spent, or held beyond what is tracked, are out when the key is reset: they may come back, and
    /// exceed the limit.
    fn excuse(&mut self, units: u64);

    /// A microsecond has passed.
    fn tick(&mut self, now: Tick);

    /// Whether no more was admitted than the exact limit has.
    fn holds(&self) -> bool;

    /// Whether the exact limit has what the store has left and what processes hold, together.
    fn covers(&self, clock: Tick, held: u64) -> bool;

    /// Whether all that is counted now was admitted, or is held under the number of a generation or a window, or was lost in
    /// this window or in the one before. Always true for a bucket: what it loses comes back.
    fn accounts_for(&self, clock: Tick, held: &[ReturnedLease], lost: [u64; 2]) -> bool;

    /// The number of the generation or the window of leases that are granted now.
    fn generation(&self, clock: Tick) -> u64;

    /// What matters of the time at which the store has answered.
    fn phase(&self, at: Tick) -> u8;

    /// All that matters of it from here on, if the clock may or may not go back.
    fn alive(&self, clock: Tick, goes_back: bool, bytes: &mut Bytes);
}
