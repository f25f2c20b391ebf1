//! An override or a switch that is set while a service runs.

use std::{fmt, time::SystemTime};

use jiff::Timestamp;

use crate::{
    format::Format,
    json_text::{json_text, one_line},
    node::{Node, Value, field, table},
};

/// Whether an entry is an override or a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EntryKind {
    /// One client's own limit.
    Override,
    /// What is switched for a rule or for all.
    Switch,
}

impl EntryKind {
    /// In one word: `override`, `switch`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Override => "override",
            Self::Switch => "switch",
        }
    }
}

/// An override or a switch that may be set: made of a [`LimitOverride`] or a [`RuleSwitch`].
///
/// ```
/// use tollgate_rules::{Format, NewEntry, RuleSwitch};
///
/// let halved = NewEntry::from(RuleSwitch::all("50%").because("ticket 4711"));
/// let lines = "[[switches]]\nrules = \"*\"\nlimit = \"50%\"\nreason = \"ticket 4711\"\n";
/// assert_eq!(halved.text(Format::Toml), lines);
/// ```
#[derive(Clone)]
pub struct NewEntry {
    pub(crate) kind: EntryKind,
    pub(crate) node: Node,
}

impl NewEntry {
    /// Whether it is an override or a switch.
    #[must_use]
    pub fn kind(&self) -> EntryKind {
        self.kind
    }

    /// The lines to add to a document, with the key as it was given.
    #[must_use]
    pub fn text(&self, format: Format) -> String {
        let list = match self.kind {
            EntryKind::Override => "overrides",
            EntryKind::Switch => "switches",
        };
        let Value::Table(fields) = &self.node.value else {
            return String::new();
        };
        match format {
            Format::Toml => {
                // What JSON writes of a text or a list is TOML and YAML as well.
                let lines = fields.iter().map(|(name, node)| match field(node, "hash") {
                    Some(hash) => format!("{} = {{ hash = {} }}\n", name.text, one_line(hash)),
                    None => format!("{} = {}\n", name.text, one_line(&node.value)),
                });
                format!("[[{list}]]\n{}", lines.collect::<String>())
            }
            Format::Yaml => format!("{list}:\n  - {}\n", one_line(&self.node.value)),
            Format::Json => {
                let list = [(list, Value::List(vec![self.node.clone()]))];
                json_text(&table(list))
            }
        }
    }
}

impl From<LimitOverride> for NewEntry {
    fn from(entry: LimitOverride) -> Self {
        let (kind, node) = (EntryKind::Override, entry.node());
        Self { kind, node }
    }
}

impl From<RuleSwitch> for NewEntry {
    fn from(entry: RuleSwitch) -> Self {
        let (kind, node) = (EntryKind::Switch, entry.node());
        Self { kind, node }
    }
}

/// Without the key.
impl fmt::Debug for NewEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind;
        f.debug_struct("NewEntry")
            .field("kind", &kind)
            .finish_non_exhaustive()
    }
}

/// A client's own limit, set while a service runs: an entry of `[[overrides]]`.
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
///
/// use tollgate_rules::LimitOverride;
///
/// let until = UNIX_EPOCH + Duration::from_secs(1_900_000_000);
/// let raised = LimitOverride::new("search-per-key", "acme-key-1", "500/s burst 1000")
///     .until(until)
///     .because("launch week, ticket 4711");
/// # let _ = raised;
/// ```
#[must_use = "it is in force when it is given to a handle"]
#[derive(Clone)]
pub struct LimitOverride {
    rule: String,
    key: Vec<String>,
    hash: Option<u128>,
    limit: String,
    until: Option<SystemTime>,
    reason: Option<String>,
}

impl LimitOverride {
    /// The limit of the client with this key under a rule, as a document writes both: `"unlimited"` is one too, and so is `"200%"`
    /// of the rule's own.
    pub fn new(rule: impl Into<String>, key: impl Into<String>, limit: impl Into<String>) -> Self {
        Self {
            key: vec![key.into()],
            hash: None,
            ..Self::hashed(rule, 0, limit)
        }
    }

