//! What differs between two documents, in words.

use std::collections::{HashMap, HashSet};

use tollgate_core::{Quota, RuleChange, RuleSet};

use crate::{
    entries::Entries,
    override_entry::{Client, Override},
    reader::Term,
    switch_entry::{Effect, Switch},
};

/// The most lines about one document.
const MOST: usize = 50;

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
pub(crate) fn all_changes(before: &Entries, after: &Entries) -> Vec<String> {
    let rules = |entries: &Entries| {
        let rules = entries.rules.iter();
        RuleSet::new(rules.map(|rule| rule.mode.of(rule.numbers(&|quota| quota)))).ok()
    };
    let mut lines = Vec::new();
    match (rules(before), rules(after)) {
        (Some(old), Some(new)) => {
            lines.extend(new.changes_from(&old).iter().map(ToString::to_string));
        }
        // There were none.
        (None, Some(new)) => {
            let added = new.given().iter().cloned().map(RuleChange::Added);
            lines.extend(added.map(|rule| rule.to_string()));
        }
        _ => {}
    }
    let (old, new) = (overrides(before), overrides(after));
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
    let (old, new) = (switches(before), switches(after));
    for (rules, effect, term) in new.difference(&old) {
        lines.push(format!("{rules}: {effect}{term}"));
    }
    for (rules, effect, _) in old.difference(&new) {
        lines.push(format!("{rules}: no longer {effect}"));
    }
    lines
}

fn added_override(entries: &Entries, entry: &Override) -> String {
    let rule = &entries.rules[entry.rule];
    let (name, own) = (&rule.name.value, rule.limit.value);
    format!("{name}: {own} → {} for one key{}", entry.quota, entry.term)
}

/// What tells overrides apart.
type OverrideKey = (String, Vec<u8>, Quota, Term);

fn overrides(entries: &Entries) -> HashMap<OverrideKey, &Override> {
    let all = entries.overrides.iter().map(|entry| {
        let client = match &entry.client {
            // One document may have keys where the other has their hashes.
            Client::Key(key) => match &entries.hash_key {
                Some(hash_key) => {
                    let rule = &entries.rules[entry.rule].name.value;
                    hash_key(rule, key.as_ref()).to_le_bytes().to_vec()
                }
                None => key.as_ref().as_bytes().to_vec(),
            },
            Client::Hash(hash) => hash.to_le_bytes().to_vec(),
        };
        let rule = entries.rules[entry.rule].name.value.clone();
        ((rule, client, entry.quota, entry.term.clone()), entry)
    });
    all.collect()
}

fn switches(entries: &Entries) -> HashSet<(String, Effect, Term)> {
    let named = |switch: &Switch| {
        if switch.rules.iter().all(|is_switched| *is_switched) {
            return "all rules".to_owned();
        }
        let switched = entries.rules.iter().zip(&switch.rules);
        let switched = switched.filter(|(_, is_switched)| **is_switched);
        let names: Vec<_> = switched.map(|(rule, _)| &*rule.name.value).collect();
        names.join(", ")
    };
    let all = entries.switches.iter();
    all.map(|switch| (named(switch), switch.effect, switch.term.clone()))
        .collect()
}
