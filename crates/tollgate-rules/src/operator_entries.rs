//! What operators set beside a document: overrides and switches, and who set each.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use jiff::Timestamp;
use tollgate_core::Tick;

use crate::{
    author::Author,
    json_text::{json_text, one_line},
    limit_override::{EntryKind, NewEntry},
    node::{Node, Value, field, table},
};

/// How many an operator may set. What is meant to last is better in the document.
const MOST: usize = 1_000;
/// The most bytes of all together, as they are stored.
const MOST_BYTES: usize = 1 << 20;

/// One override or switch that an operator set.
#[derive(Clone)]
pub(crate) struct OperatorEntry {
    /// Of a change in Redis its revision; of one in a process a number of its own.
    pub(crate) id: u64,
    pub(crate) is_local: bool,
    pub(crate) by: Author,
    pub(crate) at: Tick,
    pub(crate) kind: EntryKind,
    /// As a document writes it.
    pub(crate) node: Node,
    /// What the rule counted by, where the entry names its client by a hash: that says nothing of it.
    pub(crate) counted_by: Option<String>,
}

/// All of them, with the push that they lie beside.
#[derive(Clone, Default)]
pub(crate) struct OperatorEntries {
    pub(crate) all: Vec<Arc<OperatorEntry>>,
    /// The push of the document, where an operator changed something since.
    pub(crate) pushed: Option<Pushed>,
}

/// The push of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pushed {
    pub(crate) revision: u64,
    pub(crate) by: Author,
    pub(crate) at: Tick,
}

impl OperatorEntries {
    /// Adds an entry. It takes the place of one of the same rules and client.
    ///
    /// # Errors
    ///
    /// There are too many.
    pub(crate) fn set(&mut self, entry: Arc<OperatorEntry>) -> Result<(), String> {
        self.all.retain(|other| !other.is_for_same(&entry));
        self.all.push(entry);
        if self.all.len() > MOST || self.text().len() > MOST_BYTES {
            return Err(format!(
                "operators may set {MOST} overrides and switches with {MOST_BYTES} bytes; end some of them, or write them into the document"
            ));
        }
        Ok(())
    }

    /// Drops one.
    ///
    /// # Errors
    ///
    /// There is none with this number.
    pub(crate) fn end(&mut self, id: u64) -> Result<(), String> {
        let before = self.all.len();
        self.all.retain(|entry| entry.id != id);
        if self.all.len() < before {
            return Ok(());
        }
        let ids = self.all.iter().take(20).map(|entry| entry.id.to_string());
        let known = match before {
            0 => "nothing is set".to_owned(),
            _ => format!("there are {}", ids.collect::<Vec<_>>().join(", ")),
        };
        Err(format!(
            "no override and no switch that was set has the number {id}; {known}"
        ))
    }

    /// Drops those whose time was over.
    pub(crate) fn drop_expired(&mut self, now: Tick) {
        self.all.retain(|entry| entry.until() > now);
    }

    /// As they are stored. Empty: there is nothing to say.
    pub(crate) fn text(&self) -> String {
        if self.all.is_empty() && self.pushed.is_none() {
            return String::new();
        }
        let pushed = self.pushed.iter().map(|pushed| {
            let revision = ("revision", Value::Integer(pushed.revision.into()));
            let push = table([revision].into_iter().chain(signed(&pushed.by, pushed.at)));
            ("pushed", push.value)
        });
        let entries = self.all.iter().map(|entry| entry.stored()).collect();
        let entries = [("entries", Value::List(entries))];
        json_text(&table(pushed.chain(entries)))
    }
}

/// Without the push: a document that was pushed again is the same.
impl Hash for OperatorEntries {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for entry in &self.all {
            one_line(&entry.stored().value).hash(state);
        }
    }
}

impl OperatorEntry {
    pub(crate) fn new(id: u64, by: &Author, at: Tick, entry: NewEntry) -> Self {
        Self {
            id,
            is_local: false,
            by: by.clone(),
            at,
            kind: entry.kind,
            node: entry.node,
            counted_by: None,
        }
    }

    fn is_for_same(&self, other: &Self) -> bool {
        let names = |entry: &Self| {
            ["rule", "rules", "key"].map(|name| field(&entry.node, name).map(one_line))
        };
        self.kind == other.kind && names(self) == names(other)
    }

    /// When it ends; `Tick::MAX`: never, or this is no time.
    pub(crate) fn until(&self) -> Tick {
        match field(&self.node, "until") {
            Some(Value::Text(until)) => until.parse().map_or(Tick::MAX, micros),
            _ => Tick::MAX,
        }
    }

    fn stored(&self) -> Node {
        let counted_by = self.counted_by.iter();
        let counted_by = counted_by.map(|by| ("counted_by", Value::Text(by.clone())));
        let entry = (self.kind.name(), self.node.value.clone());
        let id = ("id", Value::Integer(self.id.into()));
        let fields = [id].into_iter().chain(signed(&self.by, self.at));
        table(fields.chain(counted_by).chain([entry]))
    }
}

/// Who and when, as it is stored.
fn signed(by: &Author, at: Tick) -> [(&'static str, Value); 3] {
    [
        ("by", Value::Text(by.actor().to_owned())),
        ("because", Value::Text(by.reason().to_owned())),
        ("at", Value::Integer(at.into())),
    ]
}

/// Before 1970 it is over.
fn micros(time: Timestamp) -> Tick {
    Tick::try_from(time.as_microsecond()).unwrap_or(0)
}
