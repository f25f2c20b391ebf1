//! The rules in force, and what follows them.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tollgate::{
    LiveLimiter, MessageLimitLayer, RateLimitLayer, RuleChange, RuleError, RulesHandle, Store,
};
use tollgate_core::Tick;

use crate::{
    bindings::Bindings,
    document_error::DocumentError,
    rule_document::{RuleDocument, now},
    rule_text::RuleText,
    rules_status::RulesStatus,
};

/// The most changes of one document that are reported one by one.
const REPORTED: usize = 20;

/// The document in force, and the layers and limiters that follow it.
pub(crate) struct RulesInForce {
    bindings: Bindings,
    state: Mutex<State>,
}

struct State {
    document: RuleDocument,
    /// Of the contents in force, and of those that were rejected last.
    hash: u64,
    rejected_hash: Option<u64>,
    followers: Followers,
    /// The number that the source gave the document in force.
    of_source: Option<u64>,
    revision: u64,
    since: Tick,
    /// When the rules in force were computed: entries that expire later are in force.
    computed: Tick,
    rejected: u64,
    last_rejection: Option<String>,
}

/// What has the rules in force.
#[derive(Default)]
struct Followers {
    layers: Vec<RulesHandle>,
    limiters: Vec<LiveLimiter>,
}

impl RulesInForce {
    /// # Errors
    ///
    /// All that is wrong with the text.
    pub(crate) fn new(bindings: Bindings, text: &RuleText) -> Result<Self, DocumentError> {
        let document = text.parse(&bindings)?;
        let now = now();
        Ok(Self {
            bindings,
            state: Mutex::new(State {
                document,
                hash: text.hash(),
                rejected_hash: None,
                followers: Followers::default(),
                of_source: text.revision(),
                revision: text.revision().unwrap_or(1),
                since: now,
                computed: now,
                rejected: 0,
                last_rejection: None,
            }),
        })
    }

    /// As [`new`](Self::new), until the source has a document: its first one takes the place of this text.
    pub(crate) fn fallback(bindings: Bindings, text: &RuleText) -> Result<Self, DocumentError> {
        let rules = Self::new(bindings, text)?;
        let mut state = rules.lock();
        (state.revision, state.of_source) = (0, None);
        drop(state);
        Ok(rules)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // What is behind it is whole at each step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn layer(&self, store: impl Store) -> Result<RateLimitLayer, RuleError> {
        let mut state = self.lock();
        let layer = RateLimitLayer::switchable(store, state.document.rules_at(state.computed))?;
        state.followers.layers.push(layer.handle());
        Ok(layer)
    }

    pub(crate) fn message_layer(&self, store: impl Store) -> Result<MessageLimitLayer, RuleError> {
        let mut state = self.lock();
        let layer = MessageLimitLayer::new(store, state.document.rules_at(state.computed))?;
        state.followers.layers.push(layer.handle());
        Ok(layer)
    }

    pub(crate) fn limiter(&self, store: impl Store) -> Result<LiveLimiter, RuleError> {
        let mut state = self.lock();
        let rules = state.document.limiter_rules_at(state.computed);
        let limiter = LiveLimiter::new(store, rules)?;
        state.followers.limiters.push(limiter.clone());
        Ok(limiter)
    }

    pub(crate) fn document(&self) -> RuleDocument {
        self.lock().document.clone()
    }

    pub(crate) fn status(&self) -> RulesStatus {
        let state = self.lock();
        RulesStatus {
            revision: state.revision,
            rules: state.document.names().count(),
            in_force_for: Duration::from_micros(now().saturating_sub(state.since)),
            rejected: state.rejected,
            last_rejection: state.last_rejection.clone(),
        }
    }

    /// Puts a text in force, unless it is already.
    pub(crate) fn apply(
        &self,
        text: Result<RuleText, DocumentError>,
    ) -> Result<Vec<RuleChange>, DocumentError> {
        // Held all along, so that two changes follow each other.
        let mut state = self.lock();
        let hash = text.as_ref().ok().map(RuleText::hash);
        let of_source = text.as_ref().ok().and_then(RuleText::revision);
        if hash == Some(state.hash) && of_source >= state.of_source {
            // It was put right again, or pushed again.
            state.last_rejection = None;
            state.rejected_hash = None;
            state.number(of_source);
            return Ok(Vec::new());
        }
        let parsed = text.and_then(|text| {
            state.refuse_older(text.revision())?;
            text.parse(&self.bindings)
        });
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
                state.number(of_source);
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
    pub(crate) fn expire(&self) -> Option<Duration> {
        let mut state = self.lock();
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
    /// Takes over the number that the source gave the document in force.
    fn number(&mut self, of_source: Option<u64>) {
        if let Some(revision) = of_source {
            self.revision = revision;
            self.of_source = of_source;
        }
    }

    /// Another document than the one in force has a higher number.
    fn refuse_older(&self, revision: Option<u64>) -> Result<(), DocumentError> {
        let (Some(revision), Some(in_force)) = (revision, self.of_source) else {
            return Ok(());
        };
        if revision > in_force {
            return Ok(());
        }
        let message = if revision == in_force {
            format!(
                "two different documents claim revision {revision}; give each change a higher number"
            )
        } else {
            format!(
                "revision {revision} is older than revision {in_force}, which is in force; \
                 to go back, give the older rules a number above {in_force}"
            )
        };
        Err(DocumentError::of_whole("the rules", message))
    }

    /// Replaces the rules of all layers in one step, then those of the limiters.
    fn replace(
        &mut self,
        document: &RuleDocument,
        now: Tick,
    ) -> Result<Vec<RuleChange>, DocumentError> {
        let changes = self
            .followers
            .replace((&self.document, self.computed), (document, now))
            .map_err(|wrong| DocumentError::of_whole("the rules", wrong.to_string()))?;
        self.computed = now;
        Ok(changes)
    }
}

/// A document, and the time that its rules are for.
type At<'a> = (&'a RuleDocument, Tick);

impl Followers {
    /// All or none. Says what changed in the first layer, or else in the first limiter.
    fn replace(&mut self, before: At<'_>, after: At<'_>) -> Result<Vec<RuleChange>, RuleError> {
        self.layers.retain(|handle| handle.limiter().is_some());
        let of_layers = self.replace_layers(after)?;
        let rules = |(document, at): At<'_>| document.limiter_rules_at(at);
        let mut of_limiters = Vec::new();
        for (index, limiter) in self.limiters.iter().enumerate() {
            match limiter.replace(rules(after)) {
                Ok(changes) => of_limiters.push(changes),
                Err(wrong) => {
                    // These rules were in force until now, and their names are free.
                    for limiter in &self.limiters[..index] {
                        let _ = limiter.replace(rules(before));
                    }
                    let _ = self.replace_layers(before);
                    return Err(wrong);
                }
            }
        }
        let changes = of_layers.into_iter().chain(of_limiters).next();
        Ok(changes.unwrap_or_default())
    }

    fn replace_layers(&self, (document, at): At<'_>) -> Result<Vec<Vec<RuleChange>>, RuleError> {
        if self.layers.is_empty() {
            return Ok(Vec::new());
        }
        let rules = document.rules_at(at);
        RulesHandle::replace_all(self.layers.iter().map(|handle| (handle, rules.clone())))
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

impl fmt::Debug for RulesInForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RulesInForce")
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}
