//! The rules of a namespace in Redis.

use std::{
    fmt,
    sync::{Arc, LazyLock},
    time::Duration,
};

use ::redis::{Cmd, Script};
use tokio::sync::Mutex;
use tollgate_redis::{Address, Secret, SetupError};

#[cfg(feature = "tls")]
use crate::redis::certificates::Certificates;
use crate::{
    audit::{AuditKind, AuditRecord},
    author::Author,
    bindings::{Bindings, HashKey},
    clock::now,
    document_changes::document_changes,
    document_error::DocumentError,
    document_tree::DocumentTree,
    entries::Entries,
    fleet::{FleetStatus, LaggingProcess},
    format::Format,
    limit_override::{LimitOverride, RuleSwitch},
    pushed_document::PushedDocument,
    redis::{
        link::Link,
        names::Names,
        push_error::{PushError, PushErrorKind},
        servers::Servers,
    },
    rule_text::RuleText,
    signing_key::SigningKey,
};

static PUSH: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../../lua/push.lua")));
static REPORT: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../lua/report.lua")));

/// About how many records the audit keeps.
const AUDIT: &str = "10000";
/// A process without a heartbeat for this time is gone: three heartbeats.
const GONE_AFTER: Duration = Duration::from_secs(15);
/// How many lagging processes are named.
const NAMED: usize = 20;
/// How often an override is tried again while others push.
const ATTEMPTS: usize = 10;

/// The rules of a service in Redis: pushes documents, and makes the [source](Self::source) that each process
/// [follows](crate::LiveRules::follow). See the [module](crate::redis).
///
/// Cheap to clone.
#[derive(Clone)]
pub struct RedisRules {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) servers: Arc<Servers>,
    pub(crate) names: Names,
    pub(crate) key: SigningKey,
    link: Mutex<Link>,
}

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
}

/// A document as it is stored.
#[derive(Clone, Debug)]
pub(crate) struct StoredDocument {
    pub(crate) text: String,
    pub(crate) signature: String,
    pub(crate) author: Author,
}

impl RedisRules {
    /// The rules in this namespace of the Redis at this [address](Address), signed with the secret of the service. It connects
    /// when it is used first.
    ///
    /// # Errors
    ///
    /// An address or a namespace that cannot be used; an address that asks for encryption, which is for
    /// [`with_tls`](Self::with_tls).
    pub fn new(
        address: impl TryInto<Address, Error: Into<SetupError>>,
        namespace: &str,
        secret: &Secret,
    ) -> Result<Self, PushError> {
        let address = read_address(address)?;
        if address.parts().is_encrypted {
            let message = "the address of Redis asks for encryption; say whom to trust, with RedisRules::with_tls";
            return Err(PushError::new(PushErrorKind::Setting, message));
        }
        Self::of_servers(Servers::new(address.parts()), namespace, secret)
    }

    /// The same through encrypted connections, as `rediss://` asks for: whom to trust, with which certificate of one's own. The
    /// cryptography is that of the process, which is chosen when it starts: `rustls::crypto::CryptoProvider::install_default`.
    ///
    /// # Errors
    ///
    /// An address or a namespace that cannot be used; an address that does not ask for encryption; certificates that cannot be
    /// read; a process without cryptography.
    #[cfg(feature = "tls")]
    pub fn with_tls(
        address: impl TryInto<Address, Error: Into<SetupError>>,
        namespace: &str,
        secret: &Secret,
        certificates: Certificates,
    ) -> Result<Self, PushError> {
        let address = read_address(address)?;
        if !address.parts().is_encrypted {
            let message =
                "the address of Redis does not ask for encryption; write it as rediss://host:6379";
            return Err(PushError::new(PushErrorKind::Setting, message));
        }
        let mut servers = Servers::new(address.parts());
        servers.certificates = Some(certificates.checked()?);
        Self::of_servers(servers, namespace, secret)
    }

    fn of_servers(servers: Servers, namespace: &str, secret: &Secret) -> Result<Self, PushError> {
        let names = Names::new(namespace)?;
        let servers = Arc::new(servers);
        let key = SigningKey::new(secret);
        let link = Mutex::new(Link::new(Arc::clone(&servers)));
        Ok(Self {
            shared: Arc::new(Shared {
                servers,
                names,
                key,
                link,
            }),
        })
    }

