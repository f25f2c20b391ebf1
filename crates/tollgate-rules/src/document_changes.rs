//! What differs between two documents, in words. Numbers are compared as they count, other fields of texts as they are written.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, HashMap, HashSet},
};

use tollgate_core::{Quota, RuleSet, types::RuleChange};

use crate::{
    entry::{Client, Effect, Override, names},
    node::Node,
    rule_document::{ReadText, RuleDocument},
    schema::table_of,
    term::Term,
};

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

/// What differs from the document before, a line for each rule, override and switch. No key is part of it.
pub(crate) fn document_changes(before: &RuleDocument, after: &RuleDocument) -> Vec<String> {
    let mut lines = all_changes(before, after);
    if lines.len() > MOST {
        let more = lines.len() - MOST;
        lines.truncate(MOST);
        lines.push(format!("and {more} more"));
    }
    lines
}

/// The same, however many lines it takes.
fn all_changes(before: &RuleDocument, after: &RuleDocument) -> Vec<String> {
    let (old, new) = (Unlike::new(before, after), Unlike::new(after, before));
    let changes = match (old.rules(), new.rules()) {
        (Some(old), Some(new)) => new.changes_from(&old),
        // There were none, or none are left of these.
        (old, new) => {
            let [old, new] =
                [&old, &new].map(|rules| rules.iter().flat_map(RuleSet::given).cloned());
            let removed = old.map(RuleChange::Removed);
            removed.chain(new.map(RuleChange::Added)).collect()
        }
    };
    let mut lines: Vec<String> = changes.iter().map(ToString::to_string).collect();
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
    for name in ["client_ip", "lists", "shed"] {
        let (old, new) = (before.said.get(name), after.said.get(name));
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

/// What differs between two texts that were read, a line each: rules, groups, overrides and switches. No key of a client is part
/// of it.
pub(crate) fn text_changes(before: &ReadText, after: &ReadText) -> Vec<String> {
    let mut lines = all_changes(&before.0, &after.0);
    let (old_rules, new_rules) = (named(&before.1, "rules"), named(&after.1, "rules"));
    let mut said = HashSet::new();
    let mut written_changes = Vec::new();
    for (name, new) in &new_rules {
        let Some(old) = old_rules.get(name) else {
            continue;
        };
        let fields = table_of("rule").fields.iter();
        for field in fields.filter(|field| !COMPUTED.contains(field)) {
            let (old, new) = (written(old, field), written(new, field));
            if old != new {
                said.insert(format!("{name}: other settings"));
                written_changes.push(format!("{name}: {field} {old} → {new}"));
            }
        }
    }
    // What they are is said now.
    lines.retain(|line| !said.contains(line));
    lines.extend(written_changes);
    let (old_groups, new_groups) = (named(&before.1, "groups"), named(&after.1, "groups"));
    for (name, new) in &new_groups {
        let rules = written(new, "rules");
        match old_groups.get(name).map(|old| written(old, "rules")) {
            None => lines.push(format!("group {name}: added, {rules}")),
            Some(old) if old != rules => lines.push(format!("group {name}: {old} → {rules}")),
            Some(_) => {}
        }
    }
    let removed = old_groups
        .keys()
        .filter(|name| !new_groups.contains_key(*name));
    lines.extend(removed.map(|name| format!("group {name}: removed")));
    lines
}

/// The tables of a list, by name.
fn named<'a>(trees: &'a [Node], list: &str) -> BTreeMap<&'a str, &'a Node> {
    let lists = trees.iter().filter_map(|tree| tree.get(list));
    let nodes = lists.flat_map(Node::items);
    let named = nodes.filter_map(|node| Some((node.text_of("name")?, node)));
    named.collect()
}

/// A field of a rule on one line.
fn written(rule: &Node, name: &str) -> String {
    let value = rule.get(name).map(|node| node.value.to_string());
    value.unwrap_or_else(|| "(none)".to_owned())
}

/// What tells overrides apart.
type OverrideKey = (String, Vec<u8>, Quota, Term);

/// The rules of a document that another one does not have, or whose fields or overrides it has otherwise.
struct Unlike<'a> {
    document: &'a RuleDocument,
    rules: Vec<usize>,
}

impl<'a> Unlike<'a> {
    fn new(document: &'a RuleDocument, other: &RuleDocument) -> Self {
        let by_name = OnceCell::new();
        let is_unlike = |index: &usize| {
            let rule = &document.rules[*index];
            let there = other.rules.get(*index).filter(|it| it.name == rule.name);
            let place = match there {
                Some(_) => Some(*index),
                None => {
                    let by_name = by_name.get_or_init(|| other.by_name());
                    by_name.get(&*rule.name).copied()
                }
            };
            place.is_none_or(|place| {
                let [own, there] = [document.overrides_of(*index), other.overrides_of(place)]
                    .map(|overrides| overrides.iter().map(|entry| entry.content));
                other.rules[place].content != rule.content || !own.eq(there)
            })
        };
        Self {
            rules: (0..document.rules.len()).filter(is_unlike).collect(),
            document,
        }
    }

    /// `None`: there are none.
    fn rules(&self) -> Option<RuleSet> {
        let rules = self.rules.iter().map(|index| &self.document.rules[*index]);
        RuleSet::new(rules.map(|rule| rule.mode.of(rule.numbers(&|quota| quota)))).ok()
    }

    fn overrides(&self) -> HashMap<OverrideKey, &'a Override> {
        let document = self.document;
        let of_rules = self.rules.iter();
        let of_rules = of_rules.flat_map(|index| document.overrides_of(*index));
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
    let all = document.switches.iter();
    let all = all.map(|it| (names(it, &document.rules), it.effect, it.term.clone()));
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
