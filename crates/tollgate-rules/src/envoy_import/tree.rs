//! The tree of descriptors, as envoyproxy/ratelimit reads it from YAML.

use std::collections::HashSet;

use crate::{
    node::{Node, Value},
    reader::{At, Fields, Reader},
};

const OF_ROOT: &[&str] = &["domain", "descriptors"];
const OF_DESCRIPTOR: &[&str] = &[
    "key",
    "value",
    "rate_limit",
    "descriptors",
    "shadow_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "quota_mode",
    "metadata",
];
const OF_LIMIT: &[&str] = &["unit", "requests_per_unit", "unlimited", "name", "replaces"];

/// Its units, and what they are in a limit.
const UNITS: &[(&str, &str)] = &[
    ("second", "s"),
    ("minute", "min"),
    ("hour", "h"),
    ("day", "d"),
    ("week", "7d"),
    ("month", "30d"),
    ("year", "365d"),
];

/// What has no counterpart, and why.
const REFUSED: &[(&str, &str)] = &[
    (
        "quota_mode",
        "a limit that only reports is mode = \"shadow\" of a rule; remove it",
    ),
    (
        "metadata",
        "answers carry the names of rules, and nothing else; remove it",
    ),
    (
        "replaces",
        "the descriptors of a request are one decision, and none takes the place of another; say with conditions which rule is for which",
    ),
];

/// A node of the tree.
pub(super) struct Descriptor {
    pub(super) key: String,
    /// `None`: any.
    pub(super) value: Option<String>,
    /// Values that match its stars count together.
    pub(super) is_shared: bool,
    pub(super) is_shadow: bool,
    /// Whether its values had metrics.
    pub(super) has_metrics: bool,
    pub(super) limit: Option<Limit>,
    pub(super) descriptors: Vec<Self>,
}

pub(super) struct Limit {
    pub(super) name: Option<String>,
    /// Units, and their time; `None`: unlimited.
    pub(super) rate: Option<(u64, &'static str)>,
}

/// Reads a file, into the tree of its domain.
pub(super) fn read_root(
    reader: Reader<'_>,
    root: &Node,
    domains: &mut Vec<(String, Vec<Descriptor>)>,
) {
    let Some(fields) = table(reader, root, "a configuration", OF_ROOT) else {
        return;
    };
    let Some(domain) = fields.text("domain") else {
        return reader.wrong(
            &root.span,
            "there is no domain; add it, such as domain: edge",
        );
    };
    let index = domains.iter().position(|(known, _)| *known == domain.value);
    let index = index.unwrap_or_else(|| {
        domains.push((domain.value, Vec::new()));
        domains.len() - 1
    });
    read_level(reader, &fields, &mut domains[index].1, &mut Vec::new());
}

/// Reads `descriptors`, below the keys of `above` and whether they count.
fn read_level(
    reader: Reader<'_>,
    fields: &Table<'_>,
    level: &mut Vec<Descriptor>,
    above: &mut Vec<(String, Option<bool>)>,
) {
    let Some(node) = fields.get("descriptors") else {
        return;
    };
    let names = |node: &Descriptor| (node.key.clone(), node.value.clone());
    let mut known: HashSet<_> = level.iter().map(names).collect();
    for node in reader.list(node, "descriptors").unwrap_or_default() {
        let Some(descriptor) = Descriptor::read(reader, node, above) else {
            continue;
        };
        if !known.insert(names(&descriptor)) {
            let message = "there is a descriptor with this key and value already; remove one";
            reader.wrong(&node.span, message);
        }
        level.push(descriptor);
    }
}

impl Descriptor {
    fn read(
        reader: Reader<'_>,
        node: &Node,
        above: &mut Vec<(String, Option<bool>)>,
    ) -> Option<Self> {
        let fields = table(reader, node, "a descriptor", OF_DESCRIPTOR)?;
        let Some(key) = fields.text("key") else {
            reader.wrong(&node.span, "a descriptor has no key; add it");
            return None;
        };
        if key.value.contains('*') {
            let message = "stars of keys have no counterpart; write the keys out";
            reader.wrong(&key.span, message);
        }
        let value = fields.text("value").map(|value| value.value);
        let has_star = value.as_ref().is_some_and(|value| value.contains('*'));
        let is_shared = fields.boolean("share_threshold");
        if let Some(node) = fields
            .get("share_threshold")
            .filter(|_| is_shared && !has_star)
        {
            reader.wrong(&node.span, "only a value with a star is shared; remove it");
        }
        let limit = fields
            .get("rate_limit")
            .and_then(|node| Limit::read(reader, node));
        // Of a fixed value there is nothing to count by, and one key cannot both count and not.
        let counts = (value.is_none() || has_star).then_some(!is_shared);
        let differs = |(other, own): &(String, Option<bool>)| {
            *other == key.value && counts.is_some() && own.is_some() && *own != counts
        };
        if above.iter().any(differs) {
            let message = "the values of this key count together in one of two places, and apart in the other; give them two keys";
            reader.wrong(&key.span, message);
        }
        let mut descriptors = Vec::new();
        above.push((key.value.clone(), counts));
        read_level(reader, &fields, &mut descriptors, above);
        above.pop();
        Some(Self {
            key: key.value,
            value,
            is_shared,
            is_shadow: fields.boolean("shadow_mode"),
            has_metrics: fields.boolean("detailed_metric") || fields.boolean("value_to_metric"),
            limit,
            descriptors,
        })
    }
}

impl Limit {
    fn read(reader: Reader<'_>, node: &Node) -> Option<Self> {
        let fields = table(reader, node, "a rate_limit", OF_LIMIT)?;
        let name = fields.text("name").map(|name| name.value);
        let unit = fields.text("unit");
        if fields.boolean("unlimited") {
            if let Some(unit) = unit {
                reader.wrong(
                    &unit.span,
                    "without a limit there is no unit; remove one of them",
                );
            }
            return Some(Self { name, rate: None });
        }
        let Some(unit) = unit else {
            reader.wrong(
                &node.span,
                "a rate_limit has no unit; add it, such as unit: minute",
            );
            return None;
        };
        let lower = unit.value.to_lowercase();
        let per = UNITS.iter().find(|(name, _)| *name == lower);
        if per.is_none() {
            let known = UNITS.iter().map(|(name, _)| *name);
            reader.unknown(&unit.span, "unit", &unit.value, known);
        }
        let Some(units) = fields.get("requests_per_unit") else {
            reader.wrong(&node.span, "a rate_limit has no requests_per_unit; add it");
            return None;
        };
        let units = reader.number(units, "a number of requests", 0, u32::MAX.into())?;
        let rate = Some((units, per?.1));
        Some(Self { name, rate })
    }

