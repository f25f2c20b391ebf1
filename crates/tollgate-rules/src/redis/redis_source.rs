//! Following the rules in Redis: what a process tells, and hears.

use std::time::{Duration, SystemTime};

use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tollgate_core::Tick;

use crate::{
    audit::Author,
    document_error::DocumentError,
    redis::{link::Subscription, push_error::PushError, redis_rules::RedisRules},
    rule_document::RuleDocument,
    rule_text::RuleText,
    rules_status::{FleetStatus, LaggingProcess, RulesStatus},
    signing_key::StoredDocument,
    source::{Source, SourceError},
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
    /// Why it has rejected a newer one, or nothing.
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
    /// The highest number that is stored or in force somewhere: if Redis has lost the document, processes still have it, and the next
    /// change gets a number above theirs.
    pub(crate) highest: u64,
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

    /// Tells which stored revision a process had in force last, and asks what is stored.
    pub(crate) async fn exchange(&self, report: &Report) -> Result<Stored, PushError> {
        let parts = ["", ":pushed", ":in_force", ":said", ":last_seen"];
        let mut call = self.script(REPORT, &parts);
        call.arg(&report.process).arg(report.revision);
        call.arg(&report.says).arg(GONE_AFTER.as_millis() as u64);
        call.arg(&report.signature).arg(NAMED);
        let reply: Reply = self.send(&call).await?;
        let (now, revision, at, fields, in_force, processes, lagging, ahead, named) = reply;
        let named = named
            .into_iter()
            .map(|(name, revision, since, says)| LaggingProcess {
                name,
                revision,
                lagging_for: Duration::from_millis(now.saturating_sub(since)),
                rejection: Some(says).filter(|says| !says.is_empty()),
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
            },
            highest: in_force.max(revision),
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
    u64,
    u64,
    u64,
    u64,
    Vec<(String, u64, u64, String)>,
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

/// How often a process looks, and tells what it has in force.
const INTERVAL: Duration = Duration::from_secs(5);
/// How much that differs, so that processes do not look all at once.
const SPREAD: u64 = 1_000;
/// How long a broken subscription is left alone.
const PAUSE: Duration = Duration::from_millis(500);

/// The rules in Redis as a [`Source`]: made by [`RedisRules::source`].
#[must_use]
pub struct RedisSource {
    rules: RedisRules,
    process: String,
    /// Without the process until something is in force.
    report: Report,
    subscription: Option<Subscription>,
    /// Look now, and do not wait for a publication.
    is_due: bool,
    fleet: watch::Sender<FleetStatus>,
}

impl RedisRules {
    /// The source that a process follows: give it to [`LiveRules::follow`](crate::LiveRules::follow).
    pub fn source(&self) -> RedisSource {
        RedisSource {
            rules: self.clone(),
            process: format!("{}-{:016x}", std::process::id(), unique()),
            report: Report::default(),
            subscription: None,
            is_due: true,
            fleet: watch::Sender::default(),
        }
    }
}

impl RedisSource {
    /// The name under which other processes see this one in their [status](crate::FleetStatus): of a host or a pod. Names differ;
    /// the process's number is added. Default: only that.
    pub fn named(mut self, process: &str) -> Self {
        self.process = format!("{process}-{}", self.process);
        self
    }

    /// Until there may be another document.
    async fn wait(&mut self) {
        if self.is_due {
            return self.subscribe().await;
        }
        let interval = INTERVAL - Duration::from_millis(unique() % SPREAD);
        let Some(subscription) = &mut self.subscription else {
            // That trying takes its time as well is no reason to look later.
            let rest = sleep(interval);
            self.subscribe().await;
            if self.subscription.is_none() {
                rest.await;
            }
            return;
        };
        if let Ok(None) = timeout(interval, subscription.next()).await {
            self.subscription = None;
            sleep(PAUSE).await;
            // Listen before looking, so that nothing is missed in between.
            self.subscribe().await;
        }
    }

    async fn subscribe(&mut self) {
        if self.subscription.is_none() {
            let channel = self.rules.name("");
            self.subscription = Subscription::new(&self.rules.shared.servers, &channel).await;
        }
    }

    /// Looks once. `None`: the document is the one that was seen last.
    async fn look(&mut self) -> Result<Option<RuleText>, SourceError> {
        let stored = self.rules.exchange(&self.report).await?;
        self.fleet.send_replace(stored.fleet);
        if stored.revision == 0 {
            let namespace = &self.rules.shared.namespace;
            let message = format!(
                "there are no rules in Redis, namespace {namespace}; push them, and then set again what operators had set"
            );
            return Err(message.into());
        }
        let Some(document) = stored.document else {
            return Ok(None);
        };
        self.report.signature.clone_from(&document.signature);
        self.rules.verify(stored.revision, &document)?;
        let text = self.rules.rule_text(&document)?;
        Ok(Some(text.with_revision(stored.revision)))
    }
}

impl Source for RedisSource {
    async fn next(&mut self) -> Result<RuleText, SourceError> {
        loop {
            let is_report = self.is_due;
            self.wait().await;
            if !self.report.says.is_empty() && !is_report {
                // The document that was seen last is rejected, and what was in the way may be gone: another limiter had one of its names, say.
                self.report.signature.clear();
            }
            match self.look().await {
                Ok(Some(text)) => {
                    // What is in force then is told at once.
                    self.is_due = true;
                    return Ok(text);
                }
                // Here and not before: a call that is dropped has not looked.
                Ok(None) => self.is_due = false,
                Err(wrong) => {
                    // A document that is wrong was seen; that Redis failed is no reason to wait.
                    self.is_due = !wrong.is::<DocumentError>();
                    if self.is_due {
                        self.subscription = None;
                        // The document is read again, also if it is the same: that ends the error in the status.
                        self.report.signature.clear();
                    }
                    return Err(wrong);
                }
            }
        }
    }

    fn on_status(&mut self, status: &RulesStatus) {
        self.report.process.clone_from(&self.process);
        // Not one that this process counts: the next change in Redis gets a number above all that are told.
        self.report.revision = status.of_source.unwrap_or(0);
        let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
        let says = status.last_rejection.as_deref().map(first);
        self.report.says = says.unwrap_or_default();
    }

    fn fleet(&self) -> Option<watch::Receiver<FleetStatus>> {
        Some(self.fleet.subscribe())
    }
}

/// Another number each time and in each process.
fn unique() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(())
}

tollgate_core::debug_fields!(RedisSource, it => rules: it.rules, process: it.process);

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tollgate_redis::Secret;

    use super::*;

    #[tokio::test]
    async fn a_look_that_was_dropped_is_still_due() {
        // It answers nothing.
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let secret = Secret::from_bytes([7; 32]).expect("32 bytes");
        let rules = RedisRules::new(format!("redis://{address}").as_str(), "shop", &secret);
        let mut source = rules.expect("an address").source();
        let first = timeout(Duration::ZERO, source.next()).await;
        assert!(first.is_err(), "there is no answer");
        assert!(source.is_due);
    }
}
