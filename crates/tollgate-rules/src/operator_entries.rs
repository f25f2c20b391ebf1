//! What operators set beside a document: overrides and switches, and who set each.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use tollgate_core::Tick;

use crate::{
    audit::Author,
    json_text::{json_text, one_line},
    node::{Node, Value, table},
    operator_entry::OperatorEntry,
};

/// How many an operator may set. What is meant to last is better in the document.
const MOST: usize = 1_000;
/// The most bytes of all together, as they are stored.
const MOST_BYTES: usize = 1 << 20;

/// All of them, with the push that they lie beside.
#[derive(Clone, Default)]
pub(crate) struct OperatorEntries {
    pub(crate) all: Vec<Arc<OperatorEntry>>,
    /// The push of the document, where an operator changed something since, or it has to say what is lost.
    pub(crate) pushed: Option<Pushed>,
}

/// The push of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
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

    /// Drops these.
    ///
    /// # Errors
    ///
    /// There is none with one of the numbers.
    pub(crate) fn end(&mut self, ids: &[u64]) -> Result<(), String> {
        let is_there = |id: &&u64| self.all.iter().any(|entry| entry.id == **id);
        let Some(unknown) = ids.iter().find(|id| !is_there(id)) else {
            self.all.retain(|entry| !ids.contains(&entry.id));
            return Ok(());
        };
        let known = self.all.iter().take(20).map(|entry| entry.id.to_string());
        let known = match self.all.len() {
            0 => "nothing is set".to_owned(),
            _ => format!("there are {}", known.collect::<Vec<_>>().join(", ")),
        };
        Err(format!(
            "no override and no switch that was set has the number {unknown}; {known}"
        ))
    }

    /// Drops those whose time was over.
    pub(crate) fn drop_expired(&mut self, now: Tick) {
        self.all.retain(|entry| entry.end() > now);
    }

    /// If Redis has lost some of those from before, which is what the push says: a line for each that has ended by that, or is there
    /// again. `None`: it has lost none.
    pub(crate) fn lost_of(&self, before: &Self, now: Tick) -> Option<Vec<String>> {
        self.pushed.as_ref()?.lost?;
        let not_in = |one: &Self, other: &Self, what: &str| {
            let is_in = |entry: &OperatorEntry| other.all.iter().any(|it| it.id == entry.id);
            let gone = one
                .all
                .iter()
                .filter(|entry| !is_in(entry) && entry.end() > now);
            gone.map(|entry| format!("{what}: {entry}"))
                .collect::<Vec<_>>()
        };
        let mut lines = not_in(before, self, "lost with Redis, set it again");
        lines.extend(not_in(
            self,
            before,
            "in force again from an older state of Redis",
        ));
        Some(lines)
    }

    /// As they are stored. Empty: there is nothing to say.
    pub(crate) fn text(&self) -> String {
        if self.all.is_empty() && self.pushed.is_none() {
            return String::new();
        }
        let pushed = self.pushed.iter().map(|pushed| {
            let revision = [("revision", Value::Integer(pushed.revision.into()))];
            let push = revision.into_iter().chain(signed(&pushed.by, pushed.at));
            let lost = pushed
                .lost
                .map(|lost| ("lost", Value::Integer(lost.into())));
            ("pushed", table(push.chain(lost)).value)
        });
        let entries = self.all.iter().map(|entry| stored(entry)).collect();
        json_text(&table(pushed.chain([("entries", Value::List(entries))])))
    }
}

/// Without the push: a document that was pushed again is the same.
impl Hash for OperatorEntries {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for entry in &self.all {
            one_line(&stored(entry).value).hash(state);
        }
    }
}

fn stored(entry: &OperatorEntry) -> Node {
    let id = [("id", Value::Integer(entry.id.into()))];
    let counted_by = entry.counted_by.iter();
    let counted_by = counted_by.map(|by| ("counted_by", Value::Text(by.clone())));
    let fields = id.into_iter().chain(signed(&entry.by, entry.at));
    table(
        fields
            .chain(counted_by)
            .chain([(entry.kind.name(), entry.node.value.clone())]),
    )
}

/// Who and when, as it is stored.
fn signed(by: &Author, at: Tick) -> [(&'static str, Value); 3] {
    [
        ("by", Value::Text(by.actor().to_owned())),
        ("because", Value::Text(by.reason().to_owned())),
        ("at", Value::Integer(at.into())),
    ]
}

/// Reading what was stored.
#[cfg(feature = "redis")]
mod reading {
    use super::*;
    use crate::{json_tree, operator_entry::EntryKind, problems::Problems};

    impl OperatorEntries {
        /// Reads what [`text`](Self::text) has written.
        ///
        /// # Errors
        ///
        /// Another version has written it.
        pub(crate) fn read(text: &str) -> Result<Self, &'static str> {
            if text.is_empty() {
                return Ok(Self::default());
            }
            let problems = Problems::default();
            let root = json_tree::parse(text, &problems);
            let pushed = root.get("pushed").map(|push| Pushed {
                revision: integer(push, "revision").unwrap_or(0),
                by: author(push),
                at: integer(push, "at").unwrap_or(0),
                lost: integer(push, "lost"),
            });
            let all = root.get("entries").filter(|_| problems.is_empty());
            let all = all.and_then(|entries| entries.items().iter().map(entry).collect());
            let newer = "what operators set is of a newer version of tollgate; update this program";
            Ok(Self {
                all: all.ok_or(newer)?,
                pushed,
            })
        }
    }

    fn entry(stored: &Node) -> Option<Arc<OperatorEntry>> {
        let mut kinds = [EntryKind::Override, EntryKind::Switch].into_iter();
        let (kind, said) = kinds.find_map(|kind| Some((kind, stored.get(kind.name())?)))?;
        let mut entry = OperatorEntry::new(kind, said.clone());
        entry.counted_by = stored.text_of("counted_by").map(str::to_owned);
        let [id, at] = ["id", "at"].map(|name| integer(stored, name).unwrap_or(0));
        Some(Arc::new(entry.set(id, &author(stored), at)))
    }

    fn author(node: &Node) -> Author {
        let [by, because] = ["by", "because"].map(|name| node.text_of(name).unwrap_or_default());
        Author::new(by).because(because)
    }

    fn integer(node: &Node, name: &str) -> Option<u64> {
        match node.get(name)?.value {
            Value::Integer(number) => u64::try_from(number).ok(),
            _ => None,
        }
    }
}
