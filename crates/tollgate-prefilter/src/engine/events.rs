//! What happens in the engine.

use std::fmt;

use tollgate_core::{
    Check, Decision, Tick,
    store::{Receipt, Settlement},
};

/// What became of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseEvent {
    /// A query requested one.
    Requested,
    /// The store granted one.
    Granted,
    /// One goes back to the store.
    Returned,
    /// No reply came to a query that requested one: if it was granted, its units are lost.
    Lost,
}

/// What became of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReportEvent {
    /// It was sent.
    Sent,
    /// It was certainly not carried out. Its units go with the next one.
    Kept,
    /// It is unknown whether it was carried out.
    Lost,
}

/// Counts what happens in an [`Engine`](crate::Engine).
pub trait EngineEvents: fmt::Debug + Send + Sync {
    /// Something became of a lease.
    fn lease(&self, event: LeaseEvent);

    /// Something became of this many reports.
    fn reports(&self, event: ReportEvent, count: usize);

    /// The store may not know of this many admitted units, and they are not reported again.
    fn units_lost(&self, units: u64);
}

/// Follows the requests of one rule set. A store's [`StoreRules`](crate::StoreRules::request_events) has one, if any.
///
/// It is called in the order of the decisions, by the thread that decides, with the time of the process.
pub trait RequestEvents: fmt::Debug + Send + Sync {
    /// A request for units was decided, by this process or by the store. A check that both failed to decide has no numbers.
    /// Requests that were [abandoned](crate::Query::abandon) are left out: their units come back.
    fn decided(&self, checks: &[Check], decision: &Decision, now: Tick);

    /// Units that were taken are about to be settled.
    fn settled(&self, receipts: &[Receipt], how: Settlement, now: Tick);

    /// The state of a check is about to be forgotten.
    fn reset(&self, check: &Check, now: Tick);
}
