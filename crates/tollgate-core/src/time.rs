//! Time: the tick, and the clocks that count it.
//!
//! Algorithms take the time as an argument and read no clock. A store owns one [`Clock`]; tests hand it a [`ManualClock`].

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Microseconds since the Unix epoch, by the clock of the store.
///
/// One tick is one microsecond in memory and in every remote store, so that aligned windows start at the same instant
/// everywhere.
pub type Tick = u64;

/// One second.
pub const SECOND: Duration = Duration::from_secs(1);
/// One minute.
pub const MINUTE: Duration = Duration::from_secs(60);
/// One hour.
pub const HOUR: Duration = Duration::from_secs(60 * 60);
/// Twenty-four hours.
pub const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A source of [`Tick`]s. Cheap to clone; clones tell the same time.
#[must_use]
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    System(Arc<SystemClock>),
    Custom(Arc<dyn Fn() -> Tick + Send + Sync>),
}

impl Clock {
    /// The wall clock at the time of this call, and a monotonic clock from then on: it is aligned to the epoch and
    /// never goes back.
    ///
    /// Later changes of the system's time (NTP steps, an administrator) are not followed.
    pub fn system() -> Self {
        Self(Source::System(Arc::new(SystemClock::new())))
    }

    /// A clock of your own. It may stand still, jump ahead or go back: limits stay safe, because time that goes back
    /// never refills.
    ///
    /// It is read while states are locked: it must not call a limiter on the same store.
    pub fn custom(now: impl Fn() -> Tick + Send + Sync + 'static) -> Self {
        Self(Source::Custom(Arc::new(now)))
    }

    /// Tokio's clock, which a test can pause and advance (`tokio::time::pause`), starting at the wall clock's time.
    #[cfg(feature = "tokio")]
    #[doc(alias = "TokioClock")]
    pub fn tokio() -> Self {
        let base = wall_clock();
        let start = tokio::time::Instant::now();
        Self::custom(move || base + micros(start.elapsed()))
    }

