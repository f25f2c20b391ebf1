//! The algorithms: what a limit promises, and how to choose.
//!
//! Each algorithm has a page of its own, with its promise as a formula, its worst case, its state and its examples.
//! `L` is the limit, `W` its window; for the buckets `B` is the burst or capacity and `r` the rate.
//!
//! | algorithm | admits in any window `w` at most | worst case | after a denial | bytes a key | take it for |
//! | --- | --- | --- | --- | --- | --- |
//! | [`gcra`] | `B + r·w` | nearly `2·L` in `W` if `B = L` | units come back one by one, evenly | 43 to 64 | most limits: exact, smooth, and the burst is a number of its own |
//! | [`token_bucket`] | `B + r·w` | the same | the same | 43 to 64 | the same, said as a capacity and a refill |
//! | [`leaky_bucket`] | `B + r·w` | the same | the same | 43 to 64 | the same, said as a capacity and a leak: what comes out behind it is even |
//! | [`fixed_window`] | `L` in each aligned window | `2·L` across a boundary | all units come back at once, for all keys at the same instant | 43 to 64 | quotas that people read: "1 000 an hour" |
//! | [`sliding_window`] | `L` by its estimate | nearly `2·L` in `W` | units come back evenly, as the window before slides out | 43 to 64 | a window without a hard boundary, at the price of a fixed one |
//! | [`sliding_buckets`] | `L` in any `W` | `L`; a unit may count for `W·(1 + 1/n)` | units come back in steps of `W/n` | 53 to 80, and `4·(n + 1)` | a hard limit in any window, too large for a log |
//! | [`sliding_log`] | `L` in any `W` | `L` | each unit comes back exactly `W` after it was taken | 64 to 80, and 16 an instant | small, hard limits: log-ins, one-time codes, payments |
//!
//! [`concurrent`] is not a rate: it limits how many run at once. A rule of it goes well together with one of a rate.
//!
//! The bytes are those of the [memory store](crate::memory): an entry of 32 bytes (40 for sub-buckets, 24 for a log, and 32 on the
//! heap) in a table that is half to three quarters full.
//!
//! A bucket whose burst equals its limit is a common surprise. After a pause a client may spend the burst and what comes
//! back in the same window, so [`Quota::gcra`]`(100, MINUTE)` admits up to 199 in one minute, by definition and in every
//! implementation. Where that is too much, set the [burst](crate::Quota::burst) apart from the rate, or take one of the
//! last two rows.
//!
//! ```
//! use tollgate_core::{
//!     MINUTE, Quota,
//!     algorithm::{Algorithm, Gcra, SlidingLog},
//! };
//!
//! // Both are "5 a minute". After five at once, half a minute later:
//! let now = 1_700_000_000_000_000;
//! let later = now + 30_000_000;
//!
//! let bucket = Gcra::new(&Quota::gcra(5, MINUTE)).expect("a valid quota");
//! let mut state = Default::default();
//! bucket.take(&mut state, now, 5);
//! assert_eq!(bucket.assess(&state, later, 0).remaining, 2);
//!
//! let log = SlidingLog::new(&Quota::sliding_log(5, MINUTE)).expect("a valid quota");
//! let mut state = Default::default();
//! log.take(&mut state, now, 5);
//! assert_eq!(log.assess(&state, later, 0).remaining, 0);
//! ```
//!
//! # How the pieces fit
//!
//! An [`Algorithm`] is a quota made ready, and a set of pure functions of (state, now, cost). It reads no clock and holds
//! no state: a store keeps a state per key, tells the time, and makes the step atomic.
//!
//! - Time is a [`Tick`](crate::Tick): a microsecond since the Unix epoch, so that aligned windows begin at the same
//!   instant in every process.
//! - [`assess`](Algorithm::assess) decides and takes nothing; [`take`](Algorithm::take) takes what was just found to fit;
//!   [`repair`](Algorithm::repair) follows a denial. In between a store can decide about other rules, and take all or
//!   nothing.
//! - A state is *fresh* when it answers every question like one that was never written. From
//!   [`fresh_at`](Algorithm::fresh_at) on it is, and may be forgotten; a tick earlier it is not.
//! - [`convert`](Algorithm::convert) carries a state over when a limit changes. Used units stay used, as many of them as
//!   the new quota can hold, and a raised limit is in force at once.
//! - [`defers_to`](Algorithm::defers_to) says which states a denial does not carry over, so that two limits on one state
//!   never admit more than the [larger](gcra#two-limits-on-one-state).
//!
//! ```
//! use tollgate_core::{Quota, Retry, SECOND, algorithm::{Algorithm, Gcra}};
//!
//! // What a store does for a request of three units.
//! let quota = Gcra::new(&Quota::token_bucket(4).refill(2, SECOND)).expect("a valid quota");
//! let mut state = Default::default();
//! let now = 1_700_000_000_000_000;
//! let answer = quota.assess(&state, now, 3);
//! assert!(answer.fits && answer.remaining == 1);
//! quota.take(&mut state, now, 3);
//!
//! // And for the next one: two units are missing, and come in a second.
//! let answer = quota.assess(&state, now, 3);
//! assert_eq!(answer.retry, Retry::after_micros(1_000_000));
//! quota.repair(&mut state, now);
//! assert!(!quota.assess(&state, now + 999_999, 3).fits);
//! assert!(quota.assess(&state, now + 1_000_000, 3).fits);
//! ```
//!
//! # What holds for all of them
//!
//! (Slots differ where [`concurrent`] says so.)
//!
//! - **A cost of 0** always fits, takes nothing, creates no state, and reports what is left.
//! - **A cost above the limit** never fits, whatever the time: [`Retry::Never`].
//! - **A denial takes nothing.** Its retry is exact for one client alone on the key: at that tick the same cost fits, one
//!   tick earlier it does not.
//! - **Arithmetic is exact.** What a formula leaves as a fraction is rounded against the client, by less than one unit,
//!   and nothing accumulates: a rate of 7 a second is 7 a second after ten million requests.
//! - **Time that goes back** never refills and never panics. What was taken in the future still counts. The next denial
//!   repairs a state that is so far ahead that it would shut the client out: an arrival time moves to `now` plus the
//!   burst, entries of a log to `now`, and a window or sub-bucket to the one after that of `now`. It does not move to
//!   that of `now`: a clock that goes back by a millisecond over a boundary would refill the window it came from.
//!
//! The tests hold each algorithm to an exact oracle of big integers over random histories. `docs/design/arithmetic.md` in the
//! repository says where a fraction is rounded, and what other representations lose.
//!
//! [`Quota::gcra`]: crate::Quota::gcra

mod aging;
pub(crate) mod assessment;
pub mod concurrent;
pub mod fixed_window;
pub mod gcra;
mod gcra_state;
pub mod leaky_bucket;
pub mod sliding_buckets;
pub mod sliding_log;
pub mod sliding_window;
pub mod token_bucket;
mod window;

pub(crate) use self::assessment::Retry;
pub use self::{
    assessment::{Algorithm, Assessment, DenyBound, Instant, Taken},
    concurrent::{Concurrent, ConcurrentState},
    fixed_window::{FixedWindow, FixedWindowState},
    gcra::Gcra,
    gcra_state::GcraState,
    sliding_buckets::{SlidingBuckets, SlidingBucketsState},
    sliding_log::{SlidingLog, SlidingLogState},
    sliding_window::{SlidingWindow, SlidingWindowState},
    window::{WindowCounter, WindowState},
};
