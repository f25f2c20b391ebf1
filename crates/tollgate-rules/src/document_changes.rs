//! What differs between two documents, in words. Numbers are compared as they count, other fields of texts as they are written.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, HashMap, HashSet},
};

use tollgate_core::{Quota, RuleSet, types::RuleChange};

use crate::{
    entries::Entries,
    json_text::one_line,
    node::{Node, Value, field, text_field},
    override_entry::{Client, Override},
    reader::Term,
    rule_document::ReadText,
    schema::fields_of,
    switch_entry::{Effect, names},
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
pub(crate) fn document_changes(before: &Entries, after: &Entries) -> Vec<String> {
    let mut lines = all_changes(before, after);
    if lines.len() > MOST {
        let more = lines.len() - MOST;
        lines.truncate(MOST);
        lines.push(format!("and {more} more"));
    }
    lines
}

/// The same, however many lines it takes.
fn all_changes(before: &Entries, after: &Entries) -> Vec<String> {
    let (old, new) = (Unlike::new(before, after), Unlike::new(after, before));
    let mut lines = Vec::new();
    match (old.rules(), new.rules()) {
        (Some(old), Some(new)) => {
            lines.extend(new.changes_from(&old).iter().map(ToString::to_string));
        }
        // There were none, or none are left of these.
        (None, Some(new)) => {
            let added = new.given().iter().cloned().map(RuleChange::Added);
            lines.extend(added.map(|rule| rule.to_string()));
        }
        (Some(old), None) => {
            let removed = old.given().iter().cloned().map(RuleChange::Removed);
            lines.extend(removed.map(|rule| rule.to_string()));
        }
        (None, None) => {}
    }
    let (old, new) = (old.overrides(), new.overrides());
    for (known, entry) in &new {
        if !old.contains_key(known) {
            lines.push(added_override(after, entry));
        }
    }
    for (known, entry) in &old {
        if !new.contains_key(known) {
            let rule = &before.rules[entry.rule].name.value;
            lines.push(format!("{rule}: {} for one key has ended", entry.quota));
        }
    }
    let whole = |entries: &Entries| {
        let shed = entries.shed.as_ref().map(|shed| shed.said.clone());
        let (client_ip, lists) = (entries.client_ip.clone(), entries.said_of_lists.clone());
        [("client_ip", client_ip), ("lists", lists), ("shed", shed)]
    };
    for ((name, old), (_, new)) in whole(before).into_iter().zip(whole(after)) {
        if old != new {
            let [old, new] = [old, new].map(|said| said.unwrap_or_else(|| "(none)".to_owned()));
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
    let mut lines = all_changes(&before.0.entries, &after.0.entries);
    let (old_rules, new_rules) = (named(&before.1, "rules"), named(&after.1, "rules"));
    let mut said = HashSet::new();
    let mut written_changes = Vec::new();
    for (name, new) in &new_rules {
        let Some(old) = old_rules.get(name) else {
            continue;
        };
        for field in fields_of("rule")
            .iter()
            .filter(|field| !COMPUTED.contains(field))
        {
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
    let lists = trees.iter().filter_map(|tree| field(tree, list));
    let nodes = lists.flat_map(|list| match list {
        Value::List(nodes) => &nodes[..],
        _ => &[],
    });
    let named = nodes.filter_map(|node| Some((text_field(node, "name")?, node)));
    named.collect()
}

/// A field of a rule on one line.
fn written(rule: &Node, name: &str) -> String {
    field(rule, name).map_or_else(|| "(none)".to_owned(), one_line)
}

fn added_override(entries: &Entries, entry: &Override) -> String {
    let rule = &entries.rules[entry.rule];
    let (name, own) = (&rule.name.value, rule.limit.value);
    format!("{name}: {own} → {} for one key{}", entry.quota, entry.term)
}

/// What tells overrides apart.
type OverrideKey = (String, Vec<u8>, Quota, Term);

/// The rules of a document that another one does not have, or whose fields or overrides it has otherwise.
struct Unlike<'a> {
    entries: &'a Entries,
    rules: Vec<usize>,
}

impl<'a> Unlike<'a> {
    fn new(entries: &'a Entries, other: &Entries) -> Self {
        let by_name = OnceCell::new();
        let is_unlike = |index: &usize| {
            let rule = &entries.rules[*index];
            let name = &rule.name.value;
            let there = other
                .rules
                .get(*index)
                .filter(|there| there.name.value == *name);
            let place = match there {
                Some(_) => Some(*index),
                None => by_name
                    .get_or_init(|| other.by_name())
                    .get(&**name)
                    .copied(),
            };
            place.is_none_or(|place| {
                other.rules[place].content != rule.content
                    || !entries.has_overrides_of(*index, other, place)
            })
        };
        Self {
            rules: (0..entries.rules.len()).filter(is_unlike).collect(),
            entries,
        }
    }

    /// `None`: there are none.
    fn rules(&self) -> Option<RuleSet> {
        let rules = self.rules.iter().map(|index| &self.entries.rules[*index]);
        RuleSet::new(rules.map(|rule| rule.mode.of(rule.numbers(&|quota| quota)))).ok()
    }

    fn overrides(&self) -> HashMap<OverrideKey, &'a Override> {
        let entries = self.entries;
        let of_rules = self.rules.iter();
        let of_rules = of_rules.flat_map(|index| entries.overrides_of(*index));
        let all = of_rules.map(|entry| {
            let name = &entries.rules[entry.rule].name.value;
            let client = match &entry.client {
                // One document may have keys where the other has their hashes.
                Client::Key(key) => match &entries.hash_key {
                    Some(hash_key) => hash_key(name, key.as_ref()).to_le_bytes().to_vec(),
                    None => key.as_ref().as_bytes().to_vec(),
                },
                Client::Hash(hash) => hash.to_le_bytes().to_vec(),
            };
            (
                (name.clone(), client, entry.quota, entry.term.clone()),
                entry,
            )
        });
        all.collect()
    }
}

fn switches(entries: &Entries) -> HashSet<(String, Effect, Term)> {
    let all = entries.switches.iter();
    all.map(|switch| {
        (
            names(switch, &entries.rules),
            switch.effect,
            switch.term.clone(),
        )
    })
    .collect()
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
            document.expect("a right document").entries
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
