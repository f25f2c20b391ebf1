//! Rules that follow a source of documents: how they are set up, and their handle for operators.

use std::{
    fmt::Display,
    path::Path,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::watch,
    task::{JoinError, spawn_blocking},
    time::{sleep, timeout},
};
use tollgate::{RateLimitLayer, RuleError, Store, message::MessageLimitLayer, shed::ShedLayer};
use tollgate_core::{sync::lock, types::RuleChange};

use crate::{
    audit::{AuditSink, AuditSinks, Author},
    bindings::Bindings,
    document_error::DocumentError,
    format::Format,
    operator_entries::OperatorEntry,
    rule_document::RuleDocument,
    rule_text::RuleText,
    rules_in_force::RulesInForce,
    rules_status::RulesStatus,
    source::{FileSource, Source, SourceError},
};

/// How long after an error a source is asked again.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the end of an override or a switch is waited for at most: the clock of the system may be set in the meantime.
const LONGEST: Duration = Duration::from_secs(30);

/// Rules that follow a document while a service runs: a text, a file, a folder, Redis, or a [`Source`] of your own.
///
/// Layers are made by [`layer`](Self::layer). A changed document is in force in all of them at once, without a lost request or a
/// lost count: see [`RulesHandle`](tollgate::RulesHandle). A document that is wrong changes nothing: the last good one stays in
/// force, the mistake is an event at error level, once, and [`status`](Self::status) tells.
///
/// Cheap to clone. Watching ends with the last clone, or with the tokio runtime in which it began; the layers go on with the rules that
/// they have.
///
/// ```
/// use tollgate::{MemoryStore, RateLimitLayer};
/// use tollgate_rules::{Bindings, Format, LiveRules};
///
/// let limit = |limit: &str| {
///     format!("version: 1\nrules: [{{ name: per-key, limit: {limit}, by: header:x-api-key }}]")
/// };
/// let rules = LiveRules::from_text(&limit("20/s"), Format::Yaml, Bindings::new())?;
/// let layer: RateLimitLayer = rules.layer(MemoryStore::new())?;
///
/// let changes = rules.set_text(&limit("500/s"), Format::Yaml)?;
/// assert_eq!(changes[0].to_string(), "per-key: gcra 20/s → gcra 500/s, used units are kept");
/// assert!(rules.set_text(&limit("500"), Format::Yaml).is_err());
/// assert_eq!((rules.status().revision, rules.status().rejected), (2, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
#[derive(Clone)]
pub struct LiveRules {
    pub(crate) shared: Arc<RulesInForce>,
}

/// How long the first document is waited for.
const START_WITHIN: Duration = Duration::from_secs(10);

/// What may be set about [`LiveRules`]. Made by [`LiveRules::builder`].
#[must_use = "nothing is followed until a source is given"]
#[derive(Debug)]
pub struct LiveRulesBuilder {
    bindings: Bindings,
    fallback: Option<RuleText>,
    sinks: AuditSinks,
    start_within: Duration,
}

impl LiveRules {
    /// Rules of a text, which [`set_text`](Self::set_text) replaces.
    ///
    /// Inside of a tokio runtime, with its timer, overrides and switches end when their time is over. Elsewhere they end with the
    /// next change of the rules.
    ///
    /// # Errors
    ///
    /// All that is wrong with the text.
    pub fn from_text(
        text: &str,
        format: Format,
        bindings: Bindings,
    ) -> Result<Self, DocumentError> {
        Self::builder(bindings).from_text(text, format)
    }

    /// Rules of a file, or of all files of a folder that are called `.toml`, `.yaml` or `.json`, which are read again whenever they change: see [`FileSource`].
    ///
    /// # Errors
    ///
    /// All that is wrong with the documents, a file that cannot be read, or a call outside of a tokio runtime: a service with
    /// wrong rules does not start.
    pub fn watch(path: impl AsRef<Path>, bindings: Bindings) -> Result<Self, DocumentError> {
        Self::builder(bindings).watch(path)
    }

