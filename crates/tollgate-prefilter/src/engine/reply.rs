//! What a store replies to a query.

use smallvec::SmallVec;
use tollgate_core::{Decision, Tick};

use crate::lease::grant::Grant;

/// The store's reply to a [`Query`](crate::Query).
#[derive(Debug)]
pub struct Reply {
    /// The time of the reply by the store's clock.
    pub at: Tick,
    /// The decision about [`Query::checks`](crate::Query::checks).
    pub decision: Decision,
    /// The checks whose state belongs to other clients as well. Their denials are not cached.
    pub shared: IndexSet,
    /// The replies to the reports: one each, in the order of [`Query::reports`](crate::Query::reports).
    pub reports: SmallVec<[ReportReply; 1]>,
    /// How many denials count towards the next [block](tollgate_core::Rule::block), by the index of the check.
    pub counted: SmallVec<[u32; 4]>,
    /// The replies about the leases: one each, in the order of [`Query::leases`](crate::Query::leases).
    pub leases: SmallVec<[LeaseReply; 1]>,
}

impl Reply {
    /// A reply to a query without reports and leases, and whose states belong to no other clients.
    pub fn new(at: Tick, decision: Decision) -> Self {
        Self {
            at,
            decision,
            shared: IndexSet::default(),
            reports: SmallVec::new(),
            counted: SmallVec::new(),
            leases: SmallVec::new(),
        }
    }
}

/// The store's reply to a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportReply {
    /// The units were counted.
    Counted {
        /// How many are left.
        left: u64,
        /// In how many µs nothing is used any more.
        reset_after: Tick,
    },
    /// Certainly nothing was counted.
    Refused,
    /// It is unknown whether they were counted.
    Unknown,
}

/// The store's reply about the lease of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseReply {
    /// Whether the store certainly did not take back the lease that was returned.
    pub is_refused: bool,
    /// What it granted.
    pub grant: GrantReply,
}

/// Whether a lease was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantReply {
    /// None was wanted, or none was granted.
    None,
    /// This one.
    Granted(Grant),
    /// It is unknown.
    Lost,
}

/// Why there is no reply to a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoReply {
    /// The query certainly was not carried out.
    NotRun,
    /// No check of the query has a limit, so it was not sent.
    NothingToSend,
    /// It is unknown whether it was carried out. It must not be sent again.
    Unknown,
}

/// Some of the checks of a request, by index. Those after the first 64 always count as being in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexSet(u64);

impl IndexSet {
    /// Puts an index in.
    pub fn insert(&mut self, index: usize) {
        if index < 64 {
            self.0 |= 1 << index;
        }
    }

    /// Whether an index is in it.
    pub fn contains(self, index: usize) -> bool {
        index >= 64 || self.0 >> index & 1 > 0
    }
}
