//! The fixed words of what is counted.

/// What a call is sent for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallFor {
    Requests,
    Settlements,
    Reports,
    /// Leases that go back without a request.
    Leases,
    Resets,
    Meter,
}

/// What became of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseEvent {
    RequestLayout,
    Lent,
    HandedBack,
    /// No answer came: whatever was granted is lost.
    Lost,
}

/// What became of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportEvent {
    Sent,
    /// It was certainly not carried out, and goes with the next.
    Kept,
    /// Nobody knows whether it was.
    Lost,
}
