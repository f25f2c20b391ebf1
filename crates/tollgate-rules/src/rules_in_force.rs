//! The rules in force, and what follows them.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use tokio::sync::watch;
use tollgate::{
    LiveLimiter, MessageLimitLayer, RateLimitLayer, RequestRule, RuleError, Store,
    rules::RuleChange, shed::ShedLayer,
};
use tollgate_core::Tick;

use crate::{
    audit::{AuditKind, AuditRecord, AuditSinks},
    author::Author,
    bindings::Bindings,
    clock::{self, now},
    denial_audit::DenialAudit,
    document_changes::document_changes,
    document_error::DocumentError,
    document_lists::ListFiles,
    fleet::Fleet,
    followers::{Followers, SetShed},
    metrics,
    operator_entries::OperatorEntries,
    operator_entry::OperatorEntry,
    rule_document::{ReadText, RuleDocument},
    rule_text::RuleText,
    rules_status::{RulesStatus, number_of},
    shed_entry::ShedEntry,
};

/// How long after the store refused it, the end of an override or a switch is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// The document in force, and the layers and limiters that follow it.
pub(crate) struct RulesInForce {
    bindings: Bindings,
    sinks: AuditSinks,
    /// What the source knows of other processes.
    fleet: OnceLock<Fleet>,
    state: Mutex<State>,
    /// How often the status has changed.
    changed: watch::Sender<u64>,
}

struct State {
    /// As the source gave it.
    text: RuleText,
    /// Overrides and switches that were set in this process.
    local: OperatorEntries,
    /// The number of the last of them.
    last_local: u64,
    /// Both together.
    document: RuleDocument,
    /// The hash of the contents in force, and that of those that were rejected last.
    hash: u64,
    rejected_hash: Option<u64>,
    /// The hash of the source's contents that were in force last: this process may have replaced them since.
    hash_of_source: Option<u64>,
    followers: Followers,
    /// How long the last change took, from the document that was read to the rules in force.
    took: Duration,
    /// The number that the source gave the document in force.
    of_source: Option<u64>,
    revision: u64,
    since: Tick,
    /// When the rules in force were computed: entries that expire later are in force.
    computed: Tick,
    /// The store has refused the rules without those that have expired since.
    is_end_refused: bool,
    rejected: u64,
    last_rejection: Option<String>,
    source_error: Option<String>,
    /// What Redis has lost of what operators had set.
    lost: Vec<String>,
}

/// Whose text it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Giver {
    /// The source gave it. It may be the same as before.
    Source,
    /// The service asks for the source's document, whatever is in force.
    Reload,
    /// The service has it from elsewhere.
    Process,
}

/// What a change did: the result, and what the audit says of it.
type Changed = (Result<Vec<RuleChange>, DocumentError>, Option<AuditRecord>);

impl RulesInForce {
    /// # Errors
    ///
    /// All that is wrong with the text.
    pub(crate) fn new(
        mut bindings: Bindings,
        sinks: AuditSinks,
        text: RuleText,
    ) -> Result<Self, DocumentError> {
        bindings.denials = Arc::new(DenialAudit::new(sinks.clone()));
        bindings.list_files = ListFiles::of_service();
        let document = text.parse(&bindings)?;
        let now = now();
        let revision = text.revision().unwrap_or(1);
        let rules = Self {
            bindings,
            sinks,
            fleet: OnceLock::new(),
            state: Mutex::new(State {
                local: OperatorEntries::default(),
                last_local: 0,
                document,
                hash: text.hash(),
                rejected_hash: None,
                hash_of_source: Some(text.hash()),
                followers: Followers::default(),
                took: Duration::ZERO,
                of_source: text.revision(),
                revision,
                since: now,
                computed: now,
                is_end_refused: false,
                rejected: 0,
                last_rejection: None,
                source_error: None,
                lost: Vec::new(),
                text,
            }),
            changed: watch::Sender::new(0),
        };
        let state = rules.lock();
        let count = number_of(state.document.names().count(), "rule");
        let lines = vec![format!("{count} to begin with")];
        let began = AuditRecord {
            after: revision,
            ..AuditRecord::new(AuditKind::Accepted, state.text.author(), lines)
        };
        drop(state);
        rules.sinks.record(&began);
        metrics::in_force(revision, now);
        metrics::rejected(false);
        metrics::source_failing(false);
        Ok(rules)
    }

