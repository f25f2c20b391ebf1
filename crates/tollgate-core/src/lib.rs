//! What a rate limit is: time, key, quota, algorithms, rules, decisions, stores. No HTTP, and no I/O.
//!
//! This is the core of `tollgate`, the Tower middleware, which re-exports all of it. Take this crate alone where there is no
//! HTTP: in workers, consumers of queues, clients of somebody else's API, or to write a store.
//!
//! # Example
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
//! let ask = |bytes| limiter.acquire(&[job, bytes]).ready().expect("memory answers at once");
//! assert!(ask(bytes.with_cost(900)).is_allowed());
//!
//! // 100 are left. All or nothing: the job is not debited either.
//! let denied = ask(bytes.with_cost(600));
//! assert_eq!(denied.retry(), Retry::After(MINUTE));
//! clock.advance(MINUTE);
//! assert!(ask(bytes.with_cost(600)).is_allowed());
//!
//! // What can never fit says so.
//! assert_eq!(ask(bytes.with_cost(1_001)).retry(), Retry::Never);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Words
//!
//! | word | means |
//! | --- | --- |
//! | [`Quota`] | an algorithm with its numbers |
//! | [`Rule`], [`RuleSet`] | a named quota with its mode and its answer to a store failure; an immutable set of them |
//! | [`Key`], [`Fingerprint`] | whom it counts; the 128 bits that stand for it in a store |
//! | [`Check`] | one rule with one key and one cost in units |
//! | acquire, peek | decide all checks and take, all or nothing; decide and take nothing |
//! | [`Decision`], [`Verdict`] | the answer to a request; the answer to one of its checks |
//! | [`Ticket`] | what an allowed request holds: to settle, to give back |
//! | [`Store`], [`RuleStore`] | where state lives; a rule set tied to it |
//! | [`Tick`] | a microsecond since the Unix epoch, by the store's clock |
//!
//! A *threshold* is a second limit that is read on a rule's state and never written. A *shadow* is a rule that counts and denies
//! nothing. Which algorithm to take is the subject of [`algorithm`], how memory is kept that of [`memory`].
//!
//! # What holds
//!
//! - All checks of an acquire are decided in one atomic step: if one is denied, none is debited.
//! - A denial takes nothing. A cost of 0 asks without taking.
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
//! `Limiter::acquire_within` does so for several checks. A thread waits with [`Limiter::wait_blocking`].
//!
//! # Writing a store
//!
//! A [`Store`] ties a rule set to state and gives a [`RuleStore`]. What it has to keep:
//!
//! - **State is found by the rule's name.** What was used under a name stays used when the quota changes.
//! - **One name has one quota at a time.** A store keeps one [`RuleRegistry`] for itself and its clones; [`Limiter`] refuses
//!   a second quota under a name that is in use.
//! - **`acquire` is one atomic step.** Checks on the same state (rule and fingerprint) are folded first, their costs summed.
//!   Only enforced rules decide ([`RuleSet::enforces`]); if one denies, no enforced rule is debited. A shadow is counted as
//!   if it were alone. A threshold is read and never written.
//! - **Verdicts come in the order of the checks**, one for each. [`Decision::new`] draws the conclusion.
//! - **A store never fails a call, it fails checks.** A check that could not be decided is
//!   [`Verdict::unanswered`] with [`Outcome::Failed`]; the limiter then asks the rule's
//!   [`on_store_error`](Rule::on_store_error). An answer that did not come is never asked for again: it may have been
//!   counted.
//! - **`instances` says what it last knew**, also while the store cannot be reached: local shares are cut by it.
//! - **`settle` does not block**, because it is called from `Drop`. It gives back at most what the [`Receipt`] took, to the
//!   state as it is: where another quota has converted that, the units are
//!   [converted](algorithm::Algorithm::refund_converted) too, and never dropped.
//! - **`retire` hands back what is held in advance.** It is called when the last limiter is gone or has been replaced; a store
//!   that holds nothing need not know.
//! - **Futures borrow nothing.** Copy the checks into the future. Dropping it undoes nothing.
//! - **The algorithms are given.** [`algorithm::Algorithm`] is the state machine: `assess`, then `take` or `repair`. A store
//!   that cannot call Rust has to give the same answers.
//!
//! A store that answers from another one, and counts how often it was asked:
//!
//! ```
//! use std::sync::{Arc, atomic::{AtomicU64, Ordering::Relaxed}};
//! use tollgate_core::{
//!     RuleStore, Check, Decision, Fingerprint, Receipt, Key, KeyBuf, Limiter, MemoryStore, MINUTE,
//!     Quota, Rule, RuleError, RuleRegistry, RuleSet, Settlement, Step, Store, StoreError,
//! };
//!
//! #[derive(Clone, Debug, Default)]
//! struct Counted {
//!     inner: MemoryStore,
//!     asked: Arc<AtomicU64>,
//! }
//!
//! #[derive(Debug)]
//! struct Bound {
//!     inner: Arc<dyn RuleStore>,
//!     asked: Arc<AtomicU64>,
//! }
//!
//! impl Store for Counted {
//!     fn bind(&self, rules: Arc<RuleSet>) -> Result<Arc<dyn RuleStore>, RuleError> {
//!         Ok(Arc::new(Bound { inner: self.inner.bind(rules)?, asked: Arc::clone(&self.asked) }))
//!     }
//!     fn registry(&self) -> &RuleRegistry {
//!         self.inner.registry()
//!     }
//! }
//!
//! impl RuleStore for Bound {
//!     fn rules(&self) -> &Arc<RuleSet> {
//!         self.inner.rules()
//!     }
//!     fn can_fail(&self) -> bool {
//!         self.inner.can_fail()
//!     }
//!     fn fingerprint(&self, rule: u16, key: &KeyBuf) -> Fingerprint {
//!         self.inner.fingerprint(rule, key)
//!     }
//!     fn acquire(&self, checks: &[Check]) -> Step<Decision> {
//!         self.asked.fetch_add(1, Relaxed);
//!         self.inner.acquire(checks)
//!     }
//!     fn peek(&self, checks: &[Check]) -> Step<Decision> {
//!         self.inner.peek(checks)
//!     }
//!     fn settle(&self, receipts: &[Receipt], how: Settlement) {
//!         self.inner.settle(receipts, how);
//!     }
//!     fn reset(&self, checks: &[Check]) -> Step<Result<bool, StoreError>> {
//!         self.inner.reset(checks)
//!     }
//! }
//!
//! let store = Counted::default();
//! let limiter = Limiter::new(store.clone(), [Rule::new("api", Quota::gcra(60, MINUTE))])?;
//! assert!(limiter.try_acquire("api", &Key::shared())?.is_allowed());
//! assert_eq!(store.asked.load(Relaxed), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate `tollgate-conformance` has the suite that every store has to pass, one test for each sentence, and a delayed,
//! failing store to try callers on. In the tests of a store:
//!
//! ```
//! use tollgate_conformance::conformance_suite;
//! use tollgate_core::{Clock, MemoryStore};
//!
//! async fn store(clock: Clock) -> MemoryStore {
//!     MemoryStore::builder().clock(clock).build()
//! }
//!
//! conformance_suite!(store);
//! ```
//!
//! # Features
//!
//! | feature | adds |
//! | --- | --- |
//! | `tokio` | `Limiter::wait` and `Limiter::acquire_within`, which wait in a queue, and `Clock::tokio` |
//! | `uuid` | `Uuid` as a part of a [`Key`] |
//! | `http` | the types of the crate `http` as parts of a [`Key`]: `HeaderValue`, `Method` |

