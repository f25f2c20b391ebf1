//! Token bucket: a capacity, and a refill.
//!
//! A bucket holds up to `capacity` tokens and is full at first. It refills evenly, by `rate` tokens a period, and a
//! request takes as many as it costs or none.
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
//! A full bucket, emptied at once and then as fast as it refills. With a capacity of what refills in a window, that is
//! nearly twice as much in one window: by definition, so choose the capacity for what may come at once, and the refill
//! for what may come on average.
//!
//! # State
//!
//! The tokens are not counted. What is kept is the instant at which the bucket will be full again, which says the same and
//! needs no refill to be carried out: 16 bytes, 43 to 64 bytes a key in the memory store. It is the state machine of
//! [`gcra`](crate::algorithm::gcra), exact to the fraction of a microsecond; its page has the source and the arithmetic.
//!
//! # When to take it, and when not
//!
//! Take it for interfaces that have to bear a burst and an average which are different numbers, or where costs differ much
//! from request to request. Not for "never more than n in any minute": take
//! [`sliding_log`](crate::algorithm::sliding_log) or [`sliding_buckets`](crate::algorithm::sliding_buckets).
//!
//! # Examples
//!
//! ```
//! use tollgate_core::{
//!     Quota, SECOND,
//!     algorithm::{Algorithm, Gcra},
//! };
//!
//! // 20 at once, 10 a second on average.
//! let quota = Gcra::new(&Quota::token_bucket(20).refill(10, SECOND)).expect("a valid quota");
//! let mut state = Default::default();
//! let now = 1_700_000_000_000_000;
//! quota.take(&mut state, now, 20);
//! assert!(!quota.assess(&state, now, 1).fits);
//! assert_eq!(quota.assess(&state, now + 500_000, 0).remaining, 5);
//! // It is full after two seconds, and stays so.
//! assert_eq!(quota.assess(&state, now + 60_000_000, 0).remaining, 20);
//! ```
//!
//! A slow refill for expensive requests:
//!
//! ```
//! use tollgate_core::{HOUR, Quota, Retry, algorithm::{Algorithm, Gcra}};
//!
//! let quota = Gcra::new(&Quota::token_bucket(100).refill(60, HOUR)).expect("a valid quota");
//! let mut state = Default::default();
//! let now = 1_700_000_000_000_000;
//! quota.take(&mut state, now, 80);
//! // Ten tokens are missing, one comes in a minute.
//! assert_eq!(quota.assess(&state, now, 30).retry, Retry::after_micros(600_000_000));
//! // More than the bucket holds never fits.
//! assert_eq!(quota.assess(&state, now, 101).retry, Retry::Never);
//! ```
