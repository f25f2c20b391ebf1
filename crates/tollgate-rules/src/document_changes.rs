//! The overrides and switches of a document and of operators; and what differs between two documents, in words. Numbers are compared as
//! they count, other fields of texts as they are written.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::SystemTime,
};

use tollgate_core::{Quota, RuleSet, wall_clock};

use crate::{
    audit::Author,
    document_error::DocumentError,
    entry::{Effect, names},
    format::Format,
    node::{Node, Problems},
    operator_entries::{EntryKind, NamedBy, OperatorEntries, OperatorEntry},
    rule_document::RuleDocument,
    rule_entry::{Client, Override, RuleEntry},
    schema::table_of,
    term::{Term, time},
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
        let overrides = self.overrides().map(|entry| EntryStatus {
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
        let entries = self.unfit.iter();
        let unfit = entries.map(|(entry, problem)| EntryStatus::unfit(entry, problem));
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
        let read = self.read_new(&entry, wall_clock());
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
        let client = match &entry.client {
            Some(NamedBy::Hash(hash)) => u128::from_str_radix(hash, 16).ok(),
            _ => None,
        };
        Self {
            rules: entry.rule.clone(),
            client,
            limit: entry.limit.clone(),
            problem: Some(problem.to_owned()),
            ..Self::new(entry.kind(), &entry.term, Some(entry))
        }
    }
}

/// The most lines about one document.
const MOST: usize = 50;

/// The fields of a rule whose changes are computed; what it is called, and what is for readers.
const COMPUTED: &[&str] = &[
    "name",
    "limit",
    "plans",
    "wait",
    "debt",
    "credits",
    "mode",
    "exact_when",
    "description",
];

/// What differs from the document before, a line for each rule, override and switch. It goes to logs: no key is part of it, and no
/// field of a rule that may have one.
pub(crate) fn document_changes(before: &RuleDocument, after: &RuleDocument) -> Vec<String> {
    let mut lines = changes(before, after, &|of, _, _| format!("{of} has changed"));
    if lines.len() > MOST {
        let more = lines.len() - MOST;
        lines.truncate(MOST);
        lines.push(format!("and {more} more"));
    }
    lines
}

/// The same with the fields of rules as they are written, for who may read the documents, and however many lines it takes.
pub(crate) fn all_changes(before: &RuleDocument, after: &RuleDocument) -> Vec<String> {
    changes(before, after, &|of, old, new| format!("{of} {old} → {new}"))
}

/// What to say of a field of a rule that is written otherwise: its name, and both values.
type OfField<'a> = &'a dyn Fn(&str, &str, &str) -> String;

fn changes(before: &RuleDocument, after: &RuleDocument, of_field: OfField<'_>) -> Vec<String> {
    let (old, new) = (Unlike::new(before, after), Unlike::new(after, before));
    let changes = RuleSet::changes(old.rules().as_ref(), new.rules().as_ref());
    let mut lines: Vec<String> = changes.iter().map(ToString::to_string).collect();
    let fields = field_changes(&new, of_field);
    // What they are is said now.
    let is_known = |line: &str| {
        let name = line.strip_suffix(": other settings");
        name.is_some_and(|name| fields.contains_key(name))
    };
    lines.retain(|line| !is_known(line));
    lines.extend(fields.into_values().flatten());
    let (old, new) = (old.overrides(), new.overrides());
    for (known, entry) in &new {
        if !old.contains_key(known) {
            let rule = &after.rules[entry.rule];
            let (name, own, quota, term) = (&rule.name, rule.limit, entry.quota, &entry.term);
            lines.push(format!("{name}: {own} → {quota} for one key{term}"));
        }
    }
    for (known, entry) in &old {
        if !new.contains_key(known) {
            let (rule, quota) = (&before.rules[entry.rule].name, entry.quota);
            lines.push(format!("{rule}: {quota} for one key has ended"));
        }
    }
    let names: BTreeSet<&String> = before.said.keys().chain(after.said.keys()).collect();
    for name in names {
        let [old, new] = [before, after].map(|it| it.said.get(name));
        if old != new {
            let [old, new] = [old, new].map(|said| said.map_or("(none)", String::as_str));
            lines.push(format!("{name}: {old} → {new}"));
        }
    }
    let (old, new) = (switches(before), switches(after));
    for (rules, effect, term) in new.difference(&old) {
        lines.push(format!("{rules}: {effect}{term}"));
    }
    for (rules, effect, _) in old.difference(&new) {
        lines.push(format!("{rules}: no longer {effect}"));
    }
    lines
}

/// By rule, its fields that are written otherwise, a line each.
fn field_changes<'a>(new: &Unlike<'a>, of_field: OfField<'_>) -> BTreeMap<&'a str, Vec<String>> {
    let tree = |rule: &RuleEntry| Format::Json.parse(&rule.written, &Problems::default());
    let field = |rule: &Node, name: &str| {
        let value = rule.get(name).map(|node| node.value.to_string());
        value.unwrap_or_else(|| "(none)".to_owned())
    };
    let both = new
        .rules
        .iter()
        .filter_map(|(new, old)| Some((*new, (*old)?)));
    let changes = both.map(|(new, old)| {
        let (name, old, new) = (&*new.name, tree(old), tree(new));
        let fields = table_of("rule")
            .fields
            .iter()
            .filter(|field| !COMPUTED.contains(field));
        let lines = fields.filter_map(|of| {
            let (old, new) = (field(&old, of), field(&new, of));
            (old != new).then(|| format!("{name}: {}", of_field(of, &old, &new)))
        });
        (name, lines.collect::<Vec<_>>())
    });
    changes.filter(|(_, lines)| !lines.is_empty()).collect()
}

/// What tells overrides apart.
type OverrideKey = (String, Vec<u8>, Quota, Term);

/// The rules of a document that another one does not have, or whose fields or overrides it has otherwise.
struct Unlike<'a> {
    document: &'a RuleDocument,
    /// With the rule of the same name there.
    rules: Vec<(&'a RuleEntry, Option<&'a RuleEntry>)>,
}

