//! What differs between two texts, in words: also what documents do not compare, such as keys and conditions.

use std::collections::BTreeMap;

use crate::{
    bindings::Bindings,
    document_changes::all_changes,
    document_error::DocumentError,
    document_tree::field,
    json_text::one_line,
    node::{Node, Value},
    rule_text::RuleText,
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

impl RuleText {
    /// What differs from another text, a line each: rules, groups, overrides and switches. No key of a client is part of it.
    ///
    /// ```
    /// use tollgate_rules::{Bindings, Format, RuleText};
    ///
    /// let text = |limit: &str, by: &str| {
    ///     let rule = format!(r#"{{ "name": "api", "limit": "{limit}", "by": "{by}" }}"#);
    ///     RuleText::new(format!(r#"{{ "version": 1, "rules": [{rule}] }}"#), Format::Json)
    /// };
    /// let (before, after) = (text("60/min", "client_ip"), text("90/min", "path"));
    /// let changes = after.changes_from(&before, &Bindings::new())?;
    /// assert_eq!(changes[0], "api: gcra 60/min → gcra 90/min, used units are kept");
    /// assert_eq!(changes[1], r#"api: by "client_ip" → "path""#);
    /// # Ok::<(), tollgate_rules::DocumentError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// All that is wrong with either.
    pub fn changes_from(
        &self,
        before: &Self,
        bindings: &Bindings,
    ) -> Result<Vec<String>, DocumentError> {
        let (old, old_trees) = before.read(bindings)?;
        let (new, new_trees) = self.read(bindings)?;
        let mut lines = all_changes(&old.entries, &new.entries);
        let (old_rules, new_rules) = (named(&old_trees, "rules"), named(&new_trees, "rules"));
        for (name, new) in &new_rules {
            let Some(old) = old_rules.get(name) else {
                continue;
            };
            let changed = WRITTEN.iter().filter_map(|word| {
                let (old, new) = (written(old, word), written(new, word));
                (old != new).then(|| format!("{name}: {word} {old} → {new}"))
            });
            let changed: Vec<_> = changed.collect();
            if !changed.is_empty() {
                // What they are is said now.
                lines.retain(|line| *line != format!("{name}: other settings"));
            }
            lines.extend(changed);
        }
        let (old_groups, new_groups) = (named(&old_trees, "groups"), named(&new_trees, "groups"));
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
        Ok(lines)
    }
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
