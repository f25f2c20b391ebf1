//! What a rate limit is: time, key, quota, algorithms, rules, decisions, stores. No HTTP, and no I/O.
//!
//! This is the core of [tollgate](https://docs.rs/tollgate), the Tower layer for axum and tonic, which re-exports it: to limit a
//! server, begin there. Take this crate alone where there is no HTTP: in workers, consumers of queues, clients of other APIs, or to
//! write a store. [tollgate-redis](https://docs.rs/tollgate-redis) is the store that many processes share, and
//! [tollgate-client](https://docs.rs/tollgate-client) limits outgoing requests. The
//! [glossary](https://docs.rs/tollgate/latest/tollgate/guide/index.html#glossary) says what the words mean.
//!
//! A [`Limiter`] is a set of rules on a store. Two at once, then one a second:
//!
//! ```
//! use tollgate_core::{Key, Limiter, MemoryStore, Quota, Rule, SECOND};
//!
//! let limiter = Limiter::new(
//!     MemoryStore::new(),
//!     [Rule::new("mails-per-account", Quota::gcra(1, SECOND).burst(2))],
//! )?;
//! let account = Key::of("account-7");
//! assert!(limiter.try_acquire("mails-per-account", &account)?.is_allowed());
//! assert!(limiter.try_acquire("mails-per-account", &account)?.is_allowed());
//!
//! let denied = limiter.try_acquire("mails-per-account", &account)?;
//! assert!(!denied.is_allowed());
//! assert!(denied.retry_after().expect("it fits later") <= SECOND);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The parts
//!
//! | word | means |
//! | --- | --- |
//! | [`Quota`] | an algorithm with its numbers |
//! | [`Rule`], [`RuleSet`] | a named quota with its mode and its answer to a store failure; an immutable set of them |
//! | [`Key`], [`Fingerprint`](store::Fingerprint) | whom it counts; the 128 bits that stand for it in a store |
//! | [`Check`] | one rule with one key and one cost in units |
//! | acquire, peek | decide all checks and take, all or nothing; decide and take nothing |
//! | [`Decision`], [`Verdict`] | the answer to a request; the answer to one of its checks |
//! | [`Ticket`] | what an allowed request holds: to settle, to give back |
//! | [`Store`], [`RuleStore`](store::RuleStore) | where state lives; a rule set on it |
//! | [`Tick`] | a microsecond since the Unix epoch, by the store's clock |
//!
//! A *threshold* is a second limit that is read on a rule's state and never written. A *shadow* is a rule that counts and denies
//! nothing. Which algorithm to take is the subject of [`algorithm`], how memory is kept that of [`memory`].
//!
//! # What holds
//!
//! - All checks of an acquire are decided in one atomic step: if one is denied, none is debited.
//! - A denial takes nothing. A cost of 0 queries without taking.
//! - Never more than the quota, under any number of threads; each algorithm's page states its bound.
//! - [`Verdict::retry`] is exact to the microsecond for one client alone on its key.
//! - Arithmetic is exact, from one a day to a million a second, prime rates included.
//! - Time that goes back never refills, and never panics.
//! - Memory is bounded whatever keys come.
//!
//! # Waiting
//!
//! [`Limiter::acquire`] returns a [`Step`]: [`Ready`](Step::Ready) where the store answers at once, as memory does, and
//! [`Wait`](Step::Wait) after I/O. With the feature `tokio`, `Limiter::wait` waits in a queue until the units are there, and
//! `Limiter::acquire_within` does so for several checks. A thread without a runtime sleeps for the
//! [time to retry](Decision::retry_after). A rule with [`wait`](Rule::wait) has its queue in the store, which all processes share; the
//! decision then says for how long the request is [delayed](Decision::delay).
//!
//! # At most N at once
//!
//! [`Quota::concurrent`] limits how many requests run at once. The [`Ticket`] of a request holds its slots and returns them.
//!
//! How to write a store is the subject of [`store`].
//!
//! # Features
//!
//! | feature | adds |
//! | --- | --- |
//! | `tokio` | `Limiter::wait` and `Limiter::acquire_within`, which wait in a queue, and `Clock::tokio` |
//! | `uuid` | `Uuid` as a part of a [`Key`] |
//! | `http` | the types of the crate `http` as parts of a [`Key`]: `HeaderValue`, `Method` |
//! | `serde` | [`Quota`] as its text in documents: `"gcra 100/min burst 20"`; [top keys](observe::TopKey) and counts can be serialised |
//! | `metrics`, `tracing` | a [`Limiter`] reports its decisions: see [`observe`] |
//!
//! # A customised one
//!
//! Two rules decided together, costs, a bound on memory, and a clock that a test moves:
//!
//! ```
//! use tollgate_core::{Key, Limiter, MINUTE, ManualClock, MemoryStore, Quota, Retry, Rule};
//!
//! let clock = ManualClock::new(1_700_000_000_000_000);
//! let store = MemoryStore::builder().clock(&clock).bytes_per_rule(1 << 20).build();
//! let limiter = Limiter::new(
//!     store,
//!     [
//!         Rule::new("jobs", Quota::sliding_log(2, MINUTE)),
//!         Rule::new("bytes", Quota::token_bucket(1_000).refill(500, MINUTE)),
//!     ],
//! )?;
//! let tenant = Key::of(["acme", "eu"]);
//! let job = limiter.check("jobs", &tenant)?;
//! let bytes = limiter.check("bytes", &tenant)?;
//!
//! // Memory answers at once. A step of any store can be awaited as well.
//! let acquire = |bytes| limiter.acquire(&[job, bytes]).ready().expect("memory answers at once");
//! assert!(acquire(bytes.with_cost(900)).is_allowed());
//!
//! // 100 are left. All or nothing: the job is not debited either.
//! let denied = acquire(bytes.with_cost(600));
//! assert_eq!(denied.retry(), Retry::After(MINUTE));
//! clock.advance(MINUTE);
//! assert!(acquire(bytes.with_cost(600)).is_allowed());
//!
//! // What can never fit says so.
//! assert_eq!(acquire(bytes.with_cost(1_001)).retry(), Retry::Never);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(feature = "tokio"), allow(dead_code, reason = "tasks alone wait"))]

