//! An override or a switch that is set while a service runs.

use std::{fmt, time::SystemTime};

use jiff::Timestamp;

use crate::{
    document_tree::table,
    node::{Node, Value},
};

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
    limit: String,
    until: Option<SystemTime>,
    reason: Option<String>,
}

impl LimitOverride {
    /// The limit of the client with this key under a rule, as a document writes both: `"unlimited"` is one too.
    pub fn new(rule: impl Into<String>, key: impl Into<String>, limit: impl Into<String>) -> Self {
        Self {
            rule: rule.into(),
            key: vec![key.into()],
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
        let key = match &self.key[..] {
            [only] => text(only),
            parts => Value::List(parts.iter().map(|part| node(text(part))).collect()),
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
