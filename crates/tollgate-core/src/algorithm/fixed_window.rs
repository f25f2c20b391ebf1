//! Fixed window: a count that starts anew at each boundary.
//!
//! # Promise
//!
//! Windows are aligned to the Unix epoch, number `⌊now / W⌋`, or to a [calendar](crate::Quota::calendar). In each of them at most
//!
//! ```text
//! limit
//! ```
//!
//! units are admitted. A window of an hour begins on the hour and one of a day at midnight, UTC, in every process. One of a week
//! begins on Thursdays at midnight, UTC, because the epoch was a Thursday; one of 30 days at no date of a calendar. Those of a
//! calendar begin with a month, a week or a day of a time zone, whatever its length.
//!
//! # Worst case
//!
//! `2 · limit` in a window that lies across a boundary: all of one at its end, and all of the next at its start. After a
//! denial everything comes back at once, and for all keys at the same instant: clients that obey `Retry-After` return
//! together, unless it is given jitter.
//!
//! # State
//!
//! The number of the window (of a calendar its end) and a count: 16 bytes; 43 to 64 bytes a key in the memory store.
//!
//! # When to take it, and when not
//!
//! Take it for quotas that people read and plan with ("1 000 an hour, anew on the hour"), for long windows, and for very
//! large limits. Not to protect something that breaks at twice the limit: take
//! [`gcra`](crate::algorithm::gcra), or [`sliding_window`](crate::algorithm::sliding_window) for the same price.
//!
//! # Examples
//!
//! ```
//! use tollgate_core::{MINUTE, Quota, Retry, algorithm::{Algorithm, FixedWindow}};
//!
//! let quota = FixedWindow::new(&Quota::fixed_window(100, MINUTE)).expect("a valid quota");
//! let mut state = Default::default();
//! // Ten seconds before the minute is over.
//! let now = 1_700_000_040_000_000 + 50_000_000;
//! quota.take(&mut state, now, 100);
//! assert_eq!(quota.assess(&state, now, 1).retry, Retry::after_micros(10_000_000));
//! // Then all comes back: 200 within these ten seconds.
//! assert_eq!(quota.assess(&state, now + 10_000_000, 100).remaining, 0);
//! assert!(quota.assess(&state, now + 10_000_000, 100).fits);
//! ```
//!
//! A change of the limit keeps the count:
//!
//! ```
//! use tollgate_core::{
//!     MINUTE, Quota,
//!     algorithm::{Algorithm, FixedWindow},
//! };
//!
//! let small = FixedWindow::new(&Quota::fixed_window(100, MINUTE)).expect("a valid quota");
//! let large = FixedWindow::new(&Quota::fixed_window(500, MINUTE)).expect("a valid quota");
//! let mut state = Default::default();
//! let now = 1_700_000_040_000_000;
//! small.take(&mut state, now, 100);
//! let state = large.convert(&small, &state, now);
//! assert_eq!(large.assess(&state, now, 0).remaining, 400);
//! ```

use crate::algorithm::window::{WindowCounter, WindowState};

/// A fixed window, made ready. See the [module documentation](self).
pub type FixedWindow = WindowCounter<false>;

/// 16 bytes: which window, and how many units were taken in it.
pub type FixedWindowState = WindowState<false>;
