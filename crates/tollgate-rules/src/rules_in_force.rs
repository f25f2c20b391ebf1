//! The rules in force, and what follows them.

use std::{
    cmp::Ordering,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::{sync::watch, task::JoinSet};
use tollgate::{RequestRule, RuleError, RulesHandle, shed::ShedLayer};
use tollgate_core::{
    Tick,
    sync::{Mutex, MutexGuard, lock},
    types::RuleChange,
    wall_clock,
};

use crate::{
    audit::{AuditKind, AuditRecord, AuditSinks, Author},
    bindings::Bindings,
    document_changes::document_changes,
    document_error::DocumentError,
    list_file::ListFiles,
    operator_entries::{OperatorEntries, OperatorEntry},
    rule_document::RuleDocument,
    rule_text::RuleText,
    rules_status::{FleetStatus, RulesStatus, count_rejected, show_metrics},
    source::SourceError,
};

/// How long after the store refused it, the end of an override or a switch is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// The document in force, and the layers that follow it.
pub(crate) struct RulesInForce {
    bindings: Bindings,
    sinks: AuditSinks,
    /// What the source knows of other processes.
    pub(crate) fleet: OnceLock<watch::Receiver<FleetStatus>>,
    state: Mutex<State>,
    /// How often the status has changed.
    pub(crate) changed: watch::Sender<u64>,
    /// What follows the source, and ends what has a time, until these rules are gone.
    pub(crate) tasks: Mutex<JoinSet<()>>,
}

pub(crate) struct State {
    /// As the source gave it.
    text: RuleText,
    /// Overrides and switches that were set in this process.
    local: OperatorEntries,
    /// The number of the last of them.
    last_local: u64,
    /// Both together.
    pub(crate) document: RuleDocument,
    /// The hash of the text's contents.
    hash: u64,
    /// The hash of the contents that were rejected last, if they could be read.
    rejected_hash: Option<u64>,
    /// The hash of the source's contents that were in force last: this process may have replaced them since.
    hash_of_source: Option<u64>,
    pub(crate) followers: Followers,
    since: Tick,
    /// When the rules in force were computed: entries that expire later are in force.
    pub(crate) computed: Tick,
    /// The store has refused the rules without those that have expired since.
    is_end_refused: bool,
    /// Without what is looked up when it is asked for.
    status: RulesStatus,
}

/// What a change did: the result, and what the audit says of it.
type Changed = (Result<Vec<RuleChange>, DocumentError>, Option<AuditRecord>);

impl RulesInForce {
    /// `is_fallback`: the first document of the source takes the place of this text.
    ///
    /// # Errors
    ///
    /// All that is wrong with the text.
    pub(crate) fn new(
        mut bindings: Bindings,
        sinks: AuditSinks,
        text: RuleText,
        is_fallback: bool,
    ) -> Result<Arc<Self>, DocumentError> {
        bindings.list_files = ListFiles::of_service();
        let document = text.parse(&bindings)?;
        let now = wall_clock();
        let status = RulesStatus {
            revision: match is_fallback {
                true => 0,
                false => text.revision().unwrap_or(1),
            },
            of_source: text.revision().filter(|_| !is_fallback),
            ..RulesStatus::default()
        };
        let lines = vec![match document.rules.len() {
            1 => "1 rule to begin with".to_owned(),
            rules => format!("{rules} rules to begin with"),
        }];
        sinks.record(&AuditRecord {
            after: status.revision,
            ..AuditRecord::new(AuditKind::Accepted, text.author(), lines)
        });
        show_metrics(&status, now);
        let hash = text.hash();
        Ok(Arc::new(Self {
            bindings,
            sinks,
            fleet: OnceLock::new(),
            state: Mutex::new(State {
                local: OperatorEntries::default(),
                last_local: 0,
                document,
                hash,
                rejected_hash: None,
                hash_of_source: (!is_fallback).then_some(hash),
                followers: Followers::default(),
                since: now,
                computed: now,
                is_end_refused: false,
                status,
                text,
            }),
            changed: watch::Sender::new(0),
            tasks: Mutex::default(),
        }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // What is behind it is whole at each step.
        lock(&self.state)
    }

    pub(crate) fn status(&self) -> RulesStatus {
        let state = self.lock();
        let lists = state.document.lists.iter();
        RulesStatus {
            rules: state.document.rules.len(),
            in_force_for: Duration::from_micros(wall_clock().saturating_sub(state.since)),
            wrong_lists: lists.filter_map(|file| file.problem()).collect(),
            fleet: self.fleet.get().map(|fleet| fleet.borrow().clone()),
            ..state.status.clone()
        }
    }

    /// Puts a text in force that the service has from elsewhere than the source, unless it is already.
    pub(crate) fn apply(&self, text: RuleText) -> Result<Vec<RuleChange>, DocumentError> {
        self.change(|state| state.apply(&self.bindings, text, false))
    }

    /// Takes what a source gave. What is wrong with it is reported.
    pub(crate) fn take(&self, found: Result<RuleText, SourceError>) {
        let _ = match found {
            Ok(text) => self.change(|state| state.apply(&self.bindings, text, true)),
            Err(wrong) => match wrong.downcast::<DocumentError>() {
                Ok(wrong) => {
                    let author = Author::new("the source of the rules");
                    self.change(|state| state.reject(author, None, *wrong))
                }
                Err(failure) => return self.source_failed(&failure.to_string()),
            },
        };
    }

    /// Sets an override or a switch of this process, in addition to the source's document.
    pub(crate) fn set_local(
        &self,
        author: Author,
        entry: OperatorEntry,
    ) -> Result<Vec<RuleChange>, DocumentError> {
        let by = author.clone();
        self.edit_local(author, |state, local| {
            let id = state.last_local + 1;
            let mut entry = entry.set(id, &by, wall_clock());
            entry.is_local = true;
            state.document.read_new(&entry, entry.at)?;
            state.last_local = id;
            local.set(entry)
        })
    }

    /// Changes what was set in this process.
    pub(crate) fn edit_local(
        &self,
        author: Author,
        edit: impl FnOnce(&mut State, &mut OperatorEntries) -> Result<(), String>,
    ) -> Result<Vec<RuleChange>, DocumentError> {
        self.change(|state| {
            let mut local = state.local.clone();
            local.drop_expired(wall_clock());
            let applied = edit(state, &mut local)
                .map_err(|wrong| DocumentError::of_whole("what was set in this process", wrong))
                .and_then(|()| state.put_in_force(&self.bindings, None, local, wall_clock()));
            let (kind, lines, result) = match applied {
                Ok((changes, lines)) => (AuditKind::Accepted, lines, Ok(changes)),
                Err(wrong) => (AuditKind::Rejected, vec![wrong.to_string()], Err(wrong)),
            };
            let mut record = state.record(kind, author, state.status.revision, lines);
            record.is_slip = result.is_err();
            (result, Some(record))
        })
    }

    /// Notes that the source has no document at present.
    fn source_failed(&self, error: &str) {
        let mut state = self.lock();
        let before = state.status.source_error.replace(error.to_owned());
        let revision = state.status.revision;
        show_metrics(&state.status, state.since);
        drop(state);
        if before.as_deref() != Some(error) {
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
        show_metrics(&state.status, state.since);
        drop(state);
        if let Some(record) = record {
            if record.kind == AuditKind::Rejected && !record.is_slip {
                count_rejected();
            }
            self.sinks.record(&record);
        }
        self.changed.send_modify(|n| *n += 1);
        result
    }

    /// Ends overrides and switches whose time is over. Returns how long until the next one is.
    pub(crate) fn expire(&self) -> Option<Duration> {
        let mut state = self.lock();
        let now = wall_clock();
        let due = state.document.expires_after(state.computed)?;
        let mut record = None;
        if due <= now {
            let document = state.document.clone();
            match state.replace(&document, now) {
                Ok(changes) => {
                    let lines = changes.iter().map(ToString::to_string).collect();
                    let (author, before) = (Author::new("its time is over"), state.status.revision);
                    record = Some(state.record(AuditKind::Expired, author, before, lines));
                }
                Err(wrong) => {
                    if !std::mem::replace(&mut state.is_end_refused, true) {
                        tracing::error!(
                            target: "tollgate",
                            "what has expired stays in force until the store takes the rules without it: {wrong}"
                        );
                    }
                    return Some(AGAIN);
                }
            }
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
    /// `is_given`: the source gave the text. It may be the same as before.
    fn apply(&mut self, bindings: &Bindings, text: RuleText, is_given: bool) -> Changed {
        // There is a document again, right or wrong.
        self.status.source_error = None;
        let (author, hash, of_source) = (text.author(), text.hash(), text.revision());
        // It was put right again, or pushed again.
        let is_in_force = hash == self.hash && of_source >= self.status.of_source;
        // It is no other document than the source's last, and a text of this process has replaced that.
        let is_replaced = !is_in_force
            && is_given
            && Some(hash) == self.hash_of_source
            && of_source == self.status.of_source;
        let before = self.status.revision;
        let mut changed = (Ok(Vec::new()), None);
        if !is_in_force && !is_replaced {
            let now = wall_clock();
            let lost = text.beside.lost_of(&self.text.beside, now);
            let local = self.local.clone();
            let done = self
                .refuse_older(of_source)
                .and_then(|()| self.put_in_force(bindings, Some(text), local, now));
            let (changes, lines) = match done {
                Ok(done) => done,
                Err(wrong) => return self.reject(author, Some(hash), wrong),
            };
            match lost {
                Some(lines) => self.status.lost.extend(lines),
                None => self.status.lost.clear(),
            }
            self.hash = hash;
            self.status.revision = of_source.unwrap_or(before + 1);
            self.since = now;
            let record = self.record(AuditKind::Accepted, author, before, lines);
            changed = (Ok(changes), Some(record));
        }
        self.status.last_rejection = None;
        self.rejected_hash = None;
        if !is_replaced {
            self.status.revision = of_source.unwrap_or(self.status.revision);
            self.status.of_source = of_source.or(self.status.of_source);
            if is_given {
                self.hash_of_source = Some(hash);
            }
        }
        changed
    }

    /// Puts a text in force with what was set in this process; `None`: the text that is in force. Returns what changed in the first
    /// layer, and in the document.
    fn put_in_force(
        &mut self,
        bindings: &Bindings,
        text: Option<RuleText>,
        mut local: OperatorEntries,
        now: Tick,
    ) -> Result<(Vec<RuleChange>, Vec<String>), DocumentError> {
        // The trees live until the rules are in force. What is freed before, the allocator sorts in the midst of the swap.
        let (document, _trees) = text.as_ref().unwrap_or(&self.text).read(bindings)?;
        let mut document = document.beside(&local);
        // What was set here for a rule that is gone has ended.
        for (gone, _) in document.unfit.extract_if(.., |(it, _)| it.is_local) {
            local.all.retain(|entry| entry.id != gone.id);
        }
        let changes = self.replace(&document, now)?;
        let lines = document_changes(&self.document, &document);
        (self.document, self.local) = (document, local);
        if let Some(text) = text {
            self.text = text;
        }
        Ok((changes, lines))
    }

    /// Notes what is wrong with a document, and records it once.
    fn reject(&mut self, author: Author, hash: Option<u64>, wrong: DocumentError) -> Changed {
        self.status.source_error = None;
        let message = wrong.to_string();
        let is_known = self.status.last_rejection.as_ref() == Some(&message);
        let mut record = None;
        if !is_known || hash != self.rejected_hash {
            self.status.rejected += 1;
            let (before, lines) = (self.status.revision, vec![message.clone()]);
            record = Some(self.record(AuditKind::Rejected, author, before, lines));
        }
        self.rejected_hash = hash;
        self.status.last_rejection = Some(message);
        (Err(wrong), record)
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
            after: self.status.revision,
            ..AuditRecord::new(kind, author, lines)
        }
    }

    /// Another document than the one in force has a higher number.
    fn refuse_older(&self, revision: Option<u64>) -> Result<(), DocumentError> {
        let (Some(revision), Some(in_force)) = (revision, self.status.of_source) else {
            return Ok(());
        };
        let message = match revision.cmp(&in_force) {
            Ordering::Greater => return Ok(()),
            Ordering::Equal => format!(
                "two different documents claim revision {revision}; give each change a higher number"
            ),
            Ordering::Less => format!(
                "revision {revision} is older than revision {in_force}, which is in force; \
                 to put it in force, push it again, or give it a number above {in_force}"
            ),
        };
        Err(DocumentError::of_whole("the rules", message))
    }

    /// Replaces the rules of all layers in one step.
    fn replace(
        &mut self,
        document: &RuleDocument,
        now: Tick,
    ) -> Result<Vec<RuleChange>, DocumentError> {
        let begun = wall_clock();
        self.followers.forget_gone();
        let changes = self
            .followers
            .replace(&self.document, document, now)
            .map_err(|wrong| DocumentError::of_whole("the rules", wrong.to_string()))?;
        self.status.took = Duration::from_micros(wall_clock().saturating_sub(begun));
        self.computed = now;
        self.is_end_refused = false;
        Ok(changes)
    }
}

tollgate_core::debug_fields!(RulesInForce, it => status: it.status());

/// What has the rules in force. No layer with rules is kept: the names of what the service has dropped are free.
#[derive(Default)]
pub(crate) struct Followers {
    layers: Vec<RulesHandle>,
    pub(crate) sheds: Vec<(ShedLayer, Box<SetShed>)>,
}

/// What the service sets on a layer that sheds, in addition to what the document says.
type SetShed = dyn Fn(ShedLayer) -> ShedLayer + Send + Sync;

impl Followers {
    pub(crate) fn add_layer(&mut self, layer: RulesHandle) {
        self.forget_gone();
        self.layers.push(layer);
    }

    /// Forgets the layers that are gone.
    fn forget_gone(&mut self) {
        self.layers.retain(|handle| handle.limiter().is_some());
    }

    /// Puts the rules of a document at a time in force in all layers, or in none. Says what changed in the first one.
    fn replace(
        &mut self,
        before: &RuleDocument,
        document: &RuleDocument,
        at: Tick,
    ) -> Result<Vec<RuleChange>, RuleError> {
        // First, since it is code of the service: a panic changes nothing.
        let changed = self.sheds.iter().filter(|_| !document.sheds_as(before));
        let sheds: Vec<ShedLayer> = changed.map(|(_, set)| set(document.shed_layer())).collect();
        let changes = self.replace_layers(&document.rules_at(at))?;
        for ((layer, _), next) in self.sheds.iter().zip(sheds) {
            layer.replace(&next);
        }
        Ok(changes)
    }

    fn replace_layers(&mut self, made: &[RequestRule]) -> Result<Vec<RuleChange>, RuleError> {
        loop {
            let layers = self.layers.len();
            if layers == 0 {
                return Ok(Vec::new());
            }
            let rules = self.layers.iter().map(|handle| (handle, made.to_vec()));
            let replaced = RulesHandle::replace_all(rules);
            if replaced.is_err() {
                self.forget_gone();
            }
            // A layer may go at any time, and the others have the rules without it.
            if replaced.is_ok() || self.layers.len() == layers {
                return Ok(replaced?.into_iter().next().unwrap_or_default());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate::{MemoryStore, RateLimitLayer};

    use super::*;
    use crate::{format::Format, live_rules::LiveRules};

    fn text(limit: &str) -> RuleText {
        let text =
            format!("version = 1\n[[rules]]\nname = 'api'\nlimit = '{limit}'\nby = 'constant'\n");
        RuleText::new(text, Format::Toml)
    }

    fn rules(text: RuleText) -> LiveRules {
        let rules = RulesInForce::new(Bindings::new(), AuditSinks::default(), text, false);
        let shared = rules.expect("valid");
        LiveRules { shared }
    }

    #[test]
    fn layers_that_are_gone_are_forgotten_when_others_are_made() {
        let (rules, store) = (rules(text("2/h")), MemoryStore::new());
        for _ in 0..10 {
            drop(rules.layer(store.clone()).expect("valid"));
            drop(rules.message_layer(store.clone()).expect("valid"));
        }
        let state = rules.shared.lock();
        let kept = state.followers.layers.len();
        assert_eq!(kept, 1, "the last one is not forgotten yet");
    }

    #[test]
    fn what_has_expired_ends_once_the_store_takes_the_rules_without_it() {
        let switch =
            "version = 1\n[[switches]]\nrules = '*'\nlimit = '50%'\nuntil = 2020-01-01T00:00:00Z\n";
        let text = text("2/h").and(RuleText::new(switch, Format::Toml));
        let (rules, store) = (rules(text), MemoryStore::new());
        // The rules are from a time when it had not expired.
        rules.shared.lock().computed = 0;
        let layer = rules.layer(store.clone()).expect("valid");
        let limit = || layer.limiter().rules().rules()[0].quota().limit();
        let halved = rules.document().rules_at(0);
        let other = RateLimitLayer::new(store, halved).expect("the same quota");
        assert_eq!((rules.shared.expire(), limit()), (Some(AGAIN), 1));
        drop(other);
        assert_eq!((rules.shared.expire(), limit()), (None, 2));
    }

    #[test]
    fn a_layer_that_goes_while_rules_are_replaced_does_not_hinder_the_others() {
        let (rules, store) = (rules(text("2/h")), MemoryStore::new());
        let gone = rules.layer(store.clone()).expect("valid");
        let layer = rules.layer(store).expect("valid");
        let mut state = rules.shared.lock();
        let document = text("3/h").parse(&rules.shared.bindings).expect("valid");
        // They were looked through already.
        drop(gone);
        let at = state.computed;
        let changes = state.followers.replace(&document, &document, at);
        assert_eq!(changes.expect("one is there").len(), 1);
        assert_eq!(state.followers.layers.len(), 1);
        assert_eq!(layer.limiter().rules().rules()[0].quota().limit(), 3);
    }
}
