//! What operators set, as it is read from Redis.

use std::sync::Arc;

use tollgate_core::Tick;

use crate::{
    author::Author,
    json_tree,
    limit_override::EntryKind,
    node::{Node, Value, field, table},
    operator_entries::{OperatorEntries, OperatorEntry, Pushed},
    problems::Problems,
};

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
        let pushed = field(&root, "pushed").map(|push| {
            let node = node(push.clone());
            let (by, at) = signature(&node);
            let revision = integer(&node, "revision");
            Pushed { revision, by, at }
        });
        let all = match field(&root, "entries") {
            Some(Value::List(entries)) => entries.iter().map(OperatorEntry::read).collect(),
            _ => None,
        };
        let all: Option<Vec<_>> = all.filter(|_| problems.is_empty());
        let all =
            all.ok_or("what operators set is of a newer version of tollgate; update this program")?;
        Ok(Self { all, pushed })
    }
}

impl OperatorEntry {
    /// Names the client by its hash.
    pub(crate) fn hash_key(&mut self, hash: u128, counted_by: String) {
        if let Value::Table(fields) = &mut self.node.value
            && let Some((_, key)) = fields.iter_mut().find(|(name, _)| name.text == "key")
        {
            key.value = table([("hash", Value::Text(format!("{hash:032x}")))]).value;
        }
        self.counted_by = Some(counted_by);
    }

    fn read(stored: &Node) -> Option<Arc<Self>> {
        let kinds = [EntryKind::Override, EntryKind::Switch].into_iter();
        let mut found = kinds.filter_map(|kind| Some((kind, field(stored, kind.name())?)));
        let (kind, entry) = found.next()?;
        let (by, at) = signature(stored);
        let counted_by = field(stored, "counted_by").is_some();
        Some(Arc::new(Self {
            id: integer(stored, "id"),
            is_local: false,
            by,
            at,
            kind,
            node: node(entry.clone()),
            counted_by: counted_by.then(|| text(stored, "counted_by")),
        }))
    }
}

fn signature(node: &Node) -> (Author, Tick) {
    let by = Author::new(text(node, "by")).because(text(node, "because"));
    (by, integer(node, "at"))
}

fn text(node: &Node, name: &str) -> String {
    match field(node, name) {
        Some(Value::Text(text)) => text.clone(),
        _ => String::new(),
    }
}

fn integer(node: &Node, name: &str) -> u64 {
    match field(node, name) {
        Some(Value::Integer(number)) => u64::try_from(*number).unwrap_or(0),
        _ => 0,
    }
}

fn node(value: Value) -> Node {
    Node { span: 0..0, value }
}