pub mod algorithm;
mod algorithm_kind;
#[cfg(feature = "tokio")]
mod attempt;
mod block;
mod blocked;
#[cfg(feature = "calendar")]
pub mod calendar;
mod check;
mod check_policy;
mod consistency;
mod coordinator;
mod credits;
mod decision;
mod error;
mod held_slots;
mod hold;
mod idempotency;
// For tollgate-ledger. Hidden, so that it can change in any release.
#[doc(hidden)]
pub mod journal;
mod journal_cells;
mod key;
mod key_part;
mod limiter;
mod live_limiter;
mod macros;
pub mod memory;
mod network;
pub mod observe;
mod quota;
mod quota_conflict;
mod quota_text;
mod redeem;
mod remote;
mod reservation;
mod rule;
mod rule_set;
mod rule_validation;
mod slot_waiters;
mod step;
pub mod store;
// For tollgate and tollgate-redis, which keep values per stripe as well. Hidden, so that it can change in any release.
#[doc(hidden)]
pub mod striped;
// For the other crates of tollgate, whose locks the same scheduler sees. Hidden, so that it can change in any release.
#[doc(hidden)]
pub mod sync;
mod ticket;
mod time;
mod variable_quota;
mod wait_queue;

#[doc(hidden)]
pub use self::macros::{FNV, fnv, grpc_timeout};
pub use self::{
    algorithm::assessment::Retry,
    algorithm_kind::AlgorithmKind,
    block::Block,
    check::Check,
    check_policy::OnStoreError,
    consistency::{Consistency, LeaseShare},
    decision::{Decision, Outcome, Reason, Verdict},
    error::{RuleError, RuleErrorKind, StoreError, StoreErrorKind},
    hold::Source,
    key::{Key, KeyBuf, PartKind},
    key_part::KeyPart,
    limiter::Limiter,
    live_limiter::LiveLimiter,
    memory::store::MemoryStore,
    network::Network,
    quota::{MAX_PERIOD, MAX_UNITS, Quota, refill_time},
    rule::{Mode, Rule},
    rule_set::RuleSet,
    step::{Pending, Step},
    store::rule_store::Store,
    ticket::Ticket,
    time::{Clock, DAY, HOUR, MINUTE, ManualClock, SECOND, Tick, micros, wall_clock},
};

pub mod layer {
    //! For authors of layers, which report, wait and replace rules by themselves. A service has no use for it: take a
    //! [`Limiter`](crate::Limiter).
    //!
    //! ```
    //! use tollgate_core::{Key, Limiter, MINUTE, MemoryStore, Quota, Rule, observe::Timer};
    //!
    //! let limiter = Limiter::new(MemoryStore::new(), [Rule::new("api", Quota::gcra(60, MINUTE))])?;
    //! let timer = Timer::start();
    //! let checks = [limiter.check("api", &Key::shared())?];
    //! let decision = limiter.attempt(&checks).decide().ready().expect("memory answers at once");
    //! // With what the layer knows of the request.
    //! limiter.report(&checks, &decision, timer, "/users/{id}");
    //! # Ok::<(), Box<dyn std::error::Error>>(())
    //! ```

    #[cfg(feature = "tokio")]
    pub use crate::attempt::{Attempt, Waiting};
    pub use crate::live_limiter::Replacement;
}

pub mod types {
    //! What calls give back, errors are and checks may carry, which a program seldom has to name.

    pub use crate::{
        block::ActiveBlock,
        check_policy::CheckPolicy,
        credits::Balance,
        key::KeyPrefix,
        limiter::Grant,
        quota::{LeakyBucketOf, TokenBucketOf},
        quota_text::ParseQuotaError,
        redeem::ReservationTicket,
        reservation::Reservation,
        rule_set::RuleChange,
        variable_quota::CheckQuota,
        wait_queue::{WaitError, WaitErrorKind},
    };
}

/// Runs the program in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
