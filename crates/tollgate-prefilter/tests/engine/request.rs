//! A request, from when it begins.

use tollgate_core::{Check, Tick, store::Hold};

/// A request, from when it begins.
pub(crate) struct Request {
    pub(crate) process: usize,
    pub(crate) bound: usize,
    pub(crate) checks: Vec<Check>,
    /// In the store's time: when it came, and when the store decided the first rule.
    pub(crate) began: Tick,
    pub(crate) decided: Tick,
    pub(crate) is_of_before: bool,
    /// What the store has taken for it in an earlier step.
    pub(crate) taken_before: u64,
    /// What a ticket would be for.
    pub(crate) taken: Vec<Hold>,
    pub(crate) is_admitted: bool,
    pub(crate) is_settled: bool,
}
