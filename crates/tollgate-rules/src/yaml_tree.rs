//! Documents in YAML.

use std::{fmt, iter, ops::Range};

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::{Location, Spanned};

use crate::node::{DEPTH, Name, Node, Problems, Value};

/// For a document of a hundred thousand overrides with all their settings.
const NODES: usize = 5_000_000;
/// What aliases stand for, all of them together: some lines can stand for gigabytes.
const REPEATED: usize = 100_000;

/// The tree of a document, if it can be read.
pub(crate) fn parse(text: &str, problems: &Problems) -> Option<Node> {
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
    match serde_saphyr::from_str_with_options::<Spanned<Value>>(text, options) {
        Ok(root) => Some(node(root)),
        Err(error) => {
            let at = error.location();
            let span = at.map_or(0..0, |location| place(&location, text));
            let text_of_error = error.without_snippet().to_string();
            let message = text_of_error.lines().next().unwrap_or_default();
            let is_about = |what: &str| message.contains(what);
            let message = match message {
                _ if is_about("budget breached") || is_about("alias replay") => format!(
                    "this is more than is read: a document has at most {DEPTH} levels and {NODES} values, and its aliases stand for at most \
                     {REPEATED} of them; write less, or several documents"
                ),
                _ if is_about("multiple YAML documents") => {
                    "this is not YAML: there are several documents in one text; keep one".to_owned()
                }
                other => format!("this is not YAML: {other}"),
            };
            problems.add(span, message);
            None
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: de::Error>(self, boolean: bool) -> Result<Value, E> {
        Ok(Value::Bool(boolean))
    }

    fn visit_i64<E: de::Error>(self, integer: i64) -> Result<Value, E> {
        Ok(Value::Integer(integer.into()))
    }

    fn visit_u64<E: de::Error>(self, integer: u64) -> Result<Value, E> {
        Ok(Value::Integer(integer.into()))
    }

    fn visit_f64<E: de::Error>(self, float: f64) -> Result<Value, E> {
        Ok(Value::Float(float.to_string()))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let nodes = iter::from_fn(|| list.next_element().transpose()).map(|read| read.map(node));
        nodes.collect::<Result<_, _>>().map(Value::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<Value, A::Error> {
        let fields =
            iter::from_fn(|| table.next_entry::<Spanned<String>, _>().transpose()).map(|field| {
                let (name, value) = field?;
                let span = bytes(&name.defined);
                let text = name.value;
                Ok((Name { span, text }, node(value)))
            });
        fields.collect::<Result<_, _>>().map(Value::Table)
    }
}

fn node(read: Spanned<Value>) -> Node {
    Node {
        span: bytes(&read.defined),
        value: read.value,
    }
}

/// The bytes of a value, with spaces behind it.
fn bytes(location: &Location) -> Range<usize> {
    let span = location.span();
    let [start, len] = [span.byte_offset(), span.byte_len()]
        .map(|bytes| bytes.and_then(|bytes| usize::try_from(bytes).ok()));
    let start = start.unwrap_or_default();
    start..start.saturating_add(len.unwrap_or_default())
}

/// Where an error is. Of some the parser counts characters only.
fn place(location: &Location, text: &str) -> Range<usize> {
    let span = location.span();
    if span.byte_offset().is_some() {
        return bytes(location);
    }
    let characters = usize::try_from(span.offset()).unwrap_or(usize::MAX);
    let at = text
        .char_indices()
        .nth(characters)
        .map_or(text.len(), |(at, _)| at);
    at..at
}
