//! The clock of this process, by which what it holds runs out.

use std::time::Duration;

use tollgate_core::{Clock, Tick};

/// A clock that goes on while the machine sleeps, where the system has one: Linux and Android. [`Clock::system`] stands still
/// meanwhile, and leases that the store has forgotten would be spent after it.
pub(super) fn process_clock() -> Clock {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return by(since_boot);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    return Clock::system();
}

/// The wall clock at the time of this call, and what passes by `reading` from then on.
fn by(reading: impl Fn() -> Duration + Send + Sync + 'static) -> Clock {
    let start = Clock::system().now().saturating_sub(micros(reading()));
    Clock::custom(move || start.saturating_add(micros(reading())))
}

/// The time since the machine was started, with what it slept.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn since_boot() -> Duration {
    use rustix::time::{ClockId, clock_gettime};

    let time = clock_gettime(ClockId::Boottime);
    // Neither is below zero, and there are fewer than 2^30 ns.
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}

fn micros(span: Duration) -> Tick {
    Tick::try_from(span.as_micros()).unwrap_or(Tick::MAX)
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_what_passes_since_the_machine_was_started() {
        let clock = process_clock();
        let (outer, start, inner) = (since_boot(), clock.now(), since_boot());
        while since_boot() - inner < Duration::from_millis(2) {}
        let (least, end, most) = (since_boot() - inner, clock.now(), since_boot() - outer);
        // A microsecond may be cut off at either end.
        let passed = micros(least) - 1..=micros(most) + 1;
        assert!(
            passed.contains(&(end - start)),
            "{} µs of {passed:?}",
            end - start
        );
    }
}