pub mod algorithm;
mod blocking;
mod consistency;
mod decision;
mod error;
mod fallback;
mod instances;
mod key;
mod key_part;
mod last_seen;
mod limiter;
mod lines;
pub mod memory;
mod network;
mod on_store_error;
#[cfg(feature = "tokio")]
mod queue;
mod quota;
mod registry;
mod rule;
mod rule_set;
mod seq_cells;
mod store;
mod sync;
mod ticket;
mod time;

pub use self::{
    algorithm::Retry,
    consistency::{Consistency, LeaseShare},
    decision::{Decision, Outcome, Reason, Source, Verdict},
    error::{RuleError, RuleErrorKind, StoreError, StoreErrorKind, TryAcquireError, UnknownName},
    key::{Fingerprint, Key, KeyBuf, PartKind},
    key_part::KeyPart,
    limiter::{Grant, Limiter},
    lines::{WaitError, WaitErrorKind},
    memory::{MemoryStore, MemoryStoreBuilder},
    network::Network,
    on_store_error::OnStoreError,
    quota::{
        AlgorithmKind, LeakyBucketOf, MAX_PERIOD, MAX_UNITS, Quota, QuotaError, TokenBucketOf,
    },
    registry::RuleRegistry,
    rule::{Mode, Rule},
    rule_set::RuleSet,
    seq_cells::SeqCells,
    store::{Check, Checks, Pending, Receipt, RuleStore, Settlement, Step, Stepping, Store, Usage},
    ticket::Ticket,
    time::{Clock, DAY, HOUR, MINUTE, ManualClock, SECOND, Tick},
};

/// Runs the program in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
