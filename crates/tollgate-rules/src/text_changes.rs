//! What differs between two texts, in words: also what documents do not compare, such as keys and conditions.

use std::collections::{BTreeMap, HashSet};

use crate::{
    document_changes::all_changes,
    json_text::one_line,
    node::{Node, Value, field},
    rule_document::ReadText,
};

/// What is compared as it is written. The other fields are numbers, whose changes are computed.
const WRITTEN: &[&str] = &[
    "by",
    "when",
    "unless",
    "cost",
    "cost_by_response",
    "count_if",
    "max_waiting",
    "plan",
    "quota_by",
    "rollout",
    "missing",
    "keep_on_error",
    "top_keys",
    "audit",
    "consistency",
    "on_store_error",
    "on_change",
];

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
        let changed = WRITTEN.iter().filter_map(|word| {
            let (old, new) = (written(old, word), written(new, word));
            (old != new).then(|| format!("{name}: {word} {old} → {new}"))
        });
        let mut changed = changed.peekable();
        if changed.peek().is_some() {
            said.insert(format!("{name}: other settings"));
        }
        written_changes.extend(changed);
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
    let named = nodes.filter_map(|node| match field(node, "name") {
        Some(Value::Text(name)) => Some((&**name, node)),
        _ => None,
    });
    named.collect()
}

/// A field of a rule on one line.
fn written(rule: &Node, name: &str) -> String {
    field(rule, name).map_or_else(|| "(none)".to_owned(), one_line)
}
