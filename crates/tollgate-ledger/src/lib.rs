#![doc = include_str!("../README.md")]
//!
//! # Accuracy
//!
//! Of a process that is killed, what it has not written is missing: that of a second, or of as long as the database does not answer.
//! Everything else is written once, whatever fails in between. See [`Ledger::backlog`] for what is not written.
//!
//! After a store has lost its states, the first request of each key in a window that began before waits for its sum, within the
//! deadline of the store. Other processes' unwritten seconds, and units that they hold on [lease](tollgate_core::Consistency::Leased),
//! may be admitted again. A reset of a counter is no adjustment: the ledger has what was used, and
//! may bring it back.
//!
//! # Memory
//!
//! A [`MemoryStore`](tollgate_core::MemoryStore) knows nothing from before its process. With a ledger attached, the first request of
//! each key and window is looked up, so [`Limiter::try_acquire`](tollgate_core::Limiter::try_acquire) may say that it would wait.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod adjustment;
mod counter;
mod database;
mod error;
pub mod guide;
mod ledger;
mod movements;
mod period;
mod reconcile;
mod report;
mod schema;
mod writer;

pub use tollgate_core::journal::{DailyUsage, Window};

pub use self::{
    adjustment::Adjustment,
    error::{LedgerError, LedgerErrorKind},
    ledger::{Backlog, Ledger, LedgerBuilder},
    period::Period,
    reconcile::{Drift, Reconciliation},
    report::{AccountUsage, Entry, ReportRow},
};
