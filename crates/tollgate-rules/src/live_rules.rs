//! Rules that follow a document.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::{sync::Notify, task::JoinHandle, time::timeout};
use tollgate::{MessageLimitLayer, RateLimitLayer, RuleChange, RuleError, RulesHandle, Store};
use tollgate_core::Tick;

use crate::{
    bindings::Bindings,
    document_error::DocumentError,
    files::Texts,
    format::Format,
    path_watch::PathWatch,
    rule_document::{RuleDocument, now},
    rules_status::RulesStatus,
};

/// How long nothing may happen in the folder before a changed file is read: editors write in several steps.
const QUIET: Duration = Duration::from_millis(200);
/// How long a change waits for that at most.
const MOST_QUIET: Duration = Duration::from_secs(2);
/// How often the contents are compared without an event: network file systems have none.
const POLL: Duration = Duration::from_secs(30);
/// The most changes of one document that are reported one by one.
const REPORTED: usize = 20;

/// Rules that follow a document while a service runs: a text, a file, or a folder.
///
/// Layers are made by [`layer`](Self::layer). A changed document is in force in all of them at once, without a lost request or a
/// lost count: see [`RulesHandle`]. A document that is wrong changes nothing: the last good one stays in force, the mistake is an
/// event at error level, once, and [`status`](Self::status) tells.
///
/// Cheap to clone. Watching ends when the last clone is dropped; the layers go on with the rules that they have.
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
/// assert_eq!((rules.status().revision(), rules.status().rejected()), (2, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
#[derive(Clone)]
pub struct LiveRules {
    shared: Arc<Shared>,
}

struct Shared {
    bindings: Bindings,
    /// `None`: the text is set by hand.
    path: Option<PathBuf>,
    state: Mutex<State>,
    /// Stopped when the last clone is dropped.
    watching: Mutex<Option<JoinHandle<()>>>,
}

struct State {
    document: RuleDocument,
    /// Of the contents in force, and of those that were rejected last.
    hash: u64,
    rejected_hash: Option<u64>,
    layers: Vec<RulesHandle>,
    revision: u64,
    since: Tick,
    /// When the rules in force were computed: entries that expire later are in force.
    computed: Tick,
    rejected: u64,
    last_rejection: Option<String>,
}

impl LiveRules {
    /// Rules of a text, which [`set_text`](Self::set_text) replaces.
    ///
    /// # Errors
    ///
    /// All that is wrong with the text.
    pub fn from_text(
        text: &str,
        format: Format,
        bindings: Bindings,
    ) -> Result<Self, DocumentError> {
        Self::new(None, bindings, &Texts::of_text(text, format))
    }

    /// Rules of a file, or of all files of a folder that are called `.toml`, `.yaml` or `.json`, which are read again whenever
    /// they change.
    ///
    /// The folder is watched and not the file, so that renamed files and swapped links are seen, as Kubernetes and editors make
    /// them. A change is read after 200 ms without another one. The contents are compared every 30 s as well, for file systems
    /// without events.
    ///
    /// # Errors
    ///
    /// All that is wrong with the documents, a file that cannot be read, or a call outside of a tokio runtime: a service with
    /// wrong rules does not start.
    pub fn watch(path: impl AsRef<Path>, bindings: Bindings) -> Result<Self, DocumentError> {
        let path = path.as_ref();
        let shown = path.display().to_string();
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| {
            DocumentError::of_whole(
                &shown,
                "a file is watched in a tokio runtime; call this in one",
            )
        })?;
        // Before the file is read, so that no change is missed in between.
        let changed = Arc::new(Notify::new());
        let watch = PathWatch::new(path, Arc::clone(&changed)).map_err(|wrong| {
            DocumentError::of_whole(&shown, format!("it cannot be watched: {wrong}"))
        })?;
        let texts = Texts::read(path)?;
        let rules = Self::new(Some(path.to_owned()), bindings, &texts)?;
        let shared = Arc::downgrade(&rules.shared);
        let task = runtime.spawn(follow(shared, changed, watch));
        *lock(&rules.shared.watching) = Some(task);
        Ok(rules)
    }

    fn new(
        path: Option<PathBuf>,
        bindings: Bindings,
        texts: &Texts,
    ) -> Result<Self, DocumentError> {
        let document = texts.parse(&bindings)?;
        let now = now();
        Ok(Self {
            shared: Arc::new(Shared {
                bindings,
                path,
                state: Mutex::new(State {
                    document,
                    hash: texts.hash(),
                    rejected_hash: None,
                    layers: Vec::new(),
                    revision: 1,
                    since: now,
                    computed: now,
                    rejected: 0,
                    last_rejection: None,
                }),
                watching: Mutex::new(None),
            }),
        })
    }

    /// A layer with these rules, which follows them. Make one for the whole router; the document selects the routes.
    ///
    /// Several layers of one document are on one store. A clone of a layer shares its rules, and can be configured apart.
    ///
    /// # Errors
    ///
    /// As [`RateLimitLayer::new`].
    pub fn layer(&self, store: impl Store) -> Result<RateLimitLayer, RuleError> {
        let mut state = lock(&self.shared.state);
        let layer = RateLimitLayer::switchable(store, state.document.rules_at(state.computed))?;
        state.layers.push(layer.handle());
        Ok(layer)
    }

    /// A layer that limits the messages of gRPC streams by these rules, and follows them.
    ///
    /// # Errors
    ///
    /// As [`MessageLimitLayer::new`].
    pub fn message_layer(&self, store: impl Store) -> Result<MessageLimitLayer, RuleError> {
        let mut state = lock(&self.shared.state);
        let layer = MessageLimitLayer::new(store, state.document.rules_at(state.computed))?;
        state.layers.push(layer.handle());
        Ok(layer)
    }

    /// Puts another text in force, and says what changed in the first layer.
    ///
    /// # Errors
    ///
    /// All that is wrong with the text. The rules stay as they are.
    pub fn set_text(&self, text: &str, format: Format) -> Result<Vec<RuleChange>, DocumentError> {
        self.shared.apply(Ok(Texts::of_text(text, format)))
    }

    /// Reads the file or folder now, without waiting for an event, and says what changed in the first layer. Nothing does for
    /// rules of a text.
    ///
    /// # Errors
    ///
    /// All that is wrong with the documents. The rules stay as they are.
    pub fn reload(&self) -> Result<Vec<RuleChange>, DocumentError> {
        self.shared.reload()
    }

    /// The document in force.
    #[must_use]
    pub fn document(&self) -> RuleDocument {
        lock(&self.shared.state).document.clone()
    }

    /// Which rules are in force, and what was rejected since.
    #[must_use]
    pub fn status(&self) -> RulesStatus {
        let state = lock(&self.shared.state);
        RulesStatus {
            revision: state.revision,
            rules: state.document.names().count(),
            in_force_for: Duration::from_micros(now().saturating_sub(state.since)),
            rejected: state.rejected,
            last_rejection: state.last_rejection.clone(),
        }
    }
}