    /// As [`new`](Self::new), until the source has a document: its first one takes the place of this text.
    pub(crate) fn fallback(
        bindings: Bindings,
        sinks: AuditSinks,
        text: RuleText,
    ) -> Result<Self, DocumentError> {
        let rules = Self::new(bindings, sinks, text)?;
        let mut state = rules.lock();
        (state.revision, state.of_source, state.hash_of_source) = (0, None, None);
        metrics::in_force(0, state.since);
        drop(state);
        Ok(rules)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // What is behind it is whole at each step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_fleet(&self, fleet: Fleet) {
        // A source says it once.
        let _ = self.fleet.set(fleet);
    }

    pub(crate) fn layer(&self, store: impl Store) -> Result<RateLimitLayer, RuleError> {
        let mut state = self.lock();
        let layer = RateLimitLayer::switchable(store, state.make())?;
        state.followers.add_layer(layer.handle());
        Ok(layer)
    }

    pub(crate) fn message_layer(&self, store: impl Store) -> Result<MessageLimitLayer, RuleError> {
        let mut state = self.lock();
        let layer = MessageLimitLayer::new(store, state.make())?;
        state.followers.add_layer(layer.handle());
        Ok(layer)
    }

    pub(crate) fn limiter(&self, store: impl Store) -> Result<LiveLimiter, RuleError> {
        let mut state = self.lock();
        let rules = state.document.limiter_rules_at(state.computed);
        let limiter = LiveLimiter::new(store, rules)?;
        state.followers.add_limiter(&limiter);
        Ok(limiter)
    }

    pub(crate) fn shed_layer(&self, set: Box<SetShed>) -> ShedLayer {
        loop {
            let shed = self.lock().document.entries.shed.clone();
            // Without the lock: it is code of the service.
            let layer = set(ShedEntry::layer(shed.as_ref()));
            let mut state = self.lock();
            if ShedEntry::are_same(shed.as_ref(), state.document.entries.shed.as_ref()) {
                state.followers.add_shed(layer.clone(), set);
                return layer;
            }
        }
    }

    pub(crate) fn document(&self) -> RuleDocument {
        self.lock().document.clone()
    }

