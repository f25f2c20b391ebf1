//! The audit in Redis: of who changes rules there, and of processes.

use ::redis::Cmd;
use tokio::{
    sync::mpsc::{Receiver, Sender, channel},
    task::JoinHandle,
};

use crate::{
    audit::{AuditKind, AuditRecord, AuditSink, Author},
    redis::{push_error::PushError, redis_rules::RedisRules},
    term::time,
};

/// About how many records the audit keeps.
pub(crate) const AUDIT: &str = "10000";
/// The most records that wait for Redis.
const WAITING: usize = 1_000;

/// Writes the audit of a process into the stream in Redis: made by [`RedisRules::audit_sink`].
///
/// The push of a document is recorded in the stream when it is stored. This adds what each process sees itself: its denials, its own
/// overrides and switches, and documents that it rejects. While Redis is unavailable, the stream misses records; each of them is
/// still an event.
#[derive(Debug)]
pub struct RedisAudit {
    records: Sender<AuditRecord>,
    task: JoinHandle<()>,
}

impl RedisRules {
    /// A sink that writes into the stream. Give it to [`audit`](crate::LiveRulesBuilder::audit).
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn audit_sink(&self) -> RedisAudit {
        let (records, waiting) = channel(WAITING);
        let task = tokio::spawn(write(self.clone(), waiting));
        RedisAudit { records, task }
    }

    /// The latest records of the audit, the newest first.
    ///
    /// # Errors
    ///
    /// Redis is unavailable.
    pub async fn audit(&self, most: usize) -> Result<Vec<AuditRecord>, PushError> {
        let mut command = Cmd::new();
        command.arg("XREVRANGE").arg(self.name(":audit"));
        command.arg("+").arg("-").arg("COUNT").arg(most);
        let entries: Vec<(String, Vec<String>)> = self.send(&command).await?;
        let records = entries.iter().map(|(id, fields)| record(id, fields));
        Ok(records.collect())
    }

    /// Records in the audit what somebody did to a client of a rule, as "starts anew" or "is granted 100 units"; the client by its
    /// [hash](crate::operators::Explanation::key_hash).
    ///
    /// # Errors
    ///
    /// Redis is unavailable.
    pub async fn record(
        &self,
        kind: AuditKind,
        rule: &str,
        client: Option<u128>,
        what: &str,
        author: &Author,
    ) -> Result<(), PushError> {
        let client = client.map_or(String::new(), |hash| format!(" {:08x}", hash >> 96));
        let lines = vec![format!("{rule}: client{client} {what}")];
        self.add_record(&AuditRecord::new(kind, author.clone(), lines))
            .await
    }

    /// Adds a record to the audit.
    pub(crate) async fn add_record(&self, record: &AuditRecord) -> Result<(), PushError> {
        let mut command = Cmd::new();
        command.arg("XADD").arg(self.name(":audit"));
        command.arg("MAXLEN").arg("~").arg(AUDIT).arg("*");
        command.arg("what").arg(record.kind.name());
        command.arg("actor").arg(record.author.actor());
        command.arg("before").arg(record.before);
        command.arg("after").arg(record.after);
        command.arg("changes").arg(record.lines.join("\n"));
        command.arg("reason").arg(record.author.reason());
        let _: String = self.send(&command).await?;
        Ok(())
    }
}

impl AuditSink for RedisAudit {
    fn record(&self, record: &AuditRecord) {
        // Each process puts the same document in force; it is in the stream once, from its push.
        let is_pushed = record.kind == AuditKind::Accepted && record.before != record.after;
        if !is_pushed {
            // More than may wait are lost: a request does not wait for them.
            let _ = self.records.try_send(record.clone());
        }
    }
}

async fn write(rules: RedisRules, mut waiting: Receiver<AuditRecord>) {
    while let Some(record) = waiting.recv().await {
        let written: Result<(), PushError> = rules.add_record(&record).await;
        if let Err(wrong) = written {
            tracing::warn!(target: "tollgate", "a record of the audit is not written: {wrong}");
        }
    }
}

impl Drop for RedisAudit {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A record of the stream.
fn record(id: &str, fields: &[String]) -> AuditRecord {
    let field = |name: &str| {
        let pair = fields.chunks_exact(2).find(|pair| pair[0] == name);
        pair.map_or("", |pair| &*pair[1])
    };
    let ms = id.split('-').next().and_then(|ms| ms.parse::<u64>().ok());
    AuditRecord {
        at: time(ms.unwrap_or(0).saturating_mul(1_000)),
        kind: match field("what") {
            "rejected" => AuditKind::Rejected,
            "expired" => AuditKind::Expired,
            "denied" => AuditKind::Denied,
            "reset" => AuditKind::Reset,
            "credits" => AuditKind::Credits,
            _ => AuditKind::Accepted,
        },
        author: Author::new(field("actor")).because(field("reason")),
        before: field("before").parse().unwrap_or(0),
        after: field("after").parse().unwrap_or(0),
        lines: field("changes").lines().map(str::to_owned).collect(),
    }
}
