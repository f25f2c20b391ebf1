//! The YAML of envoyproxy/ratelimit as rules for the edge: its tree of descriptors is read, and rules are written in TOML.
//!
//! There, a tree of descriptors is walked by the entries of a request, as deep as both go, and what it ends at is the limit. At each
//! level an entry takes the node with its value, or the first of those with stars that match, or the node without a value; there is
//! no way back. Here, each limit is a rule of its own with the whole way as its condition, and without the ways that come before it.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::{
    bindings::Bindings,
    document_error::{DocumentError, HiddenLines},
    format::Format,
    node::{Problems, Value},
    reader::{Fields, Item, Reader},
    rule_text::RuleText,
};

/// What a configuration of envoyproxy/ratelimit says, as a document of rules in TOML for `tollgate-server`. `files` are names, for
/// errors, and texts; files of one domain are put together.
///
/// A limit is a rule with the key and the window that it had, and limits of single values are overrides. What differs is a comment
/// in the document. Keys and values are compared one by one, not joined by `_`.
///
/// ```
/// use tollgate_rules::{Bindings, Format, RuleDocument, operators::import_envoy};
///
/// let yaml = "
/// domain: sms
/// descriptors:
///   - key: kind
///     value: alert
///     descriptors:
///       - key: to
///         rate_limit: { unit: day, requests_per_unit: 5 }
/// ";
/// let text = import_envoy([("sms.yaml", yaml)])?;
/// assert!(text.contains("limit = \"fixed_window 5/d\"\nby = [\"descriptor:to\"]"), "{text}");
/// let rules = RuleDocument::parse(&text, Format::Toml, &Bindings::new().at_edge())?;
/// assert_eq!(rules.names().collect::<Vec<_>>(), ["sms:kind:alert/to"]);
/// # Ok::<(), tollgate_rules::DocumentError>(())
/// ```
///
/// # Errors
///
/// What cannot be read, and what rules cannot say, with its line.
pub fn import_envoy<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<String, DocumentError> {
    let mut domains: Vec<(String, Vec<Descriptor>)> = Vec::new();
    let (mut wrong, bindings) = (DocumentError::none(), Bindings::new());
    for (origin, text) in files {
        let problems = Problems::default();
        let root = Format::Yaml.parse(text, &problems);
        let reader = Reader::new(text, Format::Yaml, &problems, &bindings);
        if problems.is_empty() {
            read_root(reader.item(&root), &mut domains);
        }
        // The importer of a file may read its keys.
        let hidden = HiddenLines::default();
        wrong.add(origin, text, &problems.into_sorted(), &hidden);
    }
    if !wrong.mistakes().is_empty() {
        return Err(wrong);
    }
    let mut rules = Rules {
        text: "version = 1\n".to_owned(),
        names: HashSet::new(),
    };
    for (domain, descriptors) in &domains {
        rules.add(domain, &mut Vec::new(), descriptors);
    }
    // It says what no reader could: a name that is there twice, say.
    RuleText::named("the rules made of it", &*rules.text, Format::Toml).parse(&bindings)?;
    Ok(rules.text)
}

/// A document that is being written.
struct Rules {
    text: String,
    names: HashSet<String>,
}

/// A step on the way to a limit: a node of a level.
#[derive(Clone, Copy)]
struct Step<'a> {
    level: &'a [Descriptor],
    index: usize,
}

impl<'a> Step<'a> {
    fn node(self) -> &'a Descriptor {
        &self.level[self.index]
    }

    /// The nodes of its level that an entry takes in its place, if they match: the value itself, then stars in their order, then any.
    fn before(self) -> impl Iterator<Item = &'a Descriptor> {
        let own = self.node();
        let rank = |node: &Descriptor, index| match &node.value {
            Some(_) if node.is_fixed() => (0, 0),
            Some(_) => (1, index),
            None => (2, 0),
        };
        let own_rank = rank(own, self.index);
        // Nothing comes before the value itself.
        let level = if own.is_fixed() { &[] } else { self.level };
        let before = level
            .iter()
            .enumerate()
            .filter(move |(index, node)| node.key == own.key && rank(node, *index) < own_rank);
        before.map(|(_, node)| node)
    }
}