    /// Rules of a [`Source`], as soon as it has given its first document.
    ///
    /// # Errors
    ///
    /// The source has no document, or gave none within 10 s; all that is wrong with it; a call outside of a tokio runtime.
    pub async fn follow(source: impl Source, bindings: Bindings) -> Result<Self, DocumentError> {
        Self::builder(bindings).follow(source).await
    }

    /// Rules with settings of their own.
    pub fn builder(bindings: Bindings) -> LiveRulesBuilder {
        LiveRulesBuilder {
            bindings,
            fallback: None,
            sinks: AuditSinks::default(),
            start_within: START_WITHIN,
        }
    }
}

impl LiveRulesBuilder {
    /// The rules to start with where the source has no document at the start, or a wrong one. They are revision 0, and the first
    /// good document takes their place. Without a fallback such a service does not start.
    ///
    /// ```
    /// use tollgate_rules::{Bindings, Format, LiveRules, RuleText, Source, SourceError};
    ///
    /// struct Down;
    ///
    /// impl Source for Down {
    ///     async fn next(&mut self) -> Result<RuleText, SourceError> {
    ///         Err("no connection".into())
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let error = LiveRules::follow(Down, Bindings::new()).await.unwrap_err();
    /// assert_eq!(error.to_string(), "the source of the rules: no connection");
    ///
    /// let fallback = "version = 1\n[[rules]]\nname = 'api'\nlimit = '60/min'\nby = 'client_ip'";
    /// let rules = LiveRules::builder(Bindings::new())
    ///     .fallback(RuleText::new(fallback, Format::Toml))
    ///     .follow(Down)
    ///     .await
    ///     .unwrap();
    /// assert_eq!(rules.status().revision, 0);
    /// # }
    /// ```
    pub fn fallback(mut self, text: RuleText) -> Self {
        self.fallback = Some(text);
        self
    }

    /// How long the first document is waited for. Default: 10 s.
    pub fn start_within(mut self, patience: Duration) -> Self {
        self.start_within = patience;
        self
    }

    /// Gives every change of rules to this sink too: see [`AuditSink`]. Called twice, both get all.
    pub fn audit(mut self, sink: impl AuditSink) -> Self {
        self.sinks.0.push(Arc::new(sink));
        self
    }

    /// As [`LiveRules::from_text`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn from_text(self, text: &str, format: Format) -> Result<LiveRules, DocumentError> {
        let text = RuleText::new(text, format);
        let shared = RulesInForce::new(self.bindings, self.sinks, text, false)?;
        let rules = LiveRules { shared };
        if let Ok(runtime) = Handle::try_current() {
            rules.end_in_time(&runtime);
        }
        Ok(rules)
    }

    /// As [`LiveRules::watch`].
    ///
    /// # Errors
    ///
    /// As there; with a [fallback](Self::fallback), all that is wrong with that.
    pub fn watch(self, path: impl AsRef<Path>) -> Result<LiveRules, DocumentError> {
        let path = path.as_ref();
        let runtime = runtime(path.display())?;
        // Looked up before it is read, so that no change is missed in between.
        let mut source = FileSource::new(path);
        let first = source.read().map_err(Into::into);
        self.start(&runtime, source, first)
    }

    /// As [`LiveRules::follow`].
    ///
    /// # Errors
    ///
    /// As there; with a [fallback](Self::fallback), all that is wrong with it.
    pub async fn follow(self, mut source: impl Source) -> Result<LiveRules, DocumentError> {
        let runtime = runtime("the source of the rules")?;
        let first = match timeout(self.start_within, source.next()).await {
            Ok(first) => first,
            Err(_) => Err(format!(
                "it gave no document within {:?}; give it longer, or rules to start with, by `LiveRules::builder`",
                self.start_within
            )
            .into()),
        };
        self.start(&runtime, source, first)
    }

    /// With what the source has given first, or the fallback.
    fn start(
        self,
        runtime: &Handle,
        source: impl Source,
        first: Result<RuleText, SourceError>,
    ) -> Result<LiveRules, DocumentError> {
        let is_fallback = self.fallback.is_some();
        let (text, first) = match (self.fallback, first) {
            (Some(fallback), first) => (fallback, Some(first)),
            (None, Ok(first)) => (first, None),
            (None, Err(wrong)) => {
                let wrong = wrong.downcast::<DocumentError>();
                let origin = "the source of the rules";
                return Err(wrong.map_or_else(
                    |wrong| DocumentError::of_whole(origin, wrong.to_string()),
                    |wrong| *wrong,
                ));
            }
        };
        let shared = RulesInForce::new(self.bindings, self.sinks, text, is_fallback)?;
        let rules = LiveRules { shared };
        if let Some(first) = first {
            rules.shared.take(first);
        }
        rules.start(runtime, source);
        Ok(rules)
    }
}

