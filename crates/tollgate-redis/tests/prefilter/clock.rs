//! The clock that the processes of a machine share.

use rustix::time::{ClockId, clock_gettime};

/// µs by `CLOCK_MONOTONIC`: it shows the same in every process, runs as the wall clock does, and does not step as that may.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    // It shows no time before its beginning.
    time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_nsec.unsigned_abs() / 1_000
}