impl<'a> Unlike<'a> {
    fn new(document: &'a RuleDocument, other: &'a RuleDocument) -> Self {
        let by_name = other.by_name();
        let rules = document.rules.iter().map(|rule| {
            let there = by_name.get(&*rule.name);
            (rule, there.map(|place| &other.rules[*place]))
        });
        let content = |rule: &'a RuleEntry| rule.overrides.iter().map(|entry| entry.content);
        let is_unlike = |(rule, there): &(&'a RuleEntry, Option<&'a RuleEntry>)| {
            let is_same = |there: &'a RuleEntry| {
                there.written == rule.written && content(there).eq(content(rule))
            };
            !there.is_some_and(is_same)
        };
        Self {
            rules: rules.filter(is_unlike).collect(),
            document,
        }
    }

    /// `None`: there are none.
    fn rules(&self) -> Option<RuleSet> {
        let rules = self.rules.iter();
        RuleSet::new(rules.map(|(rule, _)| rule.mode.of(rule.numbers(1_000)))).ok()
    }

    fn overrides(&self) -> HashMap<OverrideKey, &'a Override> {
        let document = self.document;
        let of_rules = self.rules.iter().flat_map(|(rule, _)| &rule.overrides);
        let all = of_rules.map(|entry| {
            let name = document.rules[entry.rule].name.clone();
            // One document may have keys where the other has their hashes.
            let client = match (document.hash_of_client(entry), &entry.client) {
                (None, Client::Key(key)) => key.as_ref().as_bytes().to_vec(),
                (hash, _) => hash.unwrap_or_default().to_le_bytes().to_vec(),
            };
            ((name, client, entry.quota, entry.term.clone()), entry)
        });
        all.collect()
    }
}

fn switches(document: &RuleDocument) -> HashSet<(String, Effect, Term)> {
    let all = document
        .switches
        .iter()
        .map(|it| (names(it, &document.rules), it.effect, it.term.clone()));
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{bindings::Bindings, format::Format, rule_text::RuleText};

    #[test]
    fn of_many_changes_fifty_are_said_and_the_others_counted() {
        let entries = |rules: usize| {
            let rule = |n: usize| {
                format!("[[rules]]\nname = \"r{n}\"\nlimit = \"1/s\"\nby = \"constant\"\n")
            };
            let rules: String = (0..rules).map(rule).collect();
            let text = RuleText::new(format!("version = 1\n{rules}"), Format::Toml);
            let document = text.parse(&Bindings::new());
            document.expect("a right document")
        };
        let before = entries(1);
        let fifty = document_changes(&before, &entries(51));
        assert_eq!(fifty.len(), 50);
        assert_eq!(fifty[49], "r50: added, gcra 1/s");
        let more = document_changes(&before, &entries(63));
        assert_eq!((more.len(), &*more[50]), (51, "and 12 more"));
        assert_eq!(more[..50], fifty);
    }
}