    /// Puts a document in force in all processes, and returns its revision. If it is stored already, nothing changes: several
    /// processes may push one file.
    ///
    /// It replaces the stored document as a whole, with the overrides and switches that were added to it.
    ///
    /// # Errors
    ///
    /// All that is wrong with it, by these bindings; they have to be those of the service. Somebody else pushed at the same time.
    /// Redis is unavailable.
    pub async fn push(
        &self,
        text: RuleText,
        bindings: &Bindings,
        author: &Author,
    ) -> Result<u64, PushError> {
        let pushed = self.checked(text, bindings, author).await?;
        let (revision, before) = self.read(bindings).await?;
        self.store(pushed, (revision, before), bindings, author)
            .await
    }

    /// Gives one client a limit of its own, in all processes. Returns the revision.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push); or there is no document yet. If others push at the same time, it retries.
    pub async fn override_limit(
        &self,
        entry: LimitOverride,
        bindings: &Bindings,
        author: &Author,
    ) -> Result<u64, PushError> {
        let node = entry.node();
        self.edit(bindings, author, |lists| lists.set_override(node.clone()))
            .await
    }

    /// Switches rules in all processes. Returns the revision.
    ///
    /// # Errors
    ///
    /// As [`override_limit`](Self::override_limit).
    pub async fn switch(
        &self,
        entry: RuleSwitch,
        bindings: &Bindings,
        author: &Author,
    ) -> Result<u64, PushError> {
        let node = entry.node();
        self.edit(bindings, author, |lists| lists.set_switch(node.clone()))
            .await
    }

    /// Ends all switches in all processes. Returns the revision.
    ///
    /// # Errors
    ///
    /// As [`override_limit`](Self::override_limit).
    pub async fn clear_switches(
        &self,
        bindings: &Bindings,
        author: &Author,
    ) -> Result<u64, PushError> {
        self.edit(bindings, author, |lists| lists.switches.clear())
            .await
    }

    /// The document that is stored, as JSON with hashes in place of keys, and its revision. `None`: there is none.
    ///
    /// # Errors
    ///
    /// Redis is unavailable, or the document is not signed with the secret.
    pub async fn document(&self) -> Result<Option<(u64, String)>, PushError> {
        let stored = self.exchange(&Report::default()).await?;
        let Some(document) = stored.document else {
            return Ok(None);
        };
        self.verify(stored.revision, &document)?;
        Ok(Some((stored.revision, document.text)))
    }

    /// Which processes follow the rules, and which lag.
    ///
    /// # Errors
    ///
    /// Redis is unavailable.
    pub async fn fleet(&self) -> Result<FleetStatus, PushError> {
        Ok(self.exchange(&Report::default()).await?.fleet)
    }

    /// The latest records of the audit, the newest first.
    ///
    /// # Errors
    ///
    /// Redis is unavailable.
    pub async fn audit(&self, most: usize) -> Result<Vec<AuditRecord>, PushError> {
        let mut command = Cmd::new();
        command.arg("XREVRANGE").arg(&self.shared.names.audit);
        command.arg("+").arg("-").arg("COUNT").arg(most);
        let entries: Vec<(String, Vec<String>)> =
            self.shared.link.lock().await.send(&command).await?;
        Ok(entries
            .iter()
            .map(|(id, fields)| record(id, fields))
            .collect())
    }

    /// Adds a record to the audit.
    pub(crate) async fn add_record(&self, record: &AuditRecord) -> Result<(), PushError> {
        let mut command = Cmd::new();
        command.arg("XADD").arg(&self.shared.names.audit);
        command.arg("MAXLEN").arg("~").arg(AUDIT).arg("*");
        command.arg("what").arg(record.kind.name());
        command.arg("actor").arg(record.author.actor());
        command
            .arg("before")
            .arg(record.before)
            .arg("after")
            .arg(record.after);
        command.arg("changes").arg(record.lines.join("\n"));
        command.arg("reason").arg(record.author.reason());
        let _: String = self.shared.link.lock().await.send(&command).await?;
        Ok(())
    }

