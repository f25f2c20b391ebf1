//! Who changed what: records, and where they go.

use std::{
    fmt,
    io::{Write as _, stderr},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::SystemTime,
};

use serde::{Deserialize, Serialize};
use tollgate_core::wall_clock;

use crate::term::time;

/// Who changes rules, and why: for the audit. The caller says it, and it is not checked.
///
/// ```
/// use tollgate_rules::Author;
///
/// let author = Author::new("alice").because("ticket 4711");
/// assert_eq!(author.to_string(), "alice, because: ticket 4711");
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Author {
    actor: String,
    reason: String,
}

impl Author {
    /// A person, a program, or a file.
    pub fn new(actor: impl Into<String>) -> Self {
        Self {
            actor: actor.into(),
            reason: String::new(),
        }
    }

    /// The reason of the change.
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    /// Who it is.
    #[must_use]
    pub fn actor(&self) -> &str {
        &self.actor
    }

    /// Why; empty if the author gave no reason.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for Author {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.actor)?;
        if !self.reason.is_empty() {
            write!(f, ", because: {}", self.reason)?;
        }
        Ok(())
    }
}

/// A change of rules. Displayed in one line. No key of a client is part of it, unless somebody wrote it into a reason. A rejected file is
/// shown with the lines that are wrong: without those that have the key of an override, and with all that others have.
///
/// Every record is an event at target `tollgate::audit`, and goes to each [`AuditSink`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditRecord {
    /// When, by the clock of this process.
    pub at: SystemTime,
    /// What it is about.
    pub kind: AuditKind,
    /// Who did it, as the caller said, and why.
    pub author: Author,
    /// The revision before.
    pub before: u64,
    /// The revision after. It is the same where nothing is in force that was not before.
    pub after: u64,
    /// The change in words, a line for each rule, override and switch; what is wrong with a rejected document.
    pub lines: Vec<String>,
    /// What was refused is no document, but what an operator set: who is told at once.
    pub(crate) is_slip: bool,
}

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AuditKind {
    /// Rules, overrides or switches are in force from now on.
    Accepted,
    /// A document was refused, or what an operator set; the rules stay as they were.
    Rejected,
    /// Overrides or switches have ended by themselves.
    Expired,
    /// An operator let a client start anew.
    Reset,
    /// An operator granted credits to a client, or took them back.
    Credits,
}

impl AuditKind {
    /// In one word: `accepted`, `rejected`, `expired`, `reset`, `credits`.
    #[must_use]
    pub fn name(self) -> &'static str {
        ["accepted", "rejected", "expired", "reset", "credits"][self as usize]
    }
}

impl AuditRecord {
    /// Of now, and of no revision.
    pub(crate) fn new(kind: AuditKind, author: Author, lines: Vec<String>) -> Self {
        Self {
            at: time(wall_clock()),
            kind,
            author,
            before: 0,
            after: 0,
            lines,
            is_slip: false,
        }
    }
}

impl fmt::Display for AuditRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, revision {}", self.kind.name(), self.before)?;
        if self.kind == AuditKind::Accepted {
            write!(f, " → {}", self.after)?;
        }
        write!(f, ", by {}: {}", self.author, self.lines.join("; "))
    }
}

/// Where the audit goes, in addition to the events: a file, a queue, a table.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use tollgate_rules::{AuditRecord, AuditSink, Author, Bindings, Format, LiveRules};
///
/// #[derive(Clone, Default)]
/// struct Kept(Arc<Mutex<Vec<String>>>);
///
/// impl AuditSink for Kept {
///     fn record(&self, record: &AuditRecord) {
///         self.0.lock().unwrap().push(record.to_string());
///     }
/// }
///
/// let kept = Kept::default();
/// let limits = "version = 1\n[[rules]]\nname = 'api'\nlimit = '60/min'\nby = 'client_ip'\n";
/// let rules = LiveRules::builder(Bindings::new())
///     .audit(kept.clone())
///     .from_text(limits, Format::Toml)?;
/// let alice = rules.handle(Author::new("alice").because("ticket 4711"));
/// alice.replace(limits.replace("60", "90"), Format::Toml)?;
/// assert_eq!(
///     kept.0.lock().unwrap().last().unwrap(),
///     "accepted, revision 1 → 2, by alice, because: ticket 4711: api: gcra 60/min → gcra 90/min, used units are kept"
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no sink for the audit",
    note = "implement `tollgate_rules::AuditSink` for it: `fn record(&self, record: &AuditRecord)`"
)]
pub trait AuditSink: Send + Sync + 'static {
    /// Takes a record. It is called in the task or thread that makes the change, so it should not wait: give the record to a
    /// queue.
    ///
    /// What it records has happened already. A panic in it is an event at error level, and does not change the rules.
    fn record(&self, record: &AuditRecord);
}

/// The sinks of a service.
#[derive(Clone, Default)]
pub(crate) struct AuditSinks(pub(crate) Vec<Arc<dyn AuditSink>>);

impl AuditSinks {
    /// Tells of a record, by an event and to all sinks.
    pub(crate) fn record(&self, record: &AuditRecord) {
        let AuditRecord { before, after, .. } = record;
        let (what, actor) = (record.kind.name(), record.author.actor());
        let (reason, lines) = (record.author.reason(), record.lines.join("\n"));
        let said = match record.kind {
            AuditKind::Rejected if record.is_slip => "nothing has changed",
            AuditKind::Rejected => "the rules are rejected, and the last good ones stay in force",
            _ => "the rules have changed",
        };
        if record.kind != AuditKind::Rejected || record.is_slip {
            tracing::info!(
                target: "tollgate::audit", what, actor, reason, before, after, "{said}:\n{lines}"
            );
        } else {
            tracing::error!(
                target: "tollgate::audit", what, actor, reason, before, after, "{said}:\n{lines}"
            );
            if !tracing::dispatcher::has_been_set() {
                // Who edits a file would not hear of it. Standard error may be closed.
                let _ = writeln!(stderr(), "tollgate: {said}:\n{lines}");
            }
        }
        for sink in &self.0 {
            // Sinks are called between a change of rules and those who wait for it.
            if catch_unwind(AssertUnwindSafe(|| sink.record(record))).is_err() {
                tracing::error!(
                    target: "tollgate", what, before, after,
                    "a sink of the audit panicked, and may not have this record"
                );
            }
        }
    }
}

tollgate_core::debug_fields!(AuditSinks, it => sinks: it.0.len());