    pub(crate) fn status(&self) -> RulesStatus {
        let state = self.lock();
        RulesStatus {
            revision: state.revision,
            hash: state.hash,
            rules: state.document.names().count(),
            in_force_for: Duration::from_micros(now().saturating_sub(state.since)),
            took: state.took,
            rejected: state.rejected,
            last_rejection: state.last_rejection.clone(),
            source_error: state.source_error.clone(),
            lost: state.lost.clone(),
            wrong_lists: {
                let lists = state.document.entries.lists.iter();
                lists.filter_map(|file| file.problem()).collect()
            },
            fleet: self.fleet.get().map(Fleet::status),
        }
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Puts a text in force, unless it is already.
    pub(crate) fn apply(
        &self,
        text: Result<RuleText, DocumentError>,
        author: Author,
        giver: Giver,
    ) -> Result<Vec<RuleChange>, DocumentError> {
        self.change(|state| state.apply(&self.bindings, text, author, giver))
    }

    /// Sets an override or a switch of this process, in addition to the source's document.
    pub(crate) fn set_local(
        &self,
        author: Author,
        entry: OperatorEntry,
    ) -> Result<Vec<RuleChange>, DocumentError> {
        self.change(|state| {
            let id = state.last_local + 1;
            let mut entry = entry.set(id, &author, now());
            entry.is_local = true;
            state.edit_local(&self.bindings, author, |state, local| {
                let entry = Arc::new(entry);
                state.document.entries.read_new(&entry, entry.at)?;
                state.last_local = id;
                local.set(entry)
            })
        })
    }

    /// Ends overrides and switches of this process: these, or all.
    pub(crate) fn end_local(
        &self,
        author: Author,
        ids: Option<&[u64]>,
    ) -> Result<Vec<RuleChange>, DocumentError> {
        self.change(|state| {
            let edit = |_: &mut State, local: &mut OperatorEntries| match ids {
                Some(ids) => local.end(ids),
                None => {
                    local.all.clear();
                    Ok(())
                }
            };
            state.edit_local(&self.bindings, author, edit)
        })
    }

    /// Notes that the source has no document at present.
    pub(crate) fn source_failed(&self, error: &str) {
        let mut state = self.lock();
        let is_known = state.source_error.replace(error.to_owned()).as_deref() == Some(error);
        let revision = state.revision;
        metrics::source_failing(true);
        drop(state);
        if !is_known {
            tracing::error!(
                target: "tollgate",
                revision,
                "the source has no rules at present, and the last ones stay in force: {error}"
            );
            self.changed.send_modify(|n| *n += 1);
        }
    }

    fn change(
        &self,
        change: impl FnOnce(&mut State) -> Changed,
    ) -> Result<Vec<RuleChange>, DocumentError> {
        // Held all along, so that two changes follow each other. Sinks may ask for the status.
        let mut state = self.lock();
        let (result, record) = change(&mut state);
        // The gauges too are of the change that comes last.
        metrics::in_force(state.revision, state.since);
        metrics::rejected(state.last_rejection.is_some());
        metrics::source_failing(state.source_error.is_some());
        drop(state);
        if let Some(record) = record {
            if record.kind == AuditKind::Rejected {
                metrics::count_rejected();
            }
            self.sinks.record(&record);
        }
        self.changed.send_modify(|n| *n += 1);
        result
    }

    /// Ends overrides and switches whose time is over. Returns how long until the next one is.
    pub(crate) fn expire(&self) -> Option<Duration> {
        let mut state = self.lock();
        let now = now();
        let due = state.document.expires_after(state.computed)?;
        let mut record = None;
        if due <= now {
            let document = state.document.clone();
            let changes = match state.replace(&document, now) {
                Ok(changes) => changes,
                Err(wrong) => {
                    if !std::mem::replace(&mut state.is_end_refused, true) {
                        tracing::error!(
                            target: "tollgate",
                            "what has expired stays in force until the store takes the rules without it: {wrong}"
                        );
                    }
                    return Some(AGAIN);
                }
            };
            let lines = changes.iter().map(ToString::to_string).collect();
            let author = Author::new("its time is over");
            record = Some(state.record(AuditKind::Expired, author, state.revision, lines));
        }
        let next = state.document.expires_after(now);
        drop(state);
        if let Some(record) = record {
            self.sinks.record(&record);
        }
        next.map(|next| Duration::from_micros(next - now))
    }
}

impl State {
    fn apply(
        &mut self,
        bindings: &Bindings,
        text: Result<RuleText, DocumentError>,
        author: Author,
        giver: Giver,
    ) -> Changed {
        let hash = text.as_ref().ok().map(RuleText::hash);
        let of_source = text.as_ref().ok().and_then(RuleText::revision);
        // There is a document again, right or wrong.
        self.source_error = None;
        if hash == Some(self.hash) && of_source >= self.of_source {
            // It was put right again, or pushed again.
            self.last_rejection = None;
            self.rejected_hash = None;
            self.number(of_source);
            if giver != Giver::Process {
                self.hash_of_source = hash;
            }
            return (Ok(Vec::new()), None);
        }
        let is_as_before = hash.is_some() && hash == self.hash_of_source;
        if giver == Giver::Source && is_as_before && of_source == self.of_source {
            // It is no other document, and a text of this process has replaced it.
            self.last_rejection = None;
            self.rejected_hash = None;
            return (Ok(Vec::new()), None);
        }
        let before = self.revision;
        let now = now();
        let applied = text.and_then(|text| {
            self.refuse_older(of_source)?;
            // The trees live until the rules are in force. What is freed before, the allocator sorts in the midst of the swap.
            let (mut document, _trees) = together(bindings, &text, &self.local)?;
            // What was set here for a rule that is gone has ended.
            let mut local = self.local.clone();
            for (gone, _) in document.entries.unfit.extract_if(.., |(it, _)| it.is_local) {
                local.all.retain(|entry| entry.id != gone.id);
            }
            let (changes, lines) = self.put_in_force(document, now)?;
            self.local = local;
            Ok((text, changes, lines))
        });
        match applied {
            Ok((text, changes, lines)) => {
                self.hash = text.hash();
                if giver != Giver::Process {
                    self.hash_of_source = hash;
                }
                match text.lost_of(&self.text, now) {
                    Some(lines) => self.lost.extend(lines),
                    None => self.lost.clear(),
                }
                self.text = text;
                self.rejected_hash = None;
                self.last_rejection = None;
                self.revision += 1;
                self.number(of_source);
                self.since = now;
                let record = self.record(AuditKind::Accepted, author, before, lines);
                (Ok(changes), Some(record))
            }
            Err(wrong) => {
                let message = wrong.to_string();
                let is_known = self.last_rejection.as_ref() == Some(&message);
                let mut record = None;
                if !is_known || hash != self.rejected_hash {
                    self.rejected += 1;
                    let lines = vec![message.clone()];
                    record = Some(self.record(AuditKind::Rejected, author, before, lines));
                }
                self.rejected_hash = hash;
                self.last_rejection = Some(message);
                (Err(wrong), record)
            }
        }
    }