    async fn audit_rejected(&self, wrong: &DocumentError, author: &Author) {
        // The pieces of the document that an error shows may have keys in them.
        let lines = wrong.mistakes().iter().map(|mistake| {
            let (origin, line, message) = (mistake.origin(), mistake.line(), mistake.message());
            format!("{origin}:{line}: {message}")
        });
        let record = AuditRecord {
            at: now(),
            kind: AuditKind::Rejected,
            author: author.clone(),
            before: 0,
            after: 0,
            lines: lines.take(20).collect(),
        };
        // Who pushes is told anyway.
        let _ = self.add_record(&record).await;
    }

    /// A document that may be pushed. That it may not be is part of the audit.
    async fn checked(
        &self,
        text: RuleText,
        bindings: &Bindings,
        author: &Author,
    ) -> Result<PushedDocument, PushError> {
        match PushedDocument::read(&self.hashed(text), bindings) {
            Ok(pushed) => Ok(pushed),
            Err(wrong) => {
                self.audit_rejected(&wrong, author).await;
                Err(wrong.into())
            }
        }
    }

    async fn edit(
        &self,
        bindings: &Bindings,
        author: &Author,
        edit: impl Fn(&mut DocumentTree),
    ) -> Result<u64, PushError> {
        for _ in 0..ATTEMPTS {
            let (revision, before) = self.read(bindings).await?;
            let Some(seen) = before else {
                let message = "there are no rules in Redis yet; push a document first";
                return Err(PushError::new(PushErrorKind::Document, message));
            };
            let mut lists = seen.lists.clone();
            edit(&mut lists);
            let text = lists.rule_text("the rules in Redis, with the change");
            let pushed = self.checked(text, bindings, author).await?;
            let stored = self.store(pushed, (revision, Some(seen)), bindings, author);
            match stored.await {
                Err(conflict) if conflict.kind() == PushErrorKind::Conflict => {}
                stored => return stored,
            }
        }
        let message = "others push all the time; try again";
        Err(PushError::new(PushErrorKind::Conflict, message))
    }

    /// The number that the next document comes after, and what is stored.
    async fn read(
        &self,
        bindings: &Bindings,
    ) -> Result<((u64, u64), Option<PushedDocument>), PushError> {
        let stored = self.exchange(&Report::default()).await?;
        // If Redis has lost the document, processes still have it in force: the next one is above theirs.
        let in_force = stored.in_force.iter().filter_map(|document| {
            let (revision, _) = document.split_once(':')?;
            revision.parse::<u64>().ok()
        });
        let highest = in_force.max().unwrap_or(0).max(stored.revision);
        let Some(document) = &stored.document else {
            return Ok(((stored.revision, highest), None));
        };
        self.verify(stored.revision, document)?;
        let read = PushedDocument::read(&self.rule_text(document), bindings);
        // One that these bindings cannot read may be replaced.
        Ok(((stored.revision, highest), read.ok()))
    }

    /// Stores a document after the one that was seen, unless there is another one by now.
    async fn store(
        &self,
        mut pushed: PushedDocument,
        ((seen, highest), before): ((u64, u64), Option<PushedDocument>),
        bindings: &Bindings,
        author: &Author,
    ) -> Result<u64, PushError> {
        let Shared { key, names, .. } = &*self.shared;
        pushed.hash_keys(|rule, client| key.hash_key(rule, client));
        // As processes will read it: with hashes, by which clients are compared with those before.
        let text = pushed.lists.rule_text(&self.origin());
        let after = self.hashed(text).parse(bindings)?;
        let text = pushed.lists.text();
        let before_text = before.as_ref().map(|before| before.lists.text());
        if before_text.as_ref() == Some(&text) && seen == highest {
            return Ok(seen);
        }
        let revision = highest + 1;
        let signature = key.sign(&names.namespace, revision, &text, author);
        let nothing = Entries::default();
        let before = before.as_ref();
        let before = before.map_or(&nothing, |before| &before.document.entries);
        let changes = document_changes(before, &after.entries).join("\n");
        let mut push = PUSH.key(&names.document);
        push.key(&names.pushed).key(&names.audit);
        push.arg(seen).arg(revision).arg(text).arg(&signature);
        push.arg(author.actor())
            .arg(author.reason())
            .arg(names.channel());
        push.arg(AUDIT).arg(changes);
        let (is_stored, stored): (bool, u64) = self.shared.link.lock().await.run(&push).await?;
        if is_stored {
            return Ok(revision);
        }
        // The client of a cluster sends a call again whose answer was lost: then it is this document that is there already.
        let found = self.exchange(&Report::default()).await?.document;
        if stored == revision && found.is_some_and(|found| found.signature == signature) {
            return Ok(revision);
        }
        let message = format!(
            "somebody else has pushed revision {stored} in the meantime; look at it, and push again"
        );
        Err(PushError::new(PushErrorKind::Conflict, message))
    }