    pub(super) fn text(&self) -> String {
        match self.rate {
            Some((0, _)) => "none".to_owned(),
            Some((units, per)) => format!("fixed_window {units}/{per}"),
            None => "unlimited".to_owned(),
        }
    }
}

/// A table of the configuration, with fields that are known.
struct Table<'a> {
    reader: Reader<'a>,
    fields: Fields<'a>,
}

fn table<'a>(
    reader: Reader<'a>,
    node: &'a Node,
    what: &'static str,
    known: &[&'static str],
) -> Option<Table<'a>> {
    let fields = reader.fields_of(node, what, known)?;
    for (name, node) in &fields.entries {
        let refused = REFUSED.iter().find(|(refused, _)| *refused == name.text);
        let is_said = !matches!(node.value, Value::Bool(false) | Value::Null);
        if let Some((refused, why)) = refused.filter(|_| is_said) {
            reader.wrong(&name.span, format!("{refused} has no counterpart: {why}"));
        }
    }
    Some(Table { reader, fields })
}

impl<'a> Table<'a> {
    fn get(&self, name: &str) -> Option<&'a Node> {
        let found = self.fields.get(name);
        found.filter(|node| node.value != Value::Null)
    }

    /// A text that is not empty. Numbers and booleans are texts as they are written.
    fn text(&self, name: &str) -> Option<At<String>> {
        let node = self.get(name)?;
        let value = match &node.value {
            Value::Text(text) => text.clone(),
            Value::Bool(_) | Value::Integer(_) | Value::Float(_) => {
                self.reader.text.get(node.span.clone())?.to_owned()
            }
            _ => {
                self.reader.expected(node, "a text");
                return None;
            }
        };
        let span = node.span.clone();
        (!value.is_empty()).then_some(At { span, value })
    }

    fn boolean(&self, name: &str) -> bool {
        let node = self.get(name);
        node.and_then(|node| self.reader.boolean(node))
            .unwrap_or(false)
    }
}
