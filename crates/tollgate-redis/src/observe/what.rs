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
    /// What is in use of slots, without a request.
    Slots,
}