    /// The same of a client that is known by its [hash](crate::Explanation::key_hash) alone.
    pub fn hashed(rule: impl Into<String>, hash: u128, limit: impl Into<String>) -> Self {
        Self {
            rule: rule.into(),
            key: Vec::new(),
            hash: Some(hash),
            limit: limit.into(),
            until: None,
            reason: None,
        }
    }

    /// The next part of the key, where the rule counts by several.
    pub fn and_key(mut self, part: impl Into<String>) -> Self {
        self.key.push(part.into());
        self
    }

    /// When it ends. Default: never.
    pub fn until(mut self, time: SystemTime) -> Self {
        self.until = Some(time);
        self
    }

    /// Why.
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    pub(crate) fn node(&self) -> Node {
        let text = |text: &String| Value::Text(text.clone());
        let key = match (&self.key[..], self.hash) {
            ([], Some(hash)) => table([("hash", Value::Text(format!("{hash:032x}")))]).value,
            ([only], _) => text(only),
            (parts, _) => Value::List(parts.iter().map(|part| node(text(part))).collect()),
        };
        let fields = [
            ("rule", text(&self.rule)),
            ("key", key),
            ("limit", text(&self.limit)),
        ];
        table(
            fields
                .into_iter()
                .chain(term(self.until, self.reason.as_ref())),
        )
    }
}

/// A switch that is set while a service runs: an entry of `[[switches]]`.
///
/// ```
/// use tollgate_rules::RuleSwitch;
///
/// let halved = RuleSwitch::all("50%").because("database is slow");
/// let off = RuleSwitch::rule("search-per-key", "off");
/// # let _ = (halved, off);
/// ```
#[must_use = "it is in force when it is given to a handle"]
#[derive(Clone, Debug)]
pub struct RuleSwitch {
    rules: String,
    limit: String,
    until: Option<SystemTime>,
    reason: Option<String>,
}

impl RuleSwitch {
    /// Switches all rules: `"off"`, `"shadow"`, or a part of their limits as `"50%"`.
    pub fn all(limit: impl Into<String>) -> Self {
        Self::rule("*", limit)
    }

    /// Switches the rule with this name.
    pub fn rule(rule: impl Into<String>, limit: impl Into<String>) -> Self {
        Self {
            rules: rule.into(),
            limit: limit.into(),
            until: None,
            reason: None,
        }
    }

    /// When it ends. Default: never.
    pub fn until(mut self, time: SystemTime) -> Self {
        self.until = Some(time);
        self
    }

    /// Why.
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    pub(crate) fn node(&self) -> Node {
        let text = |text: &String| Value::Text(text.clone());
        let fields = [("rules", text(&self.rules)), ("limit", text(&self.limit))];
        table(
            fields
                .into_iter()
                .chain(term(self.until, self.reason.as_ref())),
        )
    }
}

/// Without the key.
impl fmt::Debug for LimitOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitOverride")
            .field("rule", &self.rule)
            .field("limit", &self.limit)
            .field("until", &self.until)
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

fn node(value: Value) -> Node {
    Node { span: 0..0, value }
}

fn term(
    until: Option<SystemTime>,
    reason: Option<&String>,
) -> impl Iterator<Item = (&'static str, Value)> {
    // A time that the calendar does not have is as good as never.
    let end = until.and_then(|until| Timestamp::try_from(until).ok());
    let until = end.map(|end| ("until", Value::Text(end.to_string())));
    until
        .into_iter()
        .chain(reason.map(|reason| ("reason", Value::Text(reason.clone()))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::field;

    #[test]
    fn each_part_of_a_key_is_written() {
        let text = |text: &str| Value::Text(text.to_owned());
        let one = LimitOverride::new("api", "acme", "9/s");
        assert_eq!(field(&one.node(), "key"), Some(&text("acme")));
        let two = one.and_key("eu").node();
        let parts = Value::List(vec![node(text("acme")), node(text("eu"))]);
        assert_eq!(field(&two, "key"), Some(&parts));
    }
}
