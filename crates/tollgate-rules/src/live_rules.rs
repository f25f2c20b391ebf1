//! Rules that follow a source of documents.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::{Arc, Weak},
    task::Poll,
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::watch,
    task::spawn_blocking,
    time::{sleep, timeout},
};
use tollgate::{
    LiveLimiter, RateLimitLayer, RuleError, Store, message::MessageLimitLayer, rules::RuleChange,
    shed::ShedLayer,
};

use crate::{
    document_error::DocumentError,
    format::Format,
    rule_document::RuleDocument,
    rule_text::RuleText,
    rules_in_force::{Giver, RulesInForce},
    rules_status::RulesStatus,
    shed_entry::ShedEntry,
    source::{Source, SourceError},
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
/// assert_eq!((rules.status().revision, rules.status().rejected), (2, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
#[derive(Clone)]
pub struct LiveRules {
    pub(crate) shared: Arc<RulesInForce>,
}

impl LiveRules {
    pub(crate) fn new(rules: RulesInForce) -> Self {
        let shared = Arc::new(rules);
        Self { shared }
    }

    /// Begins to follow a source, for as long as a clone is there.
    pub(crate) fn start(&self, runtime: &Handle, source: impl Source) {
        if let Some(fleet) = source.fleet() {
            // A source says it once, and there is one source.
            let _ = self.shared.fleet.set(fleet);
        }
        let task = runtime.spawn(follow(Arc::downgrade(&self.shared), source));
        let _ = self.shared.following.set(task);
    }

    /// A layer with these rules, which follows them. Make one for the whole router; the document selects the routes.
    ///
    /// Several layers of one document are on one store. A clone of a layer shares its rules, and can be configured apart.
    ///
    /// # Errors
    ///
    /// As [`RateLimitLayer::new`].
    pub fn layer(&self, store: impl Store) -> Result<RateLimitLayer, RuleError> {
        let mut state = self.shared.lock();
        let rules = state.document.rules_at(state.computed);
        let layer = RateLimitLayer::switchable(store, rules)?;
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

    /// A limiter with these rules, for workers without requests. It follows the document: names, limits and switches come from there.
    /// The caller chooses the keys, and overrides and rollouts do not apply.
    ///
    /// Where a layer of these rules is on the same store, take the [limiter of its handle](tollgate::RulesHandle::limiter)
    /// instead: two bindings of a name cannot change one after the other.
    ///
    /// ```
    /// use tollgate::{Key, MemoryStore};
    /// use tollgate_rules::{Bindings, Format, LiveRules};
    ///
    /// let mails = |limit: &str| format!("version = 1\n[[rules]]\nname = 'mails'\nlimit = '{limit}'\nby = 'constant'\n");
    /// let rules = LiveRules::from_text(&mails("1/min"), Format::Toml, Bindings::new())?;
    /// let limiter = rules.limiter(MemoryStore::new())?;
    /// assert!(limiter.try_acquire("mails", &Key::of("account-7"))?.is_allowed());
    /// assert!(!limiter.try_acquire("mails", &Key::of("account-7"))?.is_allowed());
    /// rules.set_text(&mails("3/min"), Format::Toml)?;
    /// assert!(limiter.try_acquire("mails", &Key::of("account-7"))?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`LiveLimiter::new`].
    pub fn limiter(&self, store: impl Store) -> Result<LiveLimiter, RuleError> {
        let mut state = self.shared.lock();
        let rules = state.document.limiter_rules_at(state.computed);
        let limiter = LiveLimiter::new(store, rules)?;
        state.followers.add_limiter(&limiter);
        Ok(limiter)
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
            let shed = self.shared.lock().document.entries.shed.clone();
            // Without the lock: it is code of the service.
            let layer = set(ShedEntry::layer(shed.as_ref()));
            let mut state = self.shared.lock();
            if ShedEntry::are_same(shed.as_ref(), state.document.entries.shed.as_ref()) {
                state.followers.add_shed(layer.clone(), Box::new(set));
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
        self.shared.apply(Ok(text), Giver::Process)
    }

    /// Reads the file or folder now, without waiting for an event, and says what changed in the first layer. Nothing does for
    /// rules of another source. It ends a text of [`set_text`](Self::set_text) also where the file is the same.
    ///
    /// # Errors
    ///
    /// All that is wrong with the documents. The rules stay as they are.
    pub fn reload(&self) -> Result<Vec<RuleChange>, DocumentError> {
        match &self.shared.read {
            Some(read) => self.shared.apply(read(), Giver::Reload),
            None => Ok(Vec::new()),
        }
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
    let Some(mut changed) = shared.upgrade().map(|shared| shared.subscribe()) else {
        return;
    };
    loop {
        let Some(status) = shared.upgrade().map(|shared| shared.status()) else {
            return;
        };
        source.on_status(&status);
        let found = {
            let mut next = pin!(source.next());
            loop {
                // A change from here on may bring an earlier end.
                changed.mark_unchanged();
                let expiring = shared.clone();
                let expire = move || expiring.upgrade().map(|shared| shared.expire());
                let expires = match spawn_blocking(expire).await {
                    Ok(Some(expires)) => expires,
                    Err(wrong) if wrong.is_panic() => {
                        tracing::error!(
                            target: "tollgate",
                            "what has expired stays in force for now: it panicked while it was ended"
                        );
                        Some(LONGEST)
                    }
                    // The rules are gone, or the runtime ends.
                    _ => return,
                };
                let wait = expires.map(|expires| expires.min(LONGEST));
                if let Some(found) = given(next.as_mut(), &mut changed, wait).await {
                    break found;
                }
            }
        };
        let failed = found.is_err();
        let applying = shared.clone();
        let apply = move || applying.upgrade().map(|shared| shared.take(found));
        let panicked = match spawn_blocking(apply).await {
            Ok(Some(())) => false,
            Err(wrong) if wrong.is_panic() => {
                let Some(shared) = shared.upgrade() else {
                    return;
                };
                shared.take(Err(panicked().into()));
                true
            }
            // The rules are gone, or the runtime ends.
            _ => return,
        };
        if failed || panicked {
            sleep(PAUSE).await;
        }
    }
}

/// What a source gives next. `None`: the rules have changed in the meantime, or the time is over.
async fn given<T>(
    mut next: Pin<&mut impl Future<Output = T>>,
    changed: &mut watch::Receiver<u64>,
    wait: Option<Duration>,
) -> Option<T> {
    let mut changed = pin!(changed.changed());
    let first = poll_fn(|context| match next.as_mut().poll(context) {
        Poll::Ready(found) => Poll::Ready(Some(found)),
        Poll::Pending => changed.as_mut().poll(context).map(|_| None),
    });
    match wait {
        Some(wait) => timeout(wait, first).await.unwrap_or(None),
        None => first.await,
    }
}

/// What is wrong with a document where code of the service panicked. The message of the panic may quote the document, and with it
/// the key of a client.
fn panicked() -> DocumentError {
    DocumentError::of_whole(
        "the rules",
        "code of this service panicked while they were put in force: a key or a condition that is bound, or a store; the message \
         of the panic says where",
    )
}

/// What a source says, as an error at the start.
pub(crate) fn document_error(wrong: SourceError) -> DocumentError {
    match wrong.downcast::<DocumentError>() {
        Ok(wrong) => *wrong,
        Err(wrong) => DocumentError::of_whole("the source of the rules", wrong.to_string()),
    }
}

tollgate_core::debug_fields!(LiveRules, it => status: it.status());
