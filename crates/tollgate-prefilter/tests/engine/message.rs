//! What is on its way to the store, or back.

use tollgate_core::{
    Check, Tick,
    store::{Hold, Settlement},
};
use tollgate_prefilter::{LeaseItem, Query, Reply, Reset, ReturnedLease};

/// What is on its way to the store, or back.
pub(crate) struct Message {
    pub(crate) process: usize,
    pub(crate) bound: usize,
    pub(crate) content: Content,
    /// Which process hears the reply.
    pub(crate) waits: Waits,
    pub(crate) request: Option<usize>,
    pub(crate) is_abandoned: bool,
    pub(crate) reply: Option<Reply>,
    pub(crate) is_executed: bool,
    /// What is lost if the reply is.
    pub(crate) taken: u64,
    pub(crate) granted: u64,
    pub(crate) executed: Tick,
}

pub(crate) enum Waits {
    NoProcess,
    Query(Box<Query>),
    Reset(Reset),
}

pub(crate) enum Content {
    Query {
        checks: Vec<Check>,
        reports: Vec<Check>,
        leases: Vec<LeaseItem>,
    },
    Settle(Hold, Settlement),
    /// Leases that go back, and how many unreported units the process forgets.
    Reset(Vec<ReturnedLease>, u64),
}

impl Message {
    pub(crate) fn is_query(&self) -> bool {
        matches!(self.waits, Waits::Query(_))
    }

    pub(crate) fn checks(&self, rule: u16) -> bool {
        match &self.content {
            Content::Query { checks, .. } => checks.iter().any(|check| check.rule() == rule),
            _ => false,
        }
    }
}