    fn edit_local(
        &mut self,
        bindings: &Bindings,
        author: Author,
        edit: impl FnOnce(&mut Self, &mut OperatorEntries) -> Result<(), String>,
    ) -> Changed {
        let mut local = self.local.clone();
        local.drop_expired(now());
        let applied = edit(self, &mut local)
            .map_err(|wrong| DocumentError::of_whole("what was set in this process", wrong))
            .and_then(|()| together(bindings, &self.text, &local))
            .and_then(|(document, _trees)| self.put_in_force(document, now()));
        let (result, kind, lines) = match applied {
            Ok((changes, lines)) => {
                self.local = local;
                (Ok(changes), AuditKind::Accepted, lines)
            }
            Err(wrong) => {
                let lines = vec![wrong.to_string()];
                (Err(wrong), AuditKind::Rejected, lines)
            }
        };
        let record = self.record(kind, author, self.revision, lines);
        (result, Some(record))
    }

    /// What changed in the first layer, and in the document.
    fn put_in_force(
        &mut self,
        document: RuleDocument,
        now: Tick,
    ) -> Result<(Vec<RuleChange>, Vec<String>), DocumentError> {
        let changes = self.replace(&document, now)?;
        let lines = document_changes(&self.document.entries, &document.entries);
        self.document = document;
        Ok((changes, lines))
    }

