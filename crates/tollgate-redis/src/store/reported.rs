//! What became of a report of slots on lease.

/// What became of the report that a request waits for: it asks Redis for more slots of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reported {
    /// Redis has replied: the request looks again.
    Replied,
    /// The reply is lost.
    Lost,
}