impl Shared {
    fn reload(&self) -> Result<Vec<RuleChange>, DocumentError> {
        match &self.path {
            Some(path) => self.apply(Texts::read(path)),
            None => Ok(Vec::new()),
        }
    }

    /// Puts texts in force, unless they are already.
    fn apply(&self, texts: Result<Texts, DocumentError>) -> Result<Vec<RuleChange>, DocumentError> {
        // Held all along, so that two changes follow each other.
        let mut state = lock(&self.state);
        let hash = texts.as_ref().ok().map(Texts::hash);
        if hash == Some(state.hash) {
            // It was put right again.
            state.last_rejection = None;
            state.rejected_hash = None;
            return Ok(Vec::new());
        }
        let parsed = texts.and_then(|texts| texts.parse(&self.bindings));
        let now = now();
        let applied = parsed.and_then(|document| {
            let changes = state.replace(&document, now)?;
            Ok((document, changes))
        });
        match applied {
            Ok((document, changes)) => {
                state.document = document;
                state.hash = hash.unwrap_or(state.hash);
                state.rejected_hash = None;
                state.last_rejection = None;
                state.revision += 1;
                state.since = now;
                tracing::info!(target: "tollgate", revision = state.revision, "the rules have changed");
                report(&changes);
                Ok(changes)
            }
            Err(wrong) => {
                let message = wrong.to_string();
                let is_known = state.last_rejection.as_ref() == Some(&message);
                if !is_known || hash != state.rejected_hash {
                    state.rejected += 1;
                    tracing::error!(
                        target: "tollgate",
                        revision = state.revision,
                        "the rules are rejected, and the last good ones stay in force:\n{message}"
                    );
                }
                state.rejected_hash = hash;
                state.last_rejection = Some(message);
                Err(wrong)
            }
        }
    }

    /// Ends overrides and switches whose time is over. Returns how long until the next one is.
    fn expire(&self) -> Option<Duration> {
        let mut state = lock(&self.state);
        let now = now();
        let due = state.document.expires_after(state.computed)?;
        if due <= now {
            let document = state.document.clone();
            match state.replace(&document, now) {
                Ok(changes) => {
                    tracing::info!(target: "tollgate", "an override or a switch has expired");
                    report(&changes);
                }
                Err(wrong) => {
                    tracing::error!(target: "tollgate", "what has expired stays in force: {wrong}");
                    state.computed = now;
                }
            }
        }
        let next = state.document.expires_after(now)?;
        Some(Duration::from_micros(next - now))
    }
}

impl State {
    /// Replaces the rules of all layers, in one step.
    fn replace(
        &mut self,
        document: &RuleDocument,
        now: Tick,
    ) -> Result<Vec<RuleChange>, DocumentError> {
        self.layers.retain(|handle| handle.limiter().is_some());
        let rules = document.rules_at(now);
        let parts = self.layers.iter().map(|handle| (handle, rules.clone()));
        let changes = RulesHandle::replace_all(parts)
            .map_err(|wrong| DocumentError::of_whole("the rules", wrong.to_string()))?;
        self.computed = now;
        Ok(changes.into_iter().next().unwrap_or_default())
    }
}

fn report(changes: &[RuleChange]) {
    for change in changes.iter().take(REPORTED) {
        tracing::info!(target: "tollgate", "{change}");
    }
    if let Some(more) = changes.len().checked_sub(REPORTED).filter(|more| *more > 0) {
        tracing::info!(target: "tollgate", "and {more} more rules have changed");
    }
}

/// Follows a path for as long as its rules are there.
async fn follow(shared: Weak<Shared>, changed: Arc<Notify>, watch: PathWatch) {
    // Events come for as long as it lives.
    let _watch = watch;
    loop {
        let Some(next) = shared.upgrade().map(|shared| shared.expire()) else {
            return;
        };
        let wait = next.map_or(POLL, |next| next.min(POLL));
        if timeout(wait, changed.notified()).await.is_ok() {
            let quiet = async { while timeout(QUIET, changed.notified()).await.is_ok() {} };
            let _ = timeout(MOST_QUIET, quiet).await;
        }
        let reading = shared.clone();
        let read = tokio::task::spawn_blocking(move || {
            // What is wrong was reported.
            reading.upgrade().map(|shared| shared.reload().is_ok())
        });
        if !matches!(read.await, Ok(Some(_))) {
            return;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind it is whole at each step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.watching).take() {
            task.abort();
        }
    }
}

impl fmt::Debug for LiveRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveRules")
            .field("path", &self.shared.path)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}
