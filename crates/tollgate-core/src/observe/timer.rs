//! How long decisions take.

/// The start of a decision, for `tollgate_check_duration_seconds`. The clock is read for one in 16 of a thread's decisions,
/// and only with the feature `metrics`.
#[must_use = "a timer measures up to the report that it is given to"]
#[derive(Clone, Copy, Debug)]
pub struct Timer {
    #[cfg(feature = "metrics")]
    start: Option<std::time::Instant>,
}

/// One decision of a thread in this number is timed.
#[cfg(feature = "metrics")]
const ONE_IN: u32 = 16;

impl Timer {
    /// Starts now.
    #[inline]
    #[cfg(feature = "metrics")]
    pub fn start() -> Self {
        use std::cell::Cell;
        thread_local! {
            static COUNT: Cell<u32> = const { Cell::new(0) };
        }
        let count = COUNT.get();
        COUNT.set(count.wrapping_add(1));
        Self {
            start: count.is_multiple_of(ONE_IN).then(now),
        }
    }

    /// Starts now.
    #[inline]
    #[cfg(not(feature = "metrics"))]
    pub fn start() -> Self {
        Self {}
    }

    /// The time since the start, if this decision is timed.
    #[cfg(feature = "metrics")]
    pub(crate) fn elapsed(self) -> Option<std::time::Duration> {
        Some(self.start?.elapsed())
    }
}

#[cfg(feature = "metrics")]
#[expect(
    clippy::disallowed_methods,
    reason = "a duration for a histogram decides nothing"
)]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

#[cfg(all(test, feature = "metrics", not(tollgate_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_each_sixteenth_decision_of_a_thread_is_timed() {
        let timed = std::thread::spawn(|| {
            let timed = (0..33).filter(|_| Timer::start().elapsed().is_some());
            timed.count()
        });
        assert_eq!(timed.join().expect("no panic"), 3);
    }
}
