//! Documents in YAML.

use std::{fmt, iter, ops::Range};

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::{Location, Spanned};

use crate::node::{Name, Node, Problems, Value};

/// How deep tables and lists may lie in each other.
const DEPTH: usize = 32;
/// For a document of a hundred thousand overrides with all their settings.
const NODES: usize = 5_000_000;
/// What aliases stand for, all of them together: some lines can stand for gigabytes.
const REPEATED: usize = 100_000;

/// The tree of a document. An empty table where it cannot be read.
pub(crate) fn parse(text: &str, problems: &Problems) -> Node {
    let nothing = Node {
        span: 0..text.len(),
        value: Value::Table(Vec::new()),
    };
    if text.trim().is_empty() {
        return nothing;
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEPTH,
            max_nodes: NODES,
            max_events: 2 * NODES,
            max_total_scalar_bytes: 64 << 20,
            // Rules may share a table by many aliases; what they stand for together is bounded.
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: REPEATED,
        },
        with_snippet: false,
        // As in YAML 1.2: `mode: off` is a text.
        strict_booleans: true,
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::PassThrough,
    };
    match serde_saphyr::from_str_with_options::<Tree>(text, options) {
        Ok(tree) => node(tree, text),
        Err(error) => {
            let at = error.location();
            let span = at.map_or(0..0, |location| span(&location, text));
            let message = error.without_snippet().to_string();
            let message = message.lines().next().unwrap_or_default();
            if message.contains("budget breached") || message.contains("alias replay") {
                let message = format!(
                    "this is more than is read: a document has at most {DEPTH} levels and {NODES} values, and its aliases stand for at most \
                     {REPEATED} of them; write less, or several documents"
                );
                problems.add(span, message);
                return nothing;
            }
            let message = match message.contains("multiple YAML documents") {
                true => "there are several documents in one text; keep one",
                false => message,
            };
            problems.add(span, format!("this is not YAML: {message}"));
            nothing
        }
    }
}

type Tree = Spanned<Branch>;

/// A value, whose parts have their places.
enum Branch {
    Leaf(Value),
    List(Vec<Tree>),
    Table(Vec<(Spanned<String>, Tree)>),
}

impl<'de> Deserialize<'de> for Branch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BranchVisitor)
    }
}

struct BranchVisitor;

impl<'de> Visitor<'de> for BranchVisitor {
    type Value = Branch;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Branch, E> {
        Ok(Branch::Leaf(Value::Null))
    }

    fn visit_bool<E: de::Error>(self, boolean: bool) -> Result<Branch, E> {
        Ok(Branch::Leaf(Value::Bool(boolean)))
    }

    fn visit_i64<E: de::Error>(self, integer: i64) -> Result<Branch, E> {
        Ok(Branch::Leaf(Value::Integer(integer.into())))
    }

    fn visit_u64<E: de::Error>(self, integer: u64) -> Result<Branch, E> {
        Ok(Branch::Leaf(Value::Integer(integer.into())))
    }

    fn visit_f64<E: de::Error>(self, float: f64) -> Result<Branch, E> {
        Ok(Branch::Leaf(Value::Float(float.to_string())))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Branch, E> {
        Ok(Branch::Leaf(Value::Text(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Branch, A::Error> {
        let nodes = iter::from_fn(|| list.next_element().transpose());
        nodes.collect::<Result<_, _>>().map(Branch::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<Branch, A::Error> {
        let fields = iter::from_fn(|| table.next_entry().transpose());
        fields.collect::<Result<_, _>>().map(Branch::Table)
    }
}

fn node(tree: Tree, text: &str) -> Node {
    let value = match tree.value {
        Branch::Leaf(value) => value,
        Branch::List(list) => Value::List(list.into_iter().map(|it| node(it, text)).collect()),
        Branch::Table(fields) => {
            let fields = fields.into_iter().map(|(name, tree)| {
                let (span, name) = (span(&name.defined, text), name.value);
                (Name { span, text: name }, node(tree, text))
            });
            Value::Table(fields.collect())
        }
    };
    Node {
        span: span(&tree.defined, text),
        value,
    }
}

/// The bytes of a place. Where the parser knows none, those from the line and the column.
fn span(location: &Location, text: &str) -> Range<usize> {
    let span = location.span();
    if let (Some(start), Some(len)) = (span.byte_offset(), span.byte_len()) {
        let start = usize::try_from(start).unwrap_or(usize::MAX).min(text.len());
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let end = start.saturating_add(len).min(text.len());
        let marked = text.get(start..end).unwrap_or_default();
        return start..start + marked.trim_end().len();
    }
    let line = usize::try_from(location.line()).unwrap_or(1).max(1);
    let column = usize::try_from(location.column()).unwrap_or(1).max(1);
    let begin: usize = text
        .split_inclusive('\n')
        .take(line - 1)
        .map(str::len)
        .sum();
    let rest = text.get(begin..).unwrap_or_default();
    let start = rest.char_indices().nth(column - 1);
    let start = begin + start.map_or(rest.len(), |(at, _)| at);
    start..start
}
