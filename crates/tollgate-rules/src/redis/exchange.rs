//! What a process tells Redis, and hears from it.

use std::time::{Duration, SystemTime};

use tollgate_core::Tick;

use crate::{
    audit::Author,
    redis::{push_error::PushError, redis_rules::RedisRules},
    rule_document::RuleDocument,
    rules_status::{FleetStatus, LaggingProcess},
    signing_key::StoredDocument,
};

const REPORT: &str = include_str!("../../lua/report.lua");

/// A process without a heartbeat for this time is gone: three heartbeats.
const GONE_AFTER: Duration = Duration::from_secs(15);
/// How many lagging processes are named.
const NAMED: usize = 20;
/// What a process says of itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) process: String,
    pub(crate) revision: u64,
    pub(crate) hash: String,
    pub(crate) says: String,
    /// The number of the document that it has seen last.
    pub(crate) signature: String,
}

/// What Redis says then.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) revision: u64,
    /// If it is another document than the one that was seen.
    pub(crate) document: Option<StoredDocument>,
    pub(crate) fleet: FleetStatus,
    /// Documents that are in force somewhere.
    pub(crate) in_force: Vec<String>,
    /// The time by the server's clock.
    pub(crate) now: Tick,
    /// When the latest change was made, by that clock.
    pub(crate) at: Tick,
}

impl RedisRules {
    /// Which processes follow the rules, and which lag.
    ///
    /// # Errors
    ///
    /// Redis is unavailable.
    pub async fn fleet(&self) -> Result<FleetStatus, PushError> {
        Ok(self.exchange(&Report::default()).await?.fleet)
    }

    /// Tells what a process has in force, and asks what is stored.
    pub(crate) async fn exchange(&self, report: &Report) -> Result<Stored, PushError> {
        let parts = [
            "",
            ":pushed",
            ":in_force",
            ":said",
            ":last_seen",
            ":documents",
        ];
        let mut call = self.script(REPORT, &parts);
        call.arg(&report.process).arg(report.revision);
        call.arg(&report.hash).arg(&report.says);
        call.arg(GONE_AFTER.as_millis() as u64);
        call.arg(&report.signature).arg(NAMED);
        let reply: Reply = self.send(&call).await?;
        let (now, revision, at, fields, in_force, processes, lagging, ahead, named) = reply;
        let named = named.chunks_exact(4).map(|of_one| {
            let since = of_one[2].parse().unwrap_or(now);
            let rejection = Some(of_one[3].clone()).filter(|says| !says.is_empty());
            LaggingProcess {
                name: of_one[0].clone(),
                revision: of_one[1].parse().unwrap_or(0),
                lagging_for: Duration::from_millis(now.saturating_sub(since)),
                rejection,
            }
        });
        let text = |index: usize| fields.get(index).cloned().flatten().unwrap_or_default();
        let document = (!fields.is_empty()).then(|| StoredDocument {
            text: text(0),
            signature: text(1),
            author: Author::new(text(2)).because(text(3)),
            beside: text(4),
        });
        Ok(Stored {
            revision,
            document,
            fleet: FleetStatus {
                revision,
                processes,
                lagging,
                ahead,
                lagging_processes: named.collect(),
                documents: in_force.len(),
            },
            in_force,
            now: now.saturating_mul(1_000),
            at: at.saturating_mul(1_000),
        })
    }
}

/// See `report.lua`.
type Reply = (
    u64,
    u64,
    u64,
    Vec<Option<String>>,
    Vec<String>,
    u64,
    u64,
    u64,
    Vec<String>,
);

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
