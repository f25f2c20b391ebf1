//! The overrides and switches of a document, and those that operators set beside it.

use std::{sync::Arc, time::SystemTime};

use crate::{
    audit::Author,
    document_changes::document_changes,
    document_error::DocumentError,
    entry::names,
    operator_entries::{EntryKind, OperatorEntries, OperatorEntry},
    rule_document::RuleDocument,
    term::{Term, now, time},
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
        let overrides = self.overrides.iter().map(|entry| EntryStatus {
            client: self.hash_of_client(entry),
            rules: self.rules[entry.rule].name.clone(),
            limit: entry.quota.to_string(),
            ..EntryStatus::new(EntryKind::Override, &entry.term, entry.set.as_deref())
        });
        let switches = self.switches.iter().map(|switch| EntryStatus {
            rules: names(switch, &self.rules),
            limit: switch.effect.to_string(),
            ..EntryStatus::new(EntryKind::Switch, &switch.term, switch.set.as_deref())
        });
        let unfit = self.unfit.iter();
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
        let read = self.read_new(&entry, now());
        read.map_err(|wrong| DocumentError::of_whole("the rules", wrong))?;
        let set = OperatorEntries {
            all: vec![entry],
            pushed: None,
        };
        Ok(document_changes(self, &self.clone().beside(&set)))
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
            until: term.end(),
            reason: term.reason.as_deref().map(str::to_owned),
            author: set.map(|entry| entry.by.clone()),
            set_at: set.map(|entry| time(entry.at)),
            problem: None,
        }
    }

    /// What is written in an entry that the rules cannot read.
    fn unfit(entry: &OperatorEntry, problem: &str) -> Self {
        let hash = entry.node.get("key").and_then(|key| key.text_of("hash"));
        Self {
            rules: entry.rules(),
            client: hash.and_then(|hash| u128::from_str_radix(hash, 16).ok()),
            limit: entry.text_of("limit").unwrap_or_default(),
            problem: Some(problem.to_owned()),
            ..Self::new(entry.kind, &entry.term(), Some(entry))
        }
    }
}
