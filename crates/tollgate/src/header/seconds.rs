//! Durations as whole seconds.

use std::time::Duration;

/// Whole seconds, rounded up, at least one: rounding down would promise units too early, and 0 would mean "now".
pub(crate) const fn whole_seconds(duration: Duration) -> u64 {
    let seconds = duration
        .as_secs()
        .saturating_add((duration.subsec_nanos() > 0) as u64);
    if seconds == 0 { 1 } else { seconds }
}
