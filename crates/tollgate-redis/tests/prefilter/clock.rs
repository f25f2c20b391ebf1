//! The clock that the processes of a machine share.

use rustix::time::{ClockId, clock_gettime};

/// µs by `CLOCK_MONOTONIC`: it shows the same in every process, runs as the wall clock does, and does not step as that may.
pub(crate) fn now() -> u64 {
    micros(ClockId::Monotonic)
}

/// By how many µs the wall clock, and so the time of a server here, is ahead of [`now`]. Who is interrupted between the two finds less.
pub(crate) fn wall_ahead() -> u64 {
    let ahead = (0..9).map(|_| micros(ClockId::Realtime) - now());
    ahead.max().unwrap_or_default()
}

fn micros(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Neither clock shows a time before its beginning.
    time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_nsec.unsigned_abs() / 1_000
}