    /// The time now.
    #[inline(always)]
    #[must_use]
    pub fn now(&self) -> Tick {
        match &self.0 {
            Source::System(clock) => clock.now(),
            Source::Custom(now) => now(),
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl From<ManualClock> for Clock {
    fn from(clock: ManualClock) -> Self {
        Self::custom(move || clock.now())
    }
}

impl From<&ManualClock> for Clock {
    fn from(clock: &ManualClock) -> Self {
        clock.clone().into()
    }
}

crate::debug_fields!(Clock);

/// A clock that moves only when you advance it. Clones share the time.
///
/// By default it shows 2023-11-14, 22:13:20 UTC: a day at which windows, dates in header fields and states of the past look as
/// they do in service, which they do not at the epoch.
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::{Key, Limiter, MINUTE, ManualClock, MemoryStore, Quota, Rule};
///
/// let clock = ManualClock::default();
/// let store = MemoryStore::builder().clock(&clock).build();
/// let limiter = Limiter::new(store, [Rule::new("log-in", Quota::sliding_log(1, MINUTE))])?;
/// assert!(limiter.try_acquire("log-in", &Key::shared())?.is_allowed());
/// assert!(!limiter.try_acquire("log-in", &Key::shared())?.is_allowed());
/// clock.advance(MINUTE);
/// assert!(limiter.try_acquire("log-in", &Key::shared())?.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// At a time of your own:
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::ManualClock;
///
/// let clock = ManualClock::new(1_000_000);
/// clock.advance(Duration::from_millis(250));
/// assert_eq!(clock.now(), 1_250_000);
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicU64>);

impl Default for ManualClock {
    fn default() -> Self {
        Self::new(1_700_000_000_000_000)
    }
}

impl ManualClock {
    /// A clock that shows `now`.
    #[must_use]
    pub fn new(now: Tick) -> Self {
        Self(Arc::new(AtomicU64::new(now)))
    }

    /// The time that was set.
    #[must_use]
    pub fn now(&self) -> Tick {
        self.0.load(Ordering::Relaxed)
    }

    /// Moves ahead by `by`, rounded down to microseconds.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(micros(by), Ordering::Relaxed);
    }

    /// Jumps to `now`, back as well as ahead.
    pub fn set(&self, now: Tick) {
        self.0.store(now, Ordering::Relaxed);
    }
}

/// How often the cycle counter is compared with the operating system's clock, in microseconds.
const SYNC_INTERVAL: u64 = 100_000;
/// By how much the cycle counter may run ahead between two comparisons before it is not used any more, in microseconds.
const TRUSTED_ERROR: u64 = 10_000;

/// The operating system's monotonic clock, read through the processor's cycle counter.
///
/// With `Instant::now` an acquire in memory takes half as long again (70 ns instead of 46). `quanta`'s own time costs less (49
/// ns), but the counter drifts (80 ppm were seen, 7 s a day), and windows of processes would no longer be aligned. So it is
/// slowed down by 1/1024 and set *forward* to the operating system's clock every 100 ms: it lags by at most 0.1 ms, and
/// never goes back. A counter that runs away in spite of that (a migrated virtual machine) is not used any more.
struct SystemClock {
    counter: quanta::Clock,
    /// Slowed microseconds a count, in 2^-64.
    scale: u64,
    /// Counts in a sync interval.
    sync_counts: u64,
    start: Instant,
    /// The wall clock at `start`, in ticks.
    epoch: Tick,
    /// What to add to the slowed microseconds of the counter.
    offset: AtomicU64,
    /// The count at which to compare again.
    sync_at: AtomicU64,
    runaway: AtomicBool,
}

impl SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock module")]
    fn new() -> Self {
        let counter = quanta::Clock::new();
        // Nanoseconds in 2^40 counts: a quarter of an hour, so the scale is good to ten digits.
        let nanos = u128::from(counter.delta_as_nanos(0, 1 << 40));
        let slowed = (nanos << 24) / 1_000;
        let scale = u64::try_from(slowed - slowed / 1_024).unwrap_or(u64::MAX);
        let sync_counts = (u128::from(SYNC_INTERVAL) << 64) / u128::from(scale.max(1));
        let epoch = wall_clock();
        // The operating system first, as in `sync`: a thread that loses the processor after the counter would make a clock that
        // is ahead by its absence, or one that counts as run away.
        let start = Instant::now();
        let clock = Self {
            counter,
            scale,
            sync_counts: u64::try_from(sync_counts).unwrap_or(u64::MAX),
            start,
            epoch,
            offset: AtomicU64::new(0),
            sync_at: AtomicU64::new(0),
            runaway: AtomicBool::new(false),
        };
        clock.sync();
        clock
    }

    #[inline(always)]
    fn now(&self) -> Tick {
        let count = self.counter.raw();
        if count >= self.sync_at.load(Ordering::Relaxed) {
            return self.sync();
        }
        self.slow(count) + self.offset.load(Ordering::Relaxed)
    }

    /// Slowed microseconds.
    #[inline(always)]
    fn slow(&self, count: u64) -> u64 {
        ((u128::from(count) * u128::from(self.scale)) >> 64) as u64
    }

    /// The time by the operating system's clock.
    fn exact(&self) -> Tick {
        self.epoch + micros(self.start.elapsed())
    }

    #[cold]
    fn sync(&self) -> Tick {
        // The operating system first: whatever comes between the two reads makes the offset smaller, never larger.
        // A thread that loses the processor in between tries again, so that the clock does not lag by its absence.
        let mut exact = self.exact();
        if self.runaway.load(Ordering::Relaxed) {
            return exact;
        }
        let mut count = self.counter.raw();
        for _ in 0..3 {
            let again = self.exact();
            if again - exact < 5 {
                break;
            }
            exact = again;
            count = self.counter.raw();
        }
        let slow = self.slow(count);
        let fresh = exact.saturating_sub(slow);
        let before = self.offset.fetch_max(fresh, Ordering::Relaxed);
        if before.saturating_sub(fresh) > TRUSTED_ERROR {
            self.runaway.store(true, Ordering::Relaxed);
            self.sync_at.store(0, Ordering::Relaxed);
            return exact;
        }
        self.sync_at
            .store(count.saturating_add(self.sync_counts), Ordering::Relaxed);
        slow + before.max(fresh)
    }
}

