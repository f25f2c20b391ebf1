//! Durations as whole seconds.

use std::time::Duration;

/// Whole seconds, rounded up, at least one: rounding down would promise units too early, and 0 would mean "now".
pub(crate) const fn whole_seconds(duration: Duration) -> u64 {
    let seconds = duration
        .as_secs()
        .saturating_add((duration.subsec_nanos() > 0) as u64);
    if seconds == 0 { 1 } else { seconds }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up_and_never_zero() {
        for (duration, seconds) in [
            (Duration::ZERO, 1),
            (Duration::from_nanos(1), 1),
            (Duration::from_secs(1), 1),
            (Duration::new(1, 1), 2),
            (Duration::from_millis(1_500), 2),
            (Duration::MAX, u64::MAX),
        ] {
            assert_eq!(whole_seconds(duration), seconds, "{duration:?}");
        }
    }
}
