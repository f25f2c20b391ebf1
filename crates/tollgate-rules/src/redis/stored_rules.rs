//! The rules that are stored in Redis, for operators.

use std::time::SystemTime;

use tollgate_core::Tick;

use crate::{
    author::Author, entry_status::time, fleet::FleetStatus, operator_entries::Pushed,
    rule_document::RuleDocument,
};

/// What is stored in Redis, from [`RedisRules::stored`](crate::redis::RedisRules::stored).
#[derive(Clone, Debug)]
pub struct StoredRules {
    pub(crate) revision: u64,
    pub(crate) pushed: Pushed,
    pub(crate) document: RuleDocument,
    pub(crate) fleet: FleetStatus,
    pub(crate) now: Tick,
}

impl StoredRules {
    /// The number of the latest change: a push, or one by an operator.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The number of the latest push.
    #[must_use]
    pub fn pushed_revision(&self) -> u64 {
        self.pushed.revision
    }

    /// Who pushed it, and why.
    pub fn pushed_by(&self) -> &Author {
        &self.pushed.by
    }

    /// When it was pushed, by the clock of Redis.
    #[must_use]
    pub fn pushed_at(&self) -> SystemTime {
        time(self.pushed.at)
    }

    /// The rules as processes have them: with what operators set. [`entries`](RuleDocument::entries) lists that.
    #[must_use]
    pub fn document(&self) -> &RuleDocument {
        &self.document
    }

    /// Which processes follow the rules, and which lag.
    #[must_use]
    pub fn fleet(&self) -> &FleetStatus {
        &self.fleet
    }

    /// The time by the clock of Redis.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        time(self.now)
    }
}
