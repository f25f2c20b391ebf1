//! The overrides and switches of a document, and those that operators set beside it.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tollgate_core::Tick;

use crate::{
    author::Author,
    clock::now,
    document_changes::document_changes,
    document_error::DocumentError,
    json_text::one_line,
    limit_override::{EntryKind, NewEntry},
    node::{Value, field},
    operator_entries::{OperatorEntries, OperatorEntry},
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
pub struct EntryStatus {
    kind: EntryKind,
    origin: EntryOrigin,
    id: Option<u64>,
    rules: String,
    client: Option<u128>,
    limit: String,
    until: Option<SystemTime>,
    reason: Option<String>,
    set_by: Option<(Author, SystemTime)>,
    problem: Option<String>,
}

impl RuleDocument {
    /// Its overrides and switches, and what operators set beside it. Some may have expired.
    ///
    /// ```
    /// use tollgate_rules::{Author, Bindings, EntryOrigin, Format, LiveRules, RuleSwitch};
    ///
    /// let limits = "version = 1\n[[rules]]\nname = 'api'\nlimit = '20/s'\nby = 'client_ip'\n";
    /// let rules = LiveRules::from_text(limits, Format::Toml, Bindings::new())?;
    /// rules.handle(Author::new("alice")).switch(RuleSwitch::all("50%").because("slow database"))?;
    /// let set = &rules.document().entries()[0];
    /// assert_eq!((set.rules(), set.limit(), set.origin()), ("all rules", "50 % of each limit", EntryOrigin::Process));
    /// rules.handle(Author::new("bob")).end(set.id().unwrap())?;
    /// assert!(rules.document().entries().is_empty());
    /// # Ok::<(), tollgate_rules::DocumentError>(())
    /// ```
    #[must_use]
    pub fn entries(&self) -> Vec<EntryStatus> {
        let entries = &self.entries;
        let overrides = entries.overrides().iter().map(|entry| {
            let name = &entries.rules[entry.rule].name.value;
            let hash = |key| {
                entries
                    .hash_key
                    .as_ref()
                    .map(|hash_key| hash_key(name, key))
            };
            let client = match &entry.client {
                Client::Key(key) => hash(key.as_ref()),
                Client::Hash(hash) => Some(*hash),
            };
            let limit = entry.quota.to_string();
            let of = (EntryKind::Override, name.clone(), limit);
            EntryStatus::new(of, client, &entry.term, entry.set.as_deref())
        });
        let switches = entries.switches.iter().map(|switch| {
            let rules = names(switch, &entries.rules);
            let of = (EntryKind::Switch, rules, switch.effect.to_string());
            EntryStatus::new(of, None, &switch.term, switch.set.as_deref())
        });
        let unfit = entries.unfit.iter().map(|(entry, problem)| EntryStatus {
            problem: Some(problem.clone()),
            ..EntryStatus::unfit(entry)
        });
        overrides.chain(switches).chain(unfit).collect()
    }

    /// What an override or a switch would change if it was set, a line each. No key of a client is part of it.
    ///
    /// ```
    /// use tollgate_rules::{Bindings, Format, LimitOverride, RuleDocument};
    ///
    /// let text = r#"{ "version": 1, "rules": [{ "name": "per-ip", "limit": "20/s", "by": "client_ip" }] }"#;
    /// let document = RuleDocument::parse(text, Format::Json, &Bindings::new())?;
    /// let doubled = LimitOverride::new("per-ip", "192.0.2.7", "200%");
    /// assert_eq!(document.preview(doubled)?, ["per-ip: gcra 20/s → gcra 40/s for one key"]);
    /// # Ok::<(), tollgate_rules::DocumentError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// It does not go with the document, or would have ended.
    pub fn preview(&self, entry: impl Into<NewEntry>) -> Result<Vec<String>, DocumentError> {
        let entry = OperatorEntry::new(0, &Author::new(""), now(), entry.into());
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
    fn new(
        (kind, rules, limit): (EntryKind, String, String),
        client: Option<u128>,
        term: &Term,
        set: Option<&OperatorEntry>,
    ) -> Self {
        Self {
            kind,
            origin: match set {
                None => EntryOrigin::Document,
                Some(entry) if entry.is_local => EntryOrigin::Process,
                Some(_) => EntryOrigin::Redis,
            },
            id: set.map(|entry| entry.id),
            rules,
            client,
            limit,
            until: (term.until < Tick::MAX).then(|| time(term.until)),
            reason: term.reason.as_deref().map(str::to_owned),
            set_by: set.map(|entry| (entry.by.clone(), time(entry.at))),
            problem: None,
        }
    }

    /// What is written in an entry that the rules cannot read.
    fn unfit(entry: &OperatorEntry) -> Self {
        let text = |name: &str| match field(&entry.node, name) {
            Some(Value::Text(text)) => Some(text.clone()),
            other => other.map(one_line),
        };
        let rules = text("rule").or_else(|| text("rules")).unwrap_or_default();
        let of = (entry.kind, rules, text("limit").unwrap_or_default());
        let term = Term {
            until: entry.until(),
            reason: text("reason").map(Into::into),
        };
        let hash = match field(&entry.node, "key") {
            Some(Value::Table(fields)) => fields.first().map(|(_, hash)| &hash.value),
            _ => None,
        };
        let client = match hash {
            Some(Value::Text(hash)) => u128::from_str_radix(hash, 16).ok(),
            _ => None,
        };
        Self::new(of, client, &term, Some(entry))
    }

    /// Whether it is an override or a switch.
    #[must_use]
    pub fn kind(&self) -> EntryKind {
        self.kind
    }

    /// Where it comes from.
    #[must_use]
    pub fn origin(&self) -> EntryOrigin {
        self.origin
    }

    /// The number by which it is ended. `None`: it ends when the document is changed.
    #[must_use]
    pub fn id(&self) -> Option<u64> {
        self.id
    }

    /// The rule of an override; those of a switch.
    #[must_use]
    pub fn rules(&self) -> &str {
        &self.rules
    }

    /// The [hash](crate::Explanation::key_hash) of the client of an override, if there is a secret to make it with.
    #[must_use]
    pub fn client(&self) -> Option<u128> {
        self.client
    }

    /// The client's limit, or what the rules are switched to.
    #[must_use]
    pub fn limit(&self) -> &str {
        &self.limit
    }

    /// When it ends; `None`: never.
    #[must_use]
    pub fn until(&self) -> Option<SystemTime> {
        self.until
    }

    /// Why, as it says itself.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Who set it, and why; `None`: it is part of the document.
    #[must_use]
    pub fn author(&self) -> Option<&Author> {
        self.set_by.as_ref().map(|(author, _)| author)
    }

    /// When it was set.
    #[must_use]
    pub fn set_at(&self) -> Option<SystemTime> {
        self.set_by.as_ref().map(|(_, at)| *at)
    }

    /// Why it is not in force: its rule is gone, or counts by something else. It is in force again once a document has what it is about.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

/// Microseconds since the Unix epoch.
pub(crate) fn time(at: Tick) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(at)
}
