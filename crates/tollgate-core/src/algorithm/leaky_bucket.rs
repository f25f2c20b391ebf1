//! Leaky bucket, as a meter: a capacity, and a leak.
//!
//! Each unit is poured into a bucket, which leaks evenly, `rate` units a period. What does not fit is denied. This is the
//! leaky bucket as a *meter*: it decides and delays nothing. For the leaky bucket as a queue, which makes requests wait for
//! their turn, let the rule [`wait`](crate::Rule::wait).
//!
//! # Promise
//!
//! In every window of length `w`, whatever its start, at most
//!
//! ```text
//! capacity + ⌊rate · w⌋
//! ```
//!
//! units are admitted. Two limits on one state, while a service is replaced, admit the larger capacity and what the faster
//! rate brings; see [`gcra`](crate::algorithm::gcra#two-limits-on-one-state).
//!
//! # Worst case
//!
//! An empty bucket, filled at once and then as fast as it leaks: nearly twice the rate in one window, if the capacity is
//! what leaks in a window. A capacity of 1 spaces requests evenly.
//!
//! # State
//!
//! It is the state machine of [`gcra`](crate::algorithm::gcra), which ITU-T I.371 gives in both forms, as *virtual
//! scheduling* and as *continuous-state leaky bucket*: a level that sinks evenly, and the instant at which it will be
//! empty, say the same. 16 bytes; 43 to 64 bytes a key in the memory store.
//!
//! # When to take it, and when not
//!
//! Take it where what stands behind works at an even pace, and the capacity is how much it can put up with at once. A
//! [`token_bucket`](crate::algorithm::token_bucket) of the same numbers decides the same; the words differ, so take the
//! one that your users read more easily. Not for "never more than n in any minute": take
//! [`sliding_log`](crate::algorithm::sliding_log) or [`sliding_buckets`](crate::algorithm::sliding_buckets).
//!
//! # Examples
//!
//! ```
//! use tollgate_core::{Quota, Retry, SECOND, algorithm::{Algorithm, Gcra}};
//!
//! // Five may pile up, and fifty a second flow off.
//! let quota = Gcra::new(&Quota::leaky_bucket(5).leak(50, SECOND)).expect("a valid quota");
//! let mut state = Default::default();
//! let now = 1_700_000_000_000_000;
//! quota.take(&mut state, now, 5);
//! assert_eq!(quota.assess(&state, now, 1).retry, Retry::after_micros(20_000));
//! assert_eq!(quota.assess(&state, now, 5).retry, Retry::after_micros(100_000));
//! ```