impl Rules {
    /// Adds the rules of a level and below, at the end of a way.
    fn add<'a>(&mut self, domain: &str, way: &mut Vec<Step<'a>>, level: &'a [Descriptor]) {
        let mut bases: HashMap<&str, Option<Base>> = HashMap::new();
        for (index, node) in level.iter().enumerate() {
            let known = bases.entry(&node.key);
            let base = *known.or_insert_with(|| Base::of(way, level, &node.key));
            way.push(Step { level, index });
            if let Some(limit) = &node.limit
                && !base.is_some_and(|base| base.takes(node))
            {
                self.add_rule(domain, way, limit, base);
            }
            self.add(domain, way, &node.descriptors);
            way.pop();
        }
    }

    fn add_rule(&mut self, domain: &str, way: &[Step<'_>], limit: &Limit, base: Option<Base>) {
        let nodes: Vec<&Descriptor> = way.iter().map(|step| step.node()).collect();
        let patterns: Vec<String> = nodes.iter().map(|node| node.pattern()).collect();
        let (mut overrides, mut others) = (Vec::new(), Vec::new());
        for (depth, step) in way.iter().enumerate() {
            for other in step.before() {
                if depth + 1 == way.len() && base.is_some_and(|base| base.takes(other)) {
                    overrides.push(other);
                    continue;
                }
                let mut patterns = patterns.clone();
                patterns[depth] = other.pattern();
                others.push(format!("{{ descriptor = [{}] }}", patterns.join(", ")));
            }
        }
        let counted = nodes
            .iter()
            .filter(|node| !node.is_fixed() && !node.is_shared);
        let by: BTreeSet<String> = counted
            .map(|node| quoted(&format!("descriptor:{}", node.key)))
            .collect();
        let mut when = format!(
            "domain = {}, descriptor = [{}]",
            quoted(domain),
            patterns.join(", ")
        );
        if !others.is_empty() {
            when.push_str(&format!(", not = [{}]", others.join(", ")));
        }
        self.text.push_str("\n[[rules]]\n");
        if limit
            .rate
            .is_some_and(|(_, per)| ["30d", "365d"].contains(&per))
        {
            self.text
                .push_str("# Days from 1970 on, as there, and not by the calendar.\n");
        }
        let name = quoted(&self.name(domain, &nodes, limit));
        self.text.push_str(&format!(
            "name = {name}\nat = \"edge\"\nlimit = {}\nby = {}\nwhen = {{ {when} }}\n",
            quoted(&limit.text()),
            match by.is_empty() {
                true => quoted("constant"),
                false => format!("[{}]", by.iter().cloned().collect::<Vec<_>>().join(", ")),
            }
        ));
        if nodes.last().is_some_and(|node| node.is_shadow) {
            self.text.push_str("mode = \"shadow\"\n");
        }
        if !by.is_empty() && nodes.iter().any(|node| node.has_metrics) {
            let remark = "# Each value had a metric. These are the values that come most often.";
            self.text.push_str(&format!("{remark}\ntop_keys = true\n"));
        }
        for node in overrides {
            if let (Some(value), Some(limit)) = (&node.value, &node.limit) {
                let (value, limit) = (quoted(value), quoted(&limit.text()));
                self.text.push_str(&format!(
                    "\n[[overrides]]\nrule = {name}\nkey = {value}\nlimit = {limit}\n"
                ));
            }
        }
    }

    /// A name that no other rule has: its own, or its way.
    fn name(&mut self, domain: &str, nodes: &[&Descriptor], limit: &Limit) -> String {
        let steps = nodes.iter().map(|node| match &node.value {
            Some(value) => format!("{}:{value}", node.key),
            None => node.key.clone(),
        });
        let way = format!("{domain}:{}", steps.collect::<Vec<_>>().join("/"));
        let is_letter = |c: char| c.is_ascii_alphanumeric() || "_.:/*-".contains(c);
        let of_text = |text: &str, most: usize| {
            let start = if text.starts_with(|c: char| c.is_ascii_alphabetic()) {
                ""
            } else {
                "rule-"
            };
            let letters = text.chars().map(|c| if is_letter(c) { c } else { '-' });
            start.chars().chain(letters).take(most).collect::<String>()
        };
        let numbered = (2..).map(|number| format!("{}-{number}", of_text(&way, 56)));
        let own = limit.name.as_ref().map(|own| of_text(own, 64));
        let mut names = own.into_iter().chain([of_text(&way, 64)]).chain(numbered);
        // There are more numbers than rules.
        names
            .find(|name| self.names.insert(name.clone()))
            .unwrap_or_default()
    }
}

/// The rule of a key with any value, where limits of single values are its overrides: an override names a client by this value alone,
/// and differs in its units.
#[derive(Clone, Copy)]
struct Base {
    unit: &'static str,
    is_shadow: bool,
}