fn runtime(origin: impl Display) -> Result<Handle, DocumentError> {
    let message = "rules are watched by a task: call this inside of a tokio runtime";
    Handle::try_current().map_err(|_| DocumentError::of_whole(origin, message))
}

impl LiveRules {
    /// Begins to follow a source, for as long as a clone is there.
    pub(crate) fn start(&self, runtime: &Handle, source: impl Source) {
        if let Some(fleet) = source.fleet() {
            // A source says it once, and there is one source.
            let _ = self.shared.fleet.set(fleet);
        }
        self.end_in_time(runtime);
        self.spawn(runtime, follow(Arc::downgrade(&self.shared), source));
    }

    /// Begins to end overrides and switches when their time is over, for as long as a clone is there.
    fn end_in_time(&self, runtime: &Handle) {
        let changed = self.shared.changed.subscribe();
        self.spawn(runtime, expire(Arc::downgrade(&self.shared), changed));
    }

    fn spawn(&self, runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) {
        lock(&self.shared.tasks).spawn_on(task, runtime);
    }

    /// A layer with these rules, which follows them. Make one for the whole router; the document selects the routes.
    ///
    /// Several layers of one document are on one store. A clone of a layer shares its rules, and can be configured apart.
    ///
    /// A worker without requests keeps a layer, and takes its [limiter](RateLimitLayer::limiter) anew for each piece of work:
    ///
    /// ```
    /// use tollgate::{Key, MemoryStore};
    /// use tollgate_rules::{Bindings, Format, LiveRules};
    ///
    /// let mails = |limit: &str| format!("version = 1\n[[rules]]\nname = 'mails'\nlimit = '{limit}'\nby = 'handler'\n");
    /// let rules = LiveRules::from_text(&mails("1/min"), Format::Toml, Bindings::new())?;
    /// let layer = rules.layer(MemoryStore::new())?;
    /// let send = || layer.limiter().try_acquire("mails", &Key::of("account-7"));
    /// assert!(send()?.is_allowed() && !send()?.is_allowed());
    /// rules.set_text(&mails("3/min"), Format::Toml)?;
    /// assert!(send()?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`RateLimitLayer::new`].
    pub fn layer(&self, store: impl Store) -> Result<RateLimitLayer, RuleError> {
        let mut state = self.shared.lock();
        let rules = state.document.rules_at(state.computed);
        let layer = RateLimitLayer::new(store, rules)?;
        state.followers.add_layer(layer.handle());
        Ok(layer)
    }

    /// A layer that limits the messages of gRPC streams by these rules, and follows them.
    ///
    /// # Errors
    ///
    /// As [`MessageLimitLayer::new`].
    pub fn message_layer(&self, store: impl Store) -> Result<MessageLimitLayer, RuleError> {
        let mut state = self.shared.lock();
        let rules = state.document.rules_at(state.computed);
        let layer = MessageLimitLayer::new(store, rules)?;
        state.followers.add_layer(layer.handle());
        Ok(layer)
    }

