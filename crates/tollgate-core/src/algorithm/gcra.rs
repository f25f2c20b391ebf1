//! GCRA: units evenly spaced, with a burst.
//!
//! # Promise
//!
//! In every window of length `w`, whatever its start, at most
//!
//! ```text
//! burst + ⌊rate · w⌋
//! ```
//!
//! units are admitted. After a denial the next unit fits exactly when `1 / rate` has paid for it.
//!
//! The name is that of the *generic cell rate algorithm* in its form of virtual scheduling (ITU-T I.371; ATM Forum Traffic
//! Management 4.0). One number is kept: the theoretical arrival time `tat`, at which all that was admitted is paid back.
//! With `T = period / rate`, the time of a unit, a request of `c` units at `now` fits when
//!
//! ```text
//! max(tat, now) + c · T − now ≤ burst · T
//! ```
//!
//! and then `tat` becomes `max(tat, now) + c · T`. The standard writes its tolerance as `τ = (burst − 1) · T`.
//!
//! # Worst case
//!
//! The burst defaults to the limit, and then a client that was quiet gets nearly twice the limit within one window: the
//! burst at once, and what comes back in the same window. 100 a minute admit up to 199 in a minute. Set the
//! [burst](crate::Quota::burst) apart where that matters: `Quota::gcra(100, MINUTE).burst(10)` admits at most 109.
//!
//! # Two limits on one state
//!
//! Plans of a rule, and two versions of a service while one replaces the other, share the state of a client. Units that
//! were taken under one are used under the other, and whoever took last says how fast they come back. A version asks for
//! what fits into its own burst; what is used beyond that is not forgotten. So with two of them, `(B1, r1)` and
//! `(B2, r2)`, asked in any order and at the same time, every window of length `w` admits together at most
//!
//! ```text
//! max(B1, B2) + ⌊max(r1, r2) · w⌋
//! ```
//!
//! and of that the first alone at most `B1 + ⌊max(r1, r2) · w⌋`. Where one has the larger burst and the faster rate, that
//! is what it admits by itself. Where one has the larger burst and the other the faster rate, it is more than either does,
//! and it can be reached: units come back as fast as the one says, and the other takes the whole of its burst at the end.
//! With more than two it is the largest burst and the fastest rate.
//!
//! A denial takes nothing, and leaves a state to the quota that wrote it: the units come back at that one's rate until
//! some are taken under another, and `retry` says when that is enough. Only a quota with a faster rate makes the state its
//! own at once, and only what it can hold. So a faster rate is in force with the first denial, but after a change to a
//! smaller burst as well, what is used beyond the burst comes back at the old rate first: for at most
//! `(B1 − B2 + cost) / r1`. Each time that a state changes hands, less than the fraction of a microsecond is rounded
//! against the client.
//!
//! # Exactness
//!
//! `T` is a fraction of microseconds in lowest terms, and the arrival time carries the remainder. Nothing is lost at 7 a
//! second, at 999 983 a second, or at one a day. Numbers that could not be counted exactly are refused by
//! [`Quota::validate`](crate::Quota::validate).
//!
//! # State
//!
//! 16 bytes; 43 to 64 bytes a key in the memory store.
//!
//! # When to take it, and when not
//!
//! Take it unless something speaks against it: it is exact, it is smooth, it needs the least state, and clients that obey
//! `Retry-After` are spread by themselves. Not where the number in the contract is "never more than n in any minute":
//! take [`sliding_log`](crate::algorithm::sliding_log) or [`sliding_buckets`](crate::algorithm::sliding_buckets). Not for
//! a quota that people expect to start anew on the hour: take [`fixed_window`](crate::algorithm::fixed_window).
//!
//! [`token_bucket`](crate::algorithm::token_bucket) and [`leaky_bucket`](crate::algorithm::leaky_bucket) are the same
//! function, said with other words.
//!
//! # Examples
//!
//! With the burst that is the limit:
//!
//! ```
//! use tollgate_core::{
//!     Quota, SECOND,
//!     algorithm::{Algorithm, Arrival, Retry},
//! };
//!
//! let quota = Arrival::new(&Quota::gcra(7, SECOND)).expect("a valid quota");
//! let mut state = Default::default();
//! let now = 1_700_000_000_000_000;
//! quota.take(&mut state, now, 7);
//! // A seventh of a second is 142 857 and 1/7 µs.
//! assert_eq!(quota.assess(&state, now, 1).retry, Retry::after_micros(142_858));
//! ```
//!
//! Evenly spaced, with a burst of one:
//!
//! ```
//! use tollgate_core::{
//!     Quota, SECOND,
//!     algorithm::{Algorithm, Arrival},
//! };
//!
//! let quota = Arrival::new(&Quota::gcra(10, SECOND).burst(1)).expect("a valid quota");
//! let mut state = Default::default();
//! let now = 1_700_000_000_000_000;
//! quota.take(&mut state, now, 1);
//! assert!(!quota.assess(&state, now + 99_999, 1).fits);
//! assert!(quota.assess(&state, now + 100_000, 1).fits);
//! ```
