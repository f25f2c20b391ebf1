//! Overrides and switches that operators set beside a document: what is asked for, what is set, and who did.

use std::{fmt, time::SystemTime};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tollgate_core::Tick;

use crate::{
    audit::Author,
    format::Format,
    node::{Node, Value, table},
    term::Term,
};

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EntryKind {
    /// A client's own limit.
    Override,
    /// What rules are switched to.
    Switch,
}

impl EntryKind {
    /// In one word: `override`, `switch`.
    #[must_use]
    pub fn name(self) -> &'static str {
        ["override", "switch"][self as usize]
    }
}

/// A client's own limit, or a switch of rules, set while a service runs: an entry of `[[overrides]]` or `[[switches]]`.
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
///
/// use tollgate_rules::OperatorEntry;
///
/// let raised = OperatorEntry::limit("search-per-key", "acme-key-1", "500/s burst 1000")
///     .until(UNIX_EPOCH + Duration::from_secs(1_900_000_000))
///     .because("launch week, ticket 4711");
/// let halved = OperatorEntry::switch("*", "50%").because("the database is slow");
/// # let _ = (raised, halved);
/// ```
#[must_use = "it is in force when it is given to a handle"]
#[derive(Clone, Serialize, Deserialize)]
// What this version does not know would be lost with its next change.
#[serde(deny_unknown_fields)]
pub struct OperatorEntry {
    /// The rule of an override; that of a switch, or `*`.
    pub(crate) rule: String,
    /// Of an override. A switch has none.
    pub(crate) client: Option<NamedBy>,
    /// As a document writes it.
    pub(crate) limit: String,
    pub(crate) term: Term,
    /// Of a change in Redis its revision; of one in a process a number of its own. 0: it is not set yet.
    pub(crate) id: u64,
    #[serde(skip)]
    pub(crate) is_local: bool,
    pub(crate) by: Author,
    pub(crate) at: Tick,
    /// What the rule counted by, where the entry names its client by a hash: that says nothing of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) counted_by: Option<String>,
}

/// How an entry names its client.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NamedBy {
    /// The parts of its key.
    Key(Vec<String>),
    /// The hash of that, in hexadecimal digits.
    Hash(String),
}

impl NamedBy {
    pub(crate) fn hash(hash: u128) -> Self {
        Self::Hash(format!("{hash:032x}"))
    }

    /// As a document writes it.
    pub(crate) fn value(&self) -> Value {
        let text = |text: &String| Value::Text(text.clone());
        match self {
            Self::Hash(hash) => table([("hash", text(hash))]).value,
            Self::Key(parts) => match &parts[..] {
                [only] => text(only),
                parts => Value::List(parts.iter().map(|part| Node::new(text(part))).collect()),
            },
        }
    }
}

impl OperatorEntry {
    /// The limit of the client with this key under a rule, as a document writes both: `"none"` blocks it, `"unlimited"` is a limit
    /// too, and so is `"200%"` of the rule's own.
    pub fn limit(
        rule: impl Into<String>,
        key: impl Into<String>,
        limit: impl Into<String>,
    ) -> Self {
        let client = Some(NamedBy::Key(vec![key.into()]));
        Self::new(rule, client, limit)
    }

    /// The same of a client that is known by its [hash](crate::operators::Explanation::key_hash) alone.
    pub fn limit_of_hash(rule: impl Into<String>, hash: u128, limit: impl Into<String>) -> Self {
        let client = Some(NamedBy::hash(hash));
        Self::new(rule, client, limit)
    }

    /// Switches the rule with this name, or all with `"*"`: `"off"`, `"shadow"`, or to a part of its limits as `"50%"`.
    pub fn switch(rule: impl Into<String>, to: impl Into<String>) -> Self {
        Self::new(rule, None, to)
    }

    fn new(rule: impl Into<String>, client: Option<NamedBy>, limit: impl Into<String>) -> Self {
        Self {
            rule: rule.into(),
            client,
            limit: limit.into(),
            term: Term::EVER,
            id: 0,
            is_local: false,
            by: Author::new(""),
            at: 0,
            counted_by: None,
        }
    }

