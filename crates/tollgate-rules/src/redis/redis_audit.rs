//! The audit of a process, in Redis.

use tokio::{
    sync::mpsc::{Receiver, Sender, channel},
    task::JoinHandle,
};

use crate::{
    audit::{AuditKind, AuditRecord, AuditSink},
    redis::{push_error::PushError, redis_rules::RedisRules},
};

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