impl Base {
    fn of(above: &[Step<'_>], level: &[Descriptor], key: &str) -> Option<Self> {
        let mut of_key = level.iter().filter(|node| node.key == key);
        let all = of_key.clone().find(|node| node.value.is_none())?;
        let (_, unit) = all.limit.as_ref()?.rate.filter(|(units, _)| *units > 0)?;
        let is_alone = |step: &Step<'_>| step.node().is_fixed() && step.node().key != key;
        // What has stars takes values from the rule, and so from its overrides.
        let has_stars = of_key.any(|node| node.value.is_some() && !node.is_fixed());
        (above.iter().all(is_alone) && !has_stars).then_some(Self {
            unit,
            is_shadow: all.is_shadow,
        })
    }

    fn takes(self, node: &Descriptor) -> bool {
        let rate = node.limit.as_ref().map(|limit| limit.rate);
        let has_unit = rate.is_some_and(|rate| rate.is_none_or(|(_, unit)| unit == self.unit));
        has_unit && node.is_fixed() && node.is_shadow == self.is_shadow
    }
}

/// As a text of TOML, whose escapes are those of JSON.
fn quoted(text: &str) -> String {
    Value::Text(text.to_owned()).to_string()
}

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
struct Descriptor {
    key: String,
    /// `None`: any.
    value: Option<String>,
    /// Values that match its stars count together.
    is_shared: bool,
    is_shadow: bool,
    /// Whether its values had metrics.
    has_metrics: bool,
    limit: Option<Limit>,
    descriptors: Vec<Self>,
}

struct Limit {
    name: Option<String>,
    /// Units, and their time; `None`: unlimited.
    rate: Option<(u64, &'static str)>,
}

/// Reads a file, into the tree of its domain. Domains stay in their order: of rules with one name, the first has it.
fn read_root(root: Item<'_>, domains: &mut Vec<(String, Vec<Descriptor>)>) {
    let Some(fields) = table(root, "a configuration", OF_ROOT) else {
        return;
    };
    let Some(domain) = text(&fields, "domain") else {
        return root.wrong("there is no domain; add it, such as domain: edge");
    };
    let index = domains
        .iter()
        .position(|(known, _)| *known == domain)
        .unwrap_or_else(|| {
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
    let names = |node: &Descriptor| (node.key.clone(), node.value.clone());
    let mut known: HashSet<_> = level.iter().map(names).collect();
    for item in fields.items("descriptors") {
        let Some(descriptor) = Descriptor::read(item, above) else {
            continue;
        };
        if !known.insert(names(&descriptor)) {
            item.wrong("there is a descriptor with this key and value already; remove one");
        }
        level.push(descriptor);
    }
}

impl Descriptor {
    fn read(item: Item<'_>, above: &mut Vec<(String, Option<bool>)>) -> Option<Self> {
        let fields = table(item, "a descriptor", OF_DESCRIPTOR)?;
        let Some(key) = text(&fields, "key") else {
            return item.refuse("a descriptor has no key; add it");
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
        let limit = fields.read("rate_limit", Limit::read);
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

    fn is_fixed(&self) -> bool {
        self.value
            .as_ref()
            .is_some_and(|value| !value.contains('*'))
    }

    /// As it is in a condition.
    fn pattern(&self) -> String {
        match &self.value {
            Some(value) => format!("{{ {} = {} }}", quoted(&self.key), quoted(value)),
            None => quoted(&self.key),
        }
    }
}

impl Limit {
    fn read(item: Item<'_>) -> Option<Self> {
        let fields = table(item, "a rate_limit", OF_LIMIT)?;
        let (name, unit) = (text(&fields, "name"), text(&fields, "unit"));
        if fields.is("unlimited") {
            let message = "without a limit there is no unit; remove one of them";
            fields.wrong("unit", message);
            return Some(Self { name, rate: None });
        }
        let Some(unit) = unit else {
            return item.refuse("a rate_limit has no unit; add it, such as unit: minute");
        };
        let lower = unit.to_lowercase();
        let per = UNITS.iter().find(|(name, _)| *name == lower).or_else(|| {
            let known = UNITS.iter().map(|(name, _)| *name);
            fields.get("unit")?.unknown("unit", &unit, known)
        });
        let Some(units) = fields.get("requests_per_unit") else {
            return item.refuse("a rate_limit has no requests_per_unit; add it");
        };
        let units = units.number("a number of requests", 0, u32::MAX.into())?;
        let rate = Some((units, per?.1));
        Some(Self { name, rate })
    }

    fn text(&self) -> String {
        match self.rate {
            Some((0, _)) => "none".to_owned(),
            Some((units, per)) => format!("fixed_window {units}/{per}"),
            None => "unlimited".to_owned(),
        }
    }
}

/// A table of the configuration, with fields that are known.
fn table<'a>(item: Item<'a>, what: &str, known: &[&'static str]) -> Option<Fields<'a>> {
    let mut fields = item.fields_of(what, known, &[])?;
    // A field of nothing is as good as none.
    fields.entries.retain(|(_, node)| node.value != Value::Null);
    Some(fields)
}

/// A text that is not empty. Numbers and booleans are texts as they are written.
fn text(fields: &Fields<'_>, name: &str) -> Option<String> {
    let item = fields.get(name)?;
    let text = match item.value() {
        Value::Text(text) => text.clone(),
        Value::Bool(_) | Value::Integer(_) | Value::Float(_) => {
            let written = item.reader.text.get(item.node.span.clone())?;
            written.trim_end().to_owned()
        }
        _ => return item.expected("a text"),
    };
    Some(text).filter(|text| !text.is_empty())
}
