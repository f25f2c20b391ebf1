//! The time by which entries expire.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate_core::Tick;

/// Microseconds since the Unix epoch.
pub(crate) fn now() -> Tick {
    tollgate::clock::Clock::system().now()
}

/// The time at this tick.
pub(crate) fn time(at: Tick) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(at)
}
