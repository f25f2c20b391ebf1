//! What happens in the engine.

use std::fmt;

/// What became of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
