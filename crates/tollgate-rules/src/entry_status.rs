//! The overrides and switches of a document, and those that operators set beside it.

use std::{sync::Arc, time::SystemTime};

use tollgate_core::Tick;

use crate::{
    author::Author,
    clock::{now, time},
    document_changes::document_changes,
    document_error::DocumentError,
    json_text::one_line,
    node::{Value, field},
    operator_entries::OperatorEntries,
    operator_entry::{EntryKind, OperatorEntry},
    override_entry::Client,
    reader::Term,
    rule_document::RuleDocument,
    switch_entry::names,
};

/// Where an override or a switch comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EntryOrigin {
    /// It is written in the document.
    Document,
    /// An operator set it in Redis, for all processes.
    Redis,
    /// It was set in this process, by a [handle](crate::LiveRulesHandle).
    Process,
}

/// An override or a switch: what it says, who set it, and whether it goes with the rules. No key of a client is part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntryStatus {
    /// Whether it is an override or a switch.
    pub kind: EntryKind,
    /// Where it comes from.
    pub origin: EntryOrigin,
    /// The number by which it is ended. `None`: it ends when the document is changed.
    pub id: Option<u64>,
    /// The rule of an override; those of a switch.
    pub rules: String,
    /// The [hash](crate::operators::Explanation::key_hash) of the client of an override, if there is a secret to make it with.
    pub client: Option<u128>,
    /// The client's limit, or what the rules are switched to.
    pub limit: String,
    /// When it ends; `None`: never.
    pub until: Option<SystemTime>,
    /// Why, as it says itself.
    pub reason: Option<String>,
    /// Who set it, and why; `None`: it is part of the document.
    pub author: Option<Author>,
    /// When it was set.
    pub set_at: Option<SystemTime>,
    /// Why it is not in force: its rule is gone, or counts by something else. It is in force again once a document has what it is about.
    pub problem: Option<String>,
}

impl RuleDocument {
    /// Its overrides and switches, and what operators set beside it. Some may have expired.
    ///
    /// ```
    /// use tollgate_rules::{Author, Bindings, Format, LiveRules, OperatorEntry, operators::EntryOrigin};
    ///
    /// let limits = "version = 1\n[[rules]]\nname = 'api'\nlimit = '20/s'\nby = 'client_ip'\n";
    /// let rules = LiveRules::from_text(limits, Format::Toml, Bindings::new())?;
    /// rules.handle(Author::new("alice")).set(OperatorEntry::switch("*", "50%").because("slow database"))?;
    /// let set = &rules.document().entries()[0];
    /// assert_eq!((&*set.rules, &*set.limit, set.origin), ("all rules", "50 % of each limit", EntryOrigin::Process));
    /// rules.handle(Author::new("bob")).end(&[set.id.unwrap()])?;
    /// assert!(rules.document().entries().is_empty());
    /// # Ok::<(), tollgate_rules::DocumentError>(())
    /// ```
    #[must_use]
    pub fn entries(&self) -> Vec<EntryStatus> {
        let entries = &self.entries;
        let overrides = entries.overrides.iter().map(|entry| {
            let name = &entries.rules[entry.rule].name.value;
            let hash_key = entries.hash_key.as_ref();
            EntryStatus {
                client: match &entry.client {
                    Client::Key(key) => hash_key.map(|hash_key| hash_key(name, key.as_ref())),
                    Client::Hash(hash) => Some(*hash),
                },
                rules: name.clone(),
                limit: entry.quota.to_string(),
                ..EntryStatus::new(EntryKind::Override, &entry.term, entry.set.as_deref())
            }
        });
        let switches = entries.switches.iter().map(|switch| EntryStatus {
            rules: names(switch, &entries.rules),
            limit: switch.effect.to_string(),
            ..EntryStatus::new(EntryKind::Switch, &switch.term, switch.set.as_deref())
        });
        let unfit = entries.unfit.iter();
        let unfit = unfit.map(|(entry, problem)| EntryStatus::unfit(entry, problem));
        overrides.chain(switches).chain(unfit).collect()
    }

    /// What an override or a switch would change if it was set, a line each. No key of a client is part of it.
    ///
    /// ```
    /// use tollgate_rules::{Bindings, Format, OperatorEntry, RuleDocument};
    ///
    /// let text = r#"{ "version": 1, "rules": [{ "name": "per-ip", "limit": "20/s", "by": "client_ip" }] }"#;
    /// let document = RuleDocument::parse(text, Format::Json, &Bindings::new())?;
    /// let doubled = OperatorEntry::limit("per-ip", "192.0.2.7", "200%");
    /// assert_eq!(document.preview(doubled)?, ["per-ip: gcra 20/s → gcra 40/s for one key"]);
    /// # Ok::<(), tollgate_rules::DocumentError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// It does not go with the document, or would have ended.
    pub fn preview(&self, entry: OperatorEntry) -> Result<Vec<String>, DocumentError> {
        let entry = Arc::new(entry);
        let read = self.entries.read_new(&entry, now());
        read.map_err(|wrong| DocumentError::of_whole("the rules", wrong))?;
        let set = OperatorEntries {
            all: vec![entry],
            pushed: None,
        };
        let after = self.entries.clone().beside(&set);
        Ok(document_changes(&self.entries, &after))
    }
}

impl EntryStatus {
    fn new(kind: EntryKind, term: &Term, set: Option<&OperatorEntry>) -> Self {
        Self {
            kind,
            origin: match set {
                None => EntryOrigin::Document,
                Some(entry) if entry.is_local => EntryOrigin::Process,
                Some(_) => EntryOrigin::Redis,
            },
            id: set.map(|entry| entry.id),
            rules: String::new(),
            client: None,
            limit: String::new(),
            until: (term.until < Tick::MAX).then(|| time(term.until)),
            reason: term.reason.as_deref().map(str::to_owned),
            author: set.map(|entry| entry.by.clone()),
            set_at: set.map(|entry| time(entry.at)),
            problem: None,
        }
    }

    /// What is written in an entry that the rules cannot read.
    fn unfit(entry: &OperatorEntry, problem: &str) -> Self {
        let text = |name: &str| match field(&entry.node, name) {
            Some(Value::Text(text)) => Some(text.clone()),
            other => other.map(one_line),
        };
        let hash = match field(&entry.node, "key") {
            Some(Value::Table(fields)) => fields.first().map(|(_, hash)| &hash.value),
            _ => None,
        };
        let term = Term {
            until: entry.end(),
            reason: text("reason").map(Into::into),
        };
        Self {
            rules: text("rule").or_else(|| text("rules")).unwrap_or_default(),
            client: match hash {
                Some(Value::Text(hash)) => u128::from_str_radix(hash, 16).ok(),
                _ => None,
            },
            limit: text("limit").unwrap_or_default(),
            problem: Some(problem.to_owned()),
            ..Self::new(entry.kind, &term, Some(entry))
        }
    }
}
