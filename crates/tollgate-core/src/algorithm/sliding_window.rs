//! Sliding window of two weighted counters: an estimate, at the price of a fixed window.
//!
//! # Promise
//!
//! Two aligned windows are counted. The one before weighs as much of itself as still overlaps the window that slides. At
//! each admission
//!
//! ```text
//! current + ⌈previous · overlap / W⌉ ≤ limit
//! ```
//!
//! holds, the new units included. The overlap shrinks evenly from `W`, at the start of an aligned window, to 0 at its end.
//! The formula is the known one of proxies and content networks; it is exact if the units of the previous window were
//! spread evenly.
//!
//! # Worst case
//!
//! If they were not, nearly `2 · limit` in one window: all at the end of an aligned window, and then one by one as they
//! are weighed less, although they are younger than the estimate takes them for. Measured against an exact log, 100 in
//! 60 s: 117 in the worst 60 s of random traffic, 167 with bursts, 199 with an adversary at the boundary.
//!
//! # Rounding
//!
//! Against the client. Where `limit · W` is 2⁵³ unit·µs or more (some 104 000 a day), the overlap is counted in steps of
//! several µs, so that each product stays exact for stores that count in doubles. It makes the estimate larger by less
//! than one unit up to a limit of 2²⁶ (67 108 864), by less than two above.
//! [`Quota::validate`](crate::Quota::validate) refuses what would cost more.
//!
//! # State
//!
//! The number of the window and two counts: 16 bytes; 43 to 64 bytes a key in the memory store.
//!
//! # When to take it, and when not
//!
//! Take it where a limit is said as "n in a window" and the hard boundary of a [`fixed_window`](super::fixed_window) is
//! unwelcome. Not where the number is a promise: take [`sliding_buckets`](super::sliding_buckets), or
//! [`sliding_log`](super::sliding_log) for small limits. Not where an even pace is wanted: take [`gcra`](super::gcra). A
//! client that used all of a window waits until the next one has begun, and may need to wait up to two windows for
//! the whole limit.
//!
//! # Examples
//!
//! ```
//! use tollgate_core::{MINUTE, Quota, Retry, algorithm::{Algorithm, SlidingWindow}};
//!
//! let quota = SlidingWindow::new(&Quota::sliding_window(100, MINUTE)).expect("a valid quota");
//! let mut state = Default::default();
//! // The start of a minute.
//! let now = 1_700_000_040_000_000;
//! quota.take(&mut state, now, 100);
//! // A quarter into the next minute, three quarters of the hundred still count.
//! assert_eq!(quota.assess(&state, now + 75_000_000, 0).remaining, 25);
//! // The first of them has gone a hundredth into it.
//! assert_eq!(quota.assess(&state, now, 1).retry, Retry::after_micros(60_600_000));
//! ```

use crate::algorithm::window::{WindowCounter, WindowState};

/// A sliding window of two counters, made ready. See the [module documentation](self).
pub type SlidingWindow = WindowCounter<true>;

/// 16 bytes: which window, the units taken in it, and in the one before.
pub type SlidingWindowState = WindowState<true>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{algorithm::Algorithm, quota::Quota, time::DAY};

    #[test]
    fn a_count_of_a_far_larger_limit_is_weighed_beyond_64_bits() {
        let window = |limit| Quota::sliding_window(limit, 10 * DAY);
        let [large, small] =
            [60_000_000, 10].map(|limit| SlidingWindow::new(&window(limit)).expect("valid"));
        let (period, start) = (864_000_000_000, 1_700_352_000_000_000);
        let mut state = SlidingWindowState::default();
        large.take(&mut state, start, 60_000_000);
        let state = small.convert(&large, &state, start + period);
        // In 864 000 million steps: all of them, half of them, and one.
        for (after, remaining) in [(0, 0), (period / 2, 0), (period - 1, 9)] {
            let answer = small.assess(&state, start + period + after, 0);
            assert_eq!(answer.remaining, remaining, "after {after} µs");
        }
    }
}