    /// Tells what a process has in force, and asks what is stored.
    pub(crate) async fn exchange(&self, report: &Report) -> Result<Stored, PushError> {
        let names = &self.shared.names;
        let mut report_call = REPORT.key(&names.document);
        report_call
            .key(&names.pushed)
            .key(&names.in_force)
            .key(&names.said);
        report_call.key(&names.last_seen).key(&names.documents);
        report_call
            .arg(&report.process)
            .arg(report.revision)
            .arg(&report.hash);
        report_call
            .arg(&report.says)
            .arg(GONE_AFTER.as_millis() as u64);
        report_call.arg(&report.signature).arg(NAMED);
        let reply: Reply = self.shared.link.lock().await.run(&report_call).await?;
        let (now, revision, _, fields, in_force, processes, lagging, ahead, named) = reply;
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
        });
        Ok(Stored {
            revision,
            document,
            fleet: FleetStatus {
                revision,
                processes,
                lagging,
                ahead,
                longest: named.collect(),
                documents: in_force.len(),
            },
            in_force,
        })
    }

    /// # Errors
    ///
    /// It is not signed with the secret.
    pub(crate) fn verify(
        &self,
        revision: u64,
        document: &StoredDocument,
    ) -> Result<(), DocumentError> {
        let Shared { key, names, .. } = &*self.shared;
        let (signature, text, author) = (&document.signature, &document.text, &document.author);
        if key.has_signed(signature, (&names.namespace, revision), text, author) {
            return Ok(());
        }
        let message = format!(
            "revision {revision} is not signed with the secret of this service; push it again with the secret that all processes \
             have, and look for who else can write to Redis"
        );
        Err(DocumentError::of_whole(&self.origin(), message))
    }

    /// The text of a document that was verified.
    pub(crate) fn rule_text(&self, document: &StoredDocument) -> RuleText {
        let text = RuleText::named(self.origin(), &*document.text, Format::Json);
        self.hashed(text.by(document.author.clone()))
    }

    /// The text, with the secret for keys that are named by their hash.
    fn hashed(&self, text: RuleText) -> RuleText {
        let key = self.shared.key.clone();
        let hash_key: Arc<HashKey> = Arc::new(move |rule, client| key.hash_key(rule, client));
        text.with_hash_key(hash_key)
    }

    fn origin(&self) -> String {
        format!("Redis, namespace {}", self.shared.names.namespace)
    }
}

/// It does not repeat what may be a password.
fn read_address(
    address: impl TryInto<Address, Error: Into<SetupError>>,
) -> Result<Address, PushError> {
    address.try_into().map_err(|wrong| {
        let wrong: SetupError = wrong.into();
        PushError::new(PushErrorKind::Setting, wrong.to_string())
    })
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

/// A record of the stream.
fn record(id: &str, fields: &[String]) -> AuditRecord {
    let field = |name: &str| {
        let pair = fields.chunks_exact(2).find(|pair| pair[0] == name);
        pair.map_or("", |pair| &*pair[1])
    };
    let ms = id.split('-').next().and_then(|ms| ms.parse::<u64>().ok());
    AuditRecord {
        at: ms.unwrap_or(0).saturating_mul(1_000),
        kind: match field("what") {
            "rejected" => AuditKind::Rejected,
            "expired" => AuditKind::Expired,
            "denied" => AuditKind::Denied,
            _ => AuditKind::Accepted,
        },
        author: Author::new(field("actor")).because(field("reason")),
        before: field("before").parse().unwrap_or(0),
        after: field("after").parse().unwrap_or(0),
        lines: field("changes").lines().map(str::to_owned).collect(),
    }
}

/// Without the address, which may have a password in it.
impl fmt::Debug for RedisRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisRules")
            .field("namespace", &self.shared.names.namespace)
            .finish_non_exhaustive()
    }
}
