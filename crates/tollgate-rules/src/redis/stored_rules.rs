//! The rules that are stored in Redis, for operators.

use std::time::SystemTime;

use crate::{author::Author, fleet::FleetStatus, rule_document::RuleDocument};

/// What is stored in Redis, from [`RedisRules::stored`](crate::redis::RedisRules::stored).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoredRules {
    /// The number of the latest change: a push, or one by an operator.
    pub revision: u64,
    /// The number of the latest push.
    pub pushed_revision: u64,
    /// Who pushed it, and why.
    pub pushed_by: Author,
    /// When it was pushed, by the clock of Redis.
    pub pushed_at: SystemTime,
    /// What operators had set up to this revision is lost: Redis was emptied or restored before the document was pushed, while processes
    /// had this revision in force. It is said until an operator sets or ends something. What is lost stands in the
    /// [status](crate::RulesStatus::lost) of processes.
    pub lost: Option<u64>,
    /// The rules as processes have them: with what operators set. [`entries`](RuleDocument::entries) lists that.
    pub document: RuleDocument,
    /// Which processes follow the rules, and which lag.
    pub fleet: FleetStatus,
    /// The time by the clock of Redis.
    pub now: SystemTime,
}