    /// A layer that sheds load by the table `shed` of the document, and follows it. Without the table nothing is shed.
    ///
    /// `set` adds what a file cannot say: classes by code, a name, a clock. It is called now and with each change of the table, while
    /// rules are put in force: it must not call these rules. The layer follows for as long as the rules are there.
    ///
    /// ```
    /// use tollgate::shed::Priority;
    /// use tollgate_rules::{Bindings, Format, LiveRules};
    ///
    /// let text = "version = 1\nshed = { capacity = 200 }\nrules = [{ name = 'api', limit = '9/s', by = 'client_ip' }]\n";
    /// let rules = LiveRules::from_text(text, Format::Toml, Bindings::new())?;
    /// let shed = rules.shed_layer(|layer| {
    ///     layer.priority(|head| if head.uri.path() == "/pay" { Priority::P0 } else { Priority::P2 })
    /// });
    /// rules.set_text(&text.replace("200", "\"adaptive\""), Format::Toml)?;
    /// assert_eq!(shed.requests_in_flight(), 0);
    /// # Ok::<(), tollgate_rules::DocumentError>(())
    /// ```
    pub fn shed_layer(
        &self,
        set: impl Fn(ShedLayer) -> ShedLayer + Send + Sync + 'static,
    ) -> ShedLayer {
        loop {
            // Without the lock: it is code of the service.
            let document = self.document();
            let layer = set(document.shed_layer());
            let mut state = self.shared.lock();
            if document.sheds_as(&state.document) {
                state.followers.sheds.push((layer.clone(), Box::new(set)));
                return layer;
            }
        }
    }

    /// Puts another text in force, and says what changed in the first layer. When the source has another document later, that one
    /// replaces this text.
    ///
    /// # Errors
    ///
    /// All that is wrong with the text. The rules stay as they are.
    pub fn set_text(&self, text: &str, format: Format) -> Result<Vec<RuleChange>, DocumentError> {
        let text = RuleText::new(text, format);
        self.shared.apply(text)
    }

    /// The document in force.
    #[must_use]
    pub fn document(&self) -> RuleDocument {
        self.shared.lock().document.clone()
    }

    /// Which rules are in force, and what was rejected since.
    #[must_use]
    pub fn status(&self) -> RulesStatus {
        self.shared.status()
    }
}

/// Follows a source for as long as its rules are there.
async fn follow(shared: Weak<RulesInForce>, mut source: impl Source) {
    loop {
        // A change that takes a while may be before it.
        let Ok(Some(status)) = run(&shared, RulesInForce::status).await else {
            return;
        };
        source.on_status(&status);
        let found = source.next().await;
        let failed = found.is_err();
        let taken = run(&shared, move |shared| shared.take(found)).await;
        if let Ok(None) = taken {
            return;
        }
        if taken.is_err()
            && let Some(shared) = shared.upgrade()
        {
            // The message of the panic may quote the document, and with it the key of a client.
            let message = "code of this service panicked while they were put in force: a key or a condition that is bound, or a store; the \
                           message of the panic says where";
            shared.take(Err(DocumentError::of_whole("the rules", message).into()));
        }
        if failed || taken.is_err() {
            sleep(PAUSE).await;
        }
    }
}

/// Ends overrides and switches when their time is over, for as long as the rules are there.
async fn expire(shared: Weak<RulesInForce>, mut changed: watch::Receiver<u64>) {
    loop {
        // A change from here on may bring an earlier end.
        changed.mark_unchanged();
        let expires = match run(&shared, RulesInForce::expire).await {
            Ok(None) => return,
            Ok(Some(expires)) => expires,
            Err(_) => {
                tracing::error!(
                    target: "tollgate",
                    "what has expired stays in force for now: it panicked while it was ended"
                );
                Some(LONGEST)
            }
        };
        // Without rules there is no change, which is seen above.
        if let Some(expires) = expires {
            let _ = timeout(expires.min(LONGEST), changed.changed()).await;
        } else {
            let _ = changed.changed().await;
        }
    }
}

/// Does what may take a while, with code of the service, which may panic. `None`: the rules are gone, or the runtime ends.
async fn run<T: Send + 'static>(
    shared: &Weak<RulesInForce>,
    work: impl FnOnce(&RulesInForce) -> T + Send + 'static,
) -> Result<Option<T>, JoinError> {
    let shared = shared.clone();
    match spawn_blocking(move || shared.upgrade().map(|shared| work(&shared))).await {
        Err(wrong) if !wrong.is_panic() => Ok(None),
        done => done,
    }
}

tollgate_core::debug_fields!(LiveRules, it => status: it.status());

