//! The time by which entries expire.

use tollgate_core::Tick;

/// Microseconds since the Unix epoch.
pub(crate) fn now() -> Tick {
    tollgate::Clock::system().now()
}
