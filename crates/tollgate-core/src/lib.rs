//! tollgate-core (docs later)

pub mod algorithm;
#[cfg(feature = "conformance")]
pub mod conformance;
mod decision;
mod error;
mod key;
mod limiter;
pub mod memory;
#[cfg(feature = "tokio")]
mod queue;
mod quota;
mod rule;
mod store;
mod sync;
mod ticket;
mod time;

#[cfg(feature = "tokio")]
pub use self::queue::{WaitError, WaitErrorKind};
pub use self::{
    algorithm::Retry,
    decision::{Decision, Outcome, Reason, Source, Verdict},
    error::{RuleError, RuleErrorKind, StoreError, StoreErrorKind, UnknownName},
    key::{Fingerprint, Key, KeyBuf, PartKind},
    limiter::{Grant, Limiter},
    memory::{MemoryStore, MemoryStoreBuilder},
    quota::{
        AlgorithmKind, LeakyBucketOf, MAX_PERIOD, MAX_UNITS, Quota, QuotaError, TokenBucketOf,
    },
    rule::{Consistency, Mode, OnStoreError, Rule, RuleSet},
    store::{
        BoundStore, Check, Checks, Holding, Pending, Settlement, Step, Stepping, Store, Usage,
    },
    ticket::Ticket,
    time::{Clock, DAY, HOUR, MINUTE, ManualClock, SECOND, Tick},
};