/// Changes the rules of **this process** in the name of an [`Author`]: made by [`LiveRules::handle`].
///
/// Overrides and switches that are set here lie on top of the source's document, stay when it changes, and end with the process.
/// To change all processes, change the source.
///
/// ```
/// use tollgate_rules::{Author, Bindings, Format, LiveRules, OperatorEntry};
///
/// let limits = "version = 1\n[[rules]]\nname = 'per-key'\nlimit = '20/s'\nby = 'header:x-api-key'\n";
/// let rules = LiveRules::from_text(limits, Format::Toml, Bindings::new())?;
/// let alice = rules.handle(Author::new("alice").because("ticket 4711"));
/// alice.set(OperatorEntry::limit("per-key", "acme-key-1", "500/s"))?;
/// alice.set(OperatorEntry::switch("*", "50%"))?;
/// assert_eq!(rules.document().limiter_rules()[0].quota().to_string(), "gcra 10/s");
///
/// let error = alice.set(OperatorEntry::limit("per-kye", "acme-key-1", "500/s")).unwrap_err();
/// assert!(error.to_string().contains("did you mean \"per-key\"?"));
/// alice.clear()?;
/// assert_eq!(rules.document().limiter_rules()[0].quota().to_string(), "gcra 20/s");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
#[derive(Clone, Debug)]
pub struct LiveRulesHandle {
    rules: LiveRules,
    author: Author,
}

impl LiveRules {
    /// Changes the rules of this process in the name of an author, who is part of the [audit](crate::AuditRecord).
    pub fn handle(&self, author: Author) -> LiveRulesHandle {
        LiveRulesHandle {
            rules: self.clone(),
            author,
        }
    }

    /// Hears of each change of the [status](Self::status).
    #[must_use]
    pub fn subscribe(&self) -> RulesUpdates {
        RulesUpdates {
            changed: self.shared.changed.subscribe(),
            rules: self.clone(),
        }
    }
}

impl LiveRulesHandle {
    /// Puts another text in force, and says what changed in the first layer. When the source has another document later, that one
    /// replaces this text.
    ///
    /// # Errors
    ///
    /// All that is wrong with the text. The rules stay as they are.
    pub fn replace(
        &self,
        text: impl Into<String>,
        format: Format,
    ) -> Result<Vec<RuleChange>, DocumentError> {
        let text = RuleText::new(text, format).by(self.author.clone());
        self.rules.shared.apply(text)
    }

    /// Gives one client a limit of its own, or switches rules off, into a shadow, or to a part of their limits.
    ///
    /// # Errors
    ///
    /// An unknown rule, a text that is no key of it, a limit that does not go with it or something else to switch to; an end that is
    /// over. Nothing changes.
    pub fn set(&self, entry: OperatorEntry) -> Result<Vec<RuleChange>, DocumentError> {
        self.rules.shared.set_local(self.author.clone(), entry)
    }

    /// Ends overrides and switches that were set in this process, by their [numbers](crate::operators::EntryStatus::id).
    ///
    /// # Errors
    ///
    /// There is none with one of the numbers. The store refuses the rules as they were.
    pub fn end(&self, ids: &[u64]) -> Result<Vec<RuleChange>, DocumentError> {
        let author = self.author.clone();
        (self.rules.shared).edit_local(author, |_, local| local.end(ids))
    }

    /// Ends all overrides and switches that were set in this process.
    ///
    /// # Errors
    ///
    /// The store refuses the rules as they were.
    pub fn clear(&self) -> Result<Vec<RuleChange>, DocumentError> {
        let author = self.author.clone();
        self.rules.shared.edit_local(author, |_, local| {
            local.all.clear();
            Ok(())
        })
    }
}

/// Changes of the status of [`LiveRules`], from [`LiveRules::subscribe`].
#[derive(Debug)]
pub struct RulesUpdates {
    changed: watch::Receiver<u64>,
    rules: LiveRules,
}

impl RulesUpdates {
    /// Waits for the next change, and says what is in force then. Changes that come close together may be one.
    ///
    /// # Cancel safety
    ///
    /// A change that was not waited for is there at the next call.
    pub async fn next(&mut self) -> RulesStatus {
        // The rules are kept here, so that there is always somebody to hear from.
        let _ = self.changed.changed().await;
        self.rules.status()
    }
}