    fn record(
        &self,
        kind: AuditKind,
        author: Author,
        before: u64,
        lines: Vec<String>,
    ) -> AuditRecord {
        AuditRecord {
            before,
            after: self.revision,
            ..AuditRecord::new(kind, author, lines)
        }
    }

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
                 to put it in force, push it again, or give it a number above {in_force}"
            )
        };
        Err(DocumentError::of_whole("the rules", message))
    }

    /// The rules in force, for a layer.
    fn make(&mut self) -> Vec<RequestRule> {
        self.document.rules_at(self.computed)
    }

    /// Replaces the rules of all layers in one step, then those of the limiters.
    fn replace(
        &mut self,
        document: &RuleDocument,
        now: Tick,
    ) -> Result<Vec<RuleChange>, DocumentError> {
        let begun = clock::now();
        self.followers.forget_gone();
        let before = (&self.document, self.computed);
        let changes = self
            .followers
            .replace(before, (document, now))
            .map_err(|wrong| DocumentError::of_whole("the rules", wrong.to_string()))?;
        self.took = Duration::from_micros(clock::now().saturating_sub(begun));
        self.computed = now;
        self.is_end_refused = false;
        Ok(changes)
    }
}

/// A text with the overrides and switches of this process, as far as they go with it.
fn together(
    bindings: &Bindings,
    text: &RuleText,
    local: &OperatorEntries,
) -> Result<ReadText, DocumentError> {
    let (document, trees) = text.read(bindings)?;
    let entries = document.entries.beside(local);
    Ok((RuleDocument { entries }, trees))
}

impl fmt::Debug for RulesInForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RulesInForce")
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tollgate::{Limiter, MemoryStore};

    use super::*;
    use crate::format::Format;

    fn text(limit: &str) -> RuleText {
        let text =
            format!("version = 1\n[[rules]]\nname = 'api'\nlimit = '{limit}'\nby = 'constant'\n");
        RuleText::new(text, Format::Toml)
    }

    fn rules() -> RulesInForce {
        let rules = RulesInForce::new(Bindings::new(), AuditSinks::default(), text("2/h"));
        rules.expect("valid")
    }

    #[test]
    fn layers_and_limiters_that_are_gone_are_forgotten_when_others_are_made() {
        let (rules, store) = (rules(), MemoryStore::new());
        for _ in 0..10 {
            drop(rules.layer(store.clone()).expect("valid"));
            drop(rules.message_layer(store.clone()).expect("valid"));
            drop(rules.limiter(store.clone()).expect("valid"));
        }
        let state = rules.lock();
        let kept = state.followers.len();
        assert_eq!(kept, 1, "the last one is not forgotten yet");
    }

    #[test]
    fn what_has_expired_ends_once_the_store_takes_the_rules_without_it() {
        let switch =
            "version = 1\n[[switches]]\nrules = '*'\nlimit = '50%'\nuntil = 2020-01-01T00:00:00Z\n";
        let text = text("2/h").and(RuleText::new(switch, Format::Toml));
        let rules = RulesInForce::new(Bindings::new(), AuditSinks::default(), text);
        let (rules, store) = (rules.expect("valid"), MemoryStore::new());
        // The rules are from a time when it had not expired.
        rules.lock().computed = 0;
        let layer = rules.layer(store.clone()).expect("valid");
        let limit = || layer.limiter().rules().rules()[0].quota().limit();
        let halved = rules.document().limiter_rules_at(0);
        let other = Limiter::new(store, halved).expect("the same quota");
        assert_eq!((rules.expire(), limit()), (Some(AGAIN), 1));
        drop(other);
        assert_eq!((rules.expire(), limit()), (None, 2));
    }

    #[test]
    fn a_layer_that_goes_while_rules_are_replaced_does_not_hinder_the_others() {
        let (rules, store) = (rules(), MemoryStore::new());
        let gone = rules.layer(store.clone()).expect("valid");
        let layer = rules.layer(store).expect("valid");
        let mut state = rules.lock();
        let document = text("3/h").parse(&rules.bindings).expect("valid");
        // They were looked through already.
        drop(gone);
        let at = (&document, state.computed);
        let changes = state.followers.replace(at, at).expect("one is there");
        assert_eq!((changes.len(), state.followers.len()), (1, 1));
        assert_eq!(layer.limiter().rules().rules()[0].quota().limit(), 3);
    }
}