    /// The next part of a client's key, where the rule counts by several. A [hash](Self::limit_of_hash) is that of all parts: with a
    /// further one, the entry is refused when it is set.
    pub fn and_key(mut self, part: impl Into<String>) -> Self {
        match &mut self.client {
            Some(NamedBy::Key(parts)) => parts.push(part.into()),
            Some(NamedBy::Hash(hash)) => hash.push_str(" and a part"),
            None => {}
        }
        self
    }

    /// When it ends. Default: never.
    pub fn until(mut self, time: SystemTime) -> Self {
        // Before 1970 it is over. A time that the calendar does not have is as good as never.
        self.term.until = Timestamp::try_from(time).map_or(Tick::MAX, |end| {
            Tick::try_from(end.as_microsecond()).unwrap_or(0)
        });
        self
    }

    /// Why.
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        let reason = Some(reason.into()).filter(|reason| !reason.is_empty());
        self.term.reason = reason.map(Into::into);
        self
    }

    /// Whether it is an override or a switch.
    #[must_use]
    pub fn kind(&self) -> EntryKind {
        match self.client {
            Some(_) => EntryKind::Override,
            None => EntryKind::Switch,
        }
    }

    /// As a document writes it.
    pub(crate) fn node(&self) -> Node {
        let text = |text: &str| Some(Value::Text(text.to_owned()));
        let rule = ["rule", "rules"][self.kind() as usize];
        let end = self.term.timestamp().map(|end| end.to_string());
        let fields = [
            (rule, text(&self.rule)),
            ("key", self.client.as_ref().map(NamedBy::value)),
            ("limit", text(&self.limit)),
            ("until", end.as_deref().and_then(text)),
            ("reason", self.term.reason.as_deref().and_then(text)),
        ];
        let said = fields.into_iter();
        table(said.filter_map(|(name, value)| Some((name, value?))))
    }

    /// The lines to add to a document, with the key as it was given.
    #[must_use]
    pub fn text(&self, format: Format) -> String {
        let (list, node) = (["overrides", "switches"][self.kind() as usize], self.node());
        // What JSON writes of a text or a list is TOML and YAML as well.
        match format {
            Format::Toml => {
                let lines = node
                    .fields()
                    .iter()
                    .map(|(name, node)| match node.text_of("hash") {
                        Some(hash) => format!("{} = {{ hash = \"{hash}\" }}\n", name.text),
                        None => format!("{} = {}\n", name.text, node.value),
                    });
                format!("[[{list}]]\n{}", lines.collect::<String>())
            }
            Format::Yaml => format!("{list}:\n  - {}\n", node.value),
            Format::Json => format!("\"{list}\": [{}]\n", node.value),
        }
    }

    /// As it is set.
    pub(crate) fn set(self, id: u64, by: &Author, at: Tick) -> Self {
        let by = by.clone();
        Self { id, by, at, ..self }
    }

    /// Names the client by its hash, for which there is a secret.
    #[cfg(feature = "redis")]
    pub(crate) fn hash_key(&mut self, hash: u128, counted_by: String) {
        self.client = Some(NamedBy::hash(hash));
        self.counted_by = Some(counted_by);
    }
}

/// In a line, without the key.
impl fmt::Display for OperatorEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rule, limit, term, by) = (&self.rule, &self.limit, &self.term, self.by.actor());
        let client = match self.client {
            Some(_) => " for one key",
            None => "",
        };
        write!(f, "{rule}: {limit}{client}{term}, set by {by}")
    }
}

// Without the key.
tollgate_core::debug_fields!(OperatorEntry, it => kind: it.kind(), id: it.id);

/// How many an operator may set. What is meant to last is better in the document.
const MOST: usize = 1_000;
/// The most bytes of all together, as they are stored.
const MOST_BYTES: usize = 1 << 20;

/// All of them, with the push that they lie beside.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OperatorEntries {
    pub(crate) all: Vec<OperatorEntry>,
    /// The push of the document, where an operator changed something since, or it has to say what is lost.
    pub(crate) pushed: Option<Pushed>,
}

