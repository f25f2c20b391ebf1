//! What a store is, and how to write one.
//!
//! A [`Store`] binds a rule set to its state and returns a [`RuleStore`]. These promises are a store's to keep:
//!
//! - **State is found by the rule's name.** What was used under a name stays used when the quota changes.
//! - **One name has one quota at a time.** A store keeps one [`RuleRegistry`] for itself and its clones; [`Limiter`] refuses
//!   a second quota under a name that is in use.
//! - **`acquire` is one atomic step.** Checks on the same state (rule and fingerprint) are folded first, their costs summed.
//!   Only enforced rules decide ([`RuleSet::enforces`]); if one denies, no enforced rule is debited. A shadow is counted as
//!   if it were alone. A threshold is read and never written.
//! - **Verdicts come in the order of the checks**, one for each. [`Decision::new`] draws the conclusion.
//! - **A store never fails a call, it fails checks.** A check that could not be decided is
//!   [`Verdict::unanswered`] with [`Outcome::Failed`]; the limiter then applies the rule's
//!   [`on_store_error`](crate::Rule::on_store_error). A lost call is never repeated: it may have been counted.
//! - **`instances` is what the store last knew**, also while it cannot be reached: local shares are computed from it.
//! - **`settle` does not block**, because it is called from `Drop`. It gives back at most what the [`Hold`] took, to the
//!   state as it is: where another quota has converted that, the units are
//!   [converted](crate::algorithm::Algorithm::refund_converted) too, and never dropped.
//! - **`retire` hands back what is held in advance.** It is called when the last limiter is gone or has been replaced; a store
//!   that holds nothing can ignore it.
//! - **Futures borrow nothing.** Copy the [checks](Checks) into the future. Dropping it gives back slots; other units that
//!   were taken stay taken.
//! - **The algorithms are given.** [`Algorithm`] is the state machine: `assess`, then `take` or `repair`. A store
//!   that cannot call Rust has to give the same answers.
//!
//! [`Store`]: crate::Store
//! [`Limiter`]: crate::Limiter
//! [`RuleSet::enforces`]: crate::RuleSet::enforces
//! [`Decision::new`]: crate::Decision::new
//! [`Verdict::unanswered`]: crate::Verdict::unanswered
//! [`Outcome::Failed`]: crate::Outcome::Failed
//! [`Algorithm`]: crate::algorithm::Algorithm
//!
//! A store that answers from another one, and counts how often it was asked:
//!
//! ```
//! use std::sync::{Arc, atomic::{AtomicU64, Ordering::Relaxed}};
//! use tollgate_core::{
//!     Check, Decision, Key, KeyBuf, Limiter, MemoryStore, MINUTE, Quota, Rule, RuleError, RuleSet, Step, Store,
//!     StoreError, store::{Fingerprint, Hold, RuleRegistry, RuleStore, Settlement},
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
//!     fn settle(&self, holds: &[Hold], how: Settlement) {
//!         self.inner.settle(holds, how);
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
//! The folder `tests/conformance` of the repository is a package to copy: the suite that every store has to pass, one test for each
//! sentence, and a delayed, failing store to try callers on. In the tests of a store:
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

pub(crate) mod instance_count;
pub(crate) mod registry;
pub(crate) mod rule_store;
pub(crate) mod seq_cells;

pub use self::{
    instance_count::InstanceCount,
    registry::RuleRegistry,
    rule_store::{ChargeFallback, PaidHook, ReservationStore, RuleStore, Usage},
    seq_cells::{SeqCells, SeqLine},
};
pub use crate::{
    check::Checks,
    credits::{CreditChange, CreditRefusal, CreditState, MOST_GRANTS, grant_hash},
    error::did_you_mean,
    held_slots::HeldSlots,
    hold::{Hold, Holds, Settlement},
    key::Fingerprint,
    reservation::{Reserved, foreign, gone},
    slot_waiters::wake,
    step::Stepping,
};