/// One look at the wall clock: a [`Clock`] is costly to make.
#[doc(hidden)]
#[expect(clippy::disallowed_methods, reason = "this is the clock module")]
pub fn wall_clock() -> Tick {
    // A system clock before 1970 counts as 1970: windows are aligned differently then, and nothing else.
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, micros)
}

/// Whole milliseconds, rounded up as in answers to clients: a wait is not 0, and not over before they are.
#[cfg(feature = "tracing")]
pub(crate) fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Whole microseconds, rounded down, at most `u64::MAX`. For the crates of tollgate.
#[doc(hidden)]
#[must_use]
pub fn micros(duration: Duration) -> u64 {
    let seconds = duration.as_secs().saturating_mul(1_000_000);
    seconds.saturating_add(u64::from(duration.subsec_micros()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_never_goes_back_and_follows_the_operating_system() {
        let clock = SystemClock::new();
        let mut last = 0;
        for _ in 0..200_000 {
            let now = clock.now();
            assert!(now >= last, "{now} after {last}");
            last = now;
        }
        // A read between two reads of the operating system's clock lies between them, less the allowed lag.
        let before = clock.exact();
        let now = clock.now();
        let after = clock.exact();
        assert!(
            now + 1_000_000 >= before && now <= after + 1,
            "{before} {now} {after}"
        );
    }

    #[test]
    fn a_counter_that_ran_away_is_not_used_any_more() {
        let clock = SystemClock::new();
        clock
            .offset
            .store(clock.epoch + 3_600_000_000, Ordering::Relaxed);
        clock.sync_at.store(0, Ordering::Relaxed);
        let now = clock.now();
        assert!(clock.runaway.load(Ordering::Relaxed));
        assert!(now <= clock.exact());
    }

    #[test]
    fn the_counter_is_slowed_by_a_part_in_a_thousand_and_compared_each_tenth_of_a_second() {
        let clock = SystemClock::new();
        let second = (1_u64 << 40) as f64 * 1e9 / clock.counter.delta_as_nanos(0, 1 << 40) as f64;
        let start = clock.counter.raw();
        let after = |seconds: f64| start + (second * seconds) as u64;
        let slowed = 1e6 - 1e6 / 1_024.0;
        for seconds in [0.0, 1.0, 60.0] {
            let slow = (clock.slow(after(seconds)) - clock.slow(start)) as f64;
            assert!(
                (slow - seconds * slowed).abs() < 2.0,
                "{slow} of {seconds} s"
            );
        }
        let interval = clock.sync_counts as f64 / second;
        assert!(
            (interval - 0.1 * 1_024.0 / 1_023.0).abs() < 1e-6,
            "{interval} s"
        );
    }

    #[test]
    fn a_counter_that_is_ahead_by_less_than_what_is_trusted_is_used_and_time_does_not_go_back() {
        let clock = SystemClock::new();
        let ahead =
            clock.offset.fetch_add(TRUSTED_ERROR / 2, Ordering::Relaxed) + TRUSTED_ERROR / 2;
        clock.sync_at.store(0, Ordering::Relaxed);
        let now = clock.now();
        assert!(now >= clock.epoch && !clock.runaway.load(Ordering::Relaxed));
        assert!(clock.offset.load(Ordering::Relaxed) >= ahead);
        // A comparison moves it forward alone.
        clock.offset.store(0, Ordering::Relaxed);
        let before = clock.exact();
        assert!(clock.sync() >= before && clock.now() >= before);
    }

    #[test]
    fn times_are_rounded_down_to_microseconds_and_never_too_large() {
        assert_eq!(micros(Duration::from_nanos(2_000_001_999)), 2_000_001);
        assert_eq!(micros(Duration::MAX), u64::MAX);
        let seconds = u64::MAX / 1_000_000 + 1;
        assert_eq!(micros(Duration::from_secs(seconds)), u64::MAX);
    }
}