/// The push of a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pushed {
    pub(crate) revision: u64,
    pub(crate) by: Author,
    pub(crate) at: Tick,
    /// What operators had set up to this revision is lost: Redis had an older one, or none, when processes had this in force.
    pub(crate) lost: Option<u64>,
}

impl OperatorEntries {
    /// Adds an entry. It takes the place of one of the same rules and client.
    ///
    /// # Errors
    ///
    /// There are too many.
    pub(crate) fn set(&mut self, entry: OperatorEntry) -> Result<(), String> {
        let is_other = |it: &OperatorEntry| (&it.rule, &it.client) != (&entry.rule, &entry.client);
        self.all.retain(is_other);
        self.all.push(entry);
        if self.all.len() > MOST || self.text().len() > MOST_BYTES {
            return Err(format!(
                "operators may set {MOST} overrides and switches with {MOST_BYTES} bytes; end some of them, or write them into the document"
            ));
        }
        Ok(())
    }

    /// Drops these.
    ///
    /// # Errors
    ///
    /// There is none with one of the numbers.
    pub(crate) fn end(&mut self, ids: &[u64]) -> Result<(), String> {
        let is_there = |id: &&u64| self.all.iter().any(|entry| entry.id == **id);
        if let Some(unknown) = ids.iter().find(|id| !is_there(id)) {
            return Err(format!(
                "no override and no switch that was set has the number {unknown}"
            ));
        }
        self.all.retain(|entry| !ids.contains(&entry.id));
        Ok(())
    }

    /// Drops those whose time was over.
    pub(crate) fn drop_expired(&mut self, now: Tick) {
        self.all.retain(|entry| entry.term.until > now);
    }

    /// If Redis has lost some of those from before, which is what the push says: a line for each that has ended by that, or is there
    /// again. `None`: it has lost none.
    pub(crate) fn lost_of(&self, before: &Self, now: Tick) -> Option<Vec<String>> {
        self.pushed.as_ref()?.lost?;
        let mut lines = Vec::new();
        for (one, other, what) in [
            (before, self, "lost with Redis, set it again"),
            (self, before, "in force again from an older state of Redis"),
        ] {
            let is_in = |entry: &OperatorEntry| other.all.iter().any(|it| it.id == entry.id);
            let gone = one
                .all
                .iter()
                .filter(|entry| !is_in(entry))
                .filter(|entry| entry.term.until > now);
            lines.extend(gone.map(|entry| format!("{what}: {entry}")));
        }
        Some(lines)
    }

    /// As they are stored. Empty: there is nothing to say.
    pub(crate) fn text(&self) -> String {
        if self.all.is_empty() && self.pushed.is_none() {
            return String::new();
        }
        // Its tables have texts as names.
        serde_json::to_string(self).expect("it is JSON")
    }

    /// Reads what [`text`](Self::text) has written.
    ///
    /// # Errors
    ///
    /// Another version has written it.
    #[cfg(feature = "redis")]
    pub(crate) fn read(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        serde_json::from_str(text).map_err(|_| {
            "another version of tollgate has stored what operators set: take that version, or replace the rules and all that operators \
             set (RedisRules::replace_all, `tollgate rules push --replace-all`)"
        })
    }
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_by_this_version_and_by_no_other() {
        let stored = r#"{"all":[{"rule":"api","client":{"hash":"9f86d081884c7d659a2feaa0c55ad015"},"limit":"20/h","#.to_owned()
            + r#""term":{"until":1900000000000000,"reason":"launch"},"id":2,"by":{"actor":"alice","reason":""},"at":5,"#
            + r#""counted_by":"header:x-api-key"},{"rule":"*","client":null,"limit":"50%","#
            + r#""term":{"until":18446744073709551615,"reason":null},"id":3,"by":{"actor":"bob","reason":""},"at":6}],"#
            + r#""pushed":{"revision":1,"by":{"actor":"ci","reason":""},"at":4,"lost":null}}"#;
        let read = OperatorEntries::read(&stored).expect("stored by this version");
        assert_eq!(read.text(), stored);
        for field in ["\"client\"", "\"reason\"", "\"pushed\"", "\"lost\""] {
            let other = stored.replace(field, "\"other\"");
            assert!(OperatorEntries::read(&other).is_err(), "{field}");
        }
    }
}
