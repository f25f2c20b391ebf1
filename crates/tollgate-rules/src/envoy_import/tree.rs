//! The tree of descriptors, as envoyproxy/ratelimit reads it from YAML.

use std::collections::HashSet;

use crate::{
    node::{Node, Value},
    reader::{Fields, Reader},
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
];
const OF_LIMIT: &[&str] = &["unit", "requests_per_unit", "unlimited", "name"];

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
    let Some(domain) = text(&fields, "domain") else {
        return reader.wrong(
            &root.span,
            "there is no domain; add it, such as domain: edge",
        );
    };
    let index = domains.iter().position(|(known, _)| *known == domain);
    let index = index.unwrap_or_else(|| {
        domains.push((domain, Vec::new()));
        domains.len() - 1
    });
    read_level(&fields, &mut domains[index].1, &mut Vec::new());
}

/// Reads `descriptors`, below the keys of `above` and whether they count.
fn read_level(
    fields: &Fields<'_>,
    level: &mut Vec<Descriptor>,
    above: &mut Vec<(String, Option<bool>)>,
) {
    let reader = fields.reader;
    let names = |node: &Descriptor| (node.key.clone(), node.value.clone());
    let mut known: HashSet<_> = level.iter().map(names).collect();
    let nodes = fields.read("descriptors", |node| reader.list(node, "descriptors"));
    for node in nodes.unwrap_or_default() {
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
        let Some(key) = text(&fields, "key") else {
            return reader.refuse(&node.span, "a descriptor has no key; add it");
        };
        if key.contains('*') {
            let message = "stars of keys have no counterpart; write the keys out";
            fields.wrong("key", message);
        }
        let value = text(&fields, "value");
        let has_star = value.as_ref().is_some_and(|value| value.contains('*'));
        let is_shared = fields.is("share_threshold");
        if is_shared && !has_star {
            let message = "only a value with a star is shared; remove it";
            fields.wrong("share_threshold", message);
        }
        let limit = fields.read("rate_limit", |node| Limit::read(reader, node));
        // Of a fixed value there is nothing to count by, and one key cannot both count and not.
        let counts = (value.is_none() || has_star).then_some(!is_shared);
        let differs = |(other, own): &(String, Option<bool>)| {
            *other == key && counts.is_some() && own.is_some() && *own != counts
        };
        if above.iter().any(differs) {
            let message = "the values of this key count together in one of two places, and apart in the other; give them two keys";
            fields.wrong("key", message);
        }
        let mut descriptors = Vec::new();
        above.push((key.clone(), counts));
        read_level(&fields, &mut descriptors, above);
        above.pop();
        Some(Self {
            key,
            value,
            is_shared,
            is_shadow: fields.is("shadow_mode"),
            has_metrics: fields.is("detailed_metric") || fields.is("value_to_metric"),
            limit,
            descriptors,
        })
    }
}

impl Limit {
    fn read(reader: Reader<'_>, node: &Node) -> Option<Self> {
        let fields = table(reader, node, "a rate_limit", OF_LIMIT)?;
        let (name, unit) = (text(&fields, "name"), text(&fields, "unit"));
        if fields.is("unlimited") {
            let message = "without a limit there is no unit; remove one of them";
            fields.wrong("unit", message);
            return Some(Self { name, rate: None });
        }
        let Some(unit) = unit else {
            let message = "a rate_limit has no unit; add it, such as unit: minute";
            return reader.refuse(&node.span, message);
        };
        let lower = unit.to_lowercase();
        let per = UNITS.iter().find(|(name, _)| *name == lower);
        let per = per.or_else(|| {
            let known = UNITS.iter().map(|(name, _)| *name);
            reader.unknown(fields.get("unit")?, "unit", &unit, known)
        });
        if fields.get("requests_per_unit").is_none() {
            let message = "a rate_limit has no requests_per_unit; add it";
            return reader.refuse(&node.span, message);
        }
        let most = u32::MAX.into();
        let units = fields.number("requests_per_unit", "a number of requests", 0, most)?;
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
fn table<'a>(
    reader: Reader<'a>,
    node: &'a Node,
    what: &str,
    known: &[&'static str],
) -> Option<Fields<'a>> {
    let mut fields = reader.fields_of(node, what, known, &[])?;
    // A field of nothing is as good as none.
    fields.entries.retain(|(_, node)| node.value != Value::Null);
    Some(fields)
}

/// A text that is not empty. Numbers and booleans are texts as they are written.
fn text(fields: &Fields<'_>, name: &str) -> Option<String> {
    let node = fields.get(name)?;
    let text = match &node.value {
        Value::Text(text) => text.clone(),
        Value::Bool(_) | Value::Integer(_) | Value::Float(_) => {
            fields.reader.text.get(node.span.clone())?.to_owned()
        }
        _ => return fields.reader.expected(node, "a text"),
    };
    Some(text).filter(|text| !text.is_empty())
}
