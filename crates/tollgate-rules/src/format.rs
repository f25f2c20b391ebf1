//! The syntax of a document: TOML, JSON as serde_json accepts it, and YAML, with the place of each value.

use std::{fmt, iter, ops::Range, path::Path};

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;
use serde_saphyr::{Location, Spanned};
use toml::de::{DeTable, DeValue};

use crate::node::{DEPTH, Name, Node, Problems, Value, floor};

/// The syntax of a document. All have one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// TOML 1.0
    Toml,
    /// YAML 1.2
    Yaml,
    /// JSON
    Json,
}

impl Format {
    /// The format that a file's extension says: `toml`, `yaml`, `yml` or `json`.
    #[must_use]
    pub fn of_path(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        match &*extension {
            "toml" => Some(Self::Toml),
            "yaml" | "yml" => Some(Self::Yaml),
            "json" => Some(Self::Json),
            _ => None,
        }
    }

    /// The tree of a text; what could be read of it, where something is wrong, or an empty table.
    pub(crate) fn parse(self, text: &str, problems: &Problems) -> Node {
        // Windows begins texts with it.
        let is_empty = text.trim_start_matches('\u{feff}').trim().is_empty();
        let read = match self {
            Self::Toml => Some(parse_toml(text, problems)),
            _ if is_empty => None,
            Self::Yaml => parse_yaml(text, problems),
            Self::Json => parse_json(text, problems),
        };
        read.unwrap_or_else(|| Node {
            span: 0..text.len(),
            value: Value::Table(Vec::new()),
        })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(["TOML", "YAML", "JSON"][*self as usize])
    }
}

fn parse_toml(text: &str, problems: &Problems) -> Node {
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        // A sentence of the parser's lines.
        let lines: Vec<&str> = error.message().lines().map(str::trim).collect();
        let message = format!("this is not TOML: {}", lines.join("; "));
        problems.add(error.span().unwrap_or(0..0), message);
    }
    Node {
        span: 0..text.len(),
        value: toml_table(table.get_ref()),
    }
}

fn toml_table(table: &DeTable<'_>) -> Value {
    let fields = table.iter().map(|(name, value)| {
        let (span, text) = (name.span(), name.get_ref().clone().into_owned());
        (Name { span, text }, toml_node(value))
    });
    let mut fields: Vec<(Name, Node)> = fields.collect();
    fields.sort_by_key(|(name, _)| name.span.start);
    Value::Table(fields)
}

fn toml_node(node: &toml::Spanned<DeValue<'_>>) -> Node {
    let value = match node.get_ref() {
        DeValue::String(text) => Value::Text(text.clone().into_owned()),
        DeValue::Integer(integer) => {
            match i128::from_str_radix(integer.as_str(), integer.radix()) {
                Ok(integer) => Value::Integer(integer),
                Err(_) => Value::Float(integer.as_str().to_owned()),
            }
        }
        DeValue::Float(float) => Value::Float(float.as_str().to_owned()),
        DeValue::Boolean(boolean) => Value::Bool(*boolean),
        DeValue::Datetime(time) => Value::Time(time.to_string()),
        DeValue::Array(list) => Value::List(list.iter().map(toml_node).collect()),
        DeValue::Table(fields) => toml_table(fields),
    };
    let span = node.span();
    Node { span, value }
}

fn parse_json(text: &str, problems: &Problems) -> Option<Node> {
    let json = text.strip_prefix('\u{feff}').unwrap_or(text);
    let root = serde_json::from_str(json).map_err(|wrong| syntax(text, json, &wrong));
    let read = root.and_then(|root| json_node(text, root, 0));
    read.map_err(|(span, message)| problems.add(span, format!("this is not JSON: {message}")))
        .ok()
}

type Wrong = (Range<usize>, String);

/// A value whose syntax is right.
fn json_node(text: &str, raw: &RawValue, depth: usize) -> Result<Node, Wrong> {
    let written = raw.get();
    let span = span(text, written);
    let value = match written.as_bytes() {
        [b'{' | b'[', ..] if depth == DEPTH => {
            let message = "tables and lists lie more than 32 deep in each other";
            return Err((span.start..span.start + 1, message.to_owned()));
        }
        [b'{', ..] => {
            let Fields(fields) = decode(text, raw)?;
            let fields = fields.into_iter().map(|(name, value)| {
                let span = self::span(text, name.get());
                let name = Name {
                    span,
                    text: decode(text, name)?,
                };
                Ok((name, json_node(text, value, depth + 1)?))
            });
            Value::Table(fields.collect::<Result<_, _>>()?)
        }
        [b'[', ..] => {
            let nodes: Vec<&RawValue> = decode(text, raw)?;
            let nodes = nodes.into_iter().map(|raw| json_node(text, raw, depth + 1));
            Value::List(nodes.collect::<Result<_, _>>()?)
        }
        [b'"', ..] => Value::Text(decode(text, raw)?),
        b"true" => Value::Bool(true),
        b"false" => Value::Bool(false),
        b"null" => Value::Null,
        _ => match written.parse() {
            Ok(number) => Value::Integer(number),
            Err(_) => Value::Float(written.to_owned()),
        },
    };
    Ok(Node { span, value })
}

/// Where a part of the text lies in it.
fn span(text: &str, part: &str) -> Range<usize> {
    let begin = part.as_ptr().addr() - text.as_ptr().addr();
    begin..begin + part.len()
}

/// Of what is looked through already, only the characters of a text may be wrong.
fn decode<'a, T: Deserialize<'a>>(text: &str, raw: &'a RawValue) -> Result<T, Wrong> {
    serde_json::from_str(raw.get()).map_err(|wrong| (span(text, raw.get()), words(&wrong)))
}

/// The fields of a table, each name as often as it is there.
struct Fields<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;

        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<Fields<'de>, A::Error> {
                let fields = iter::from_fn(|| table.next_entry().transpose());
                fields.collect::<Result<_, _>>().map(Fields)
            }
        }

        deserializer.deserialize_map(FieldsVisitor)
    }
}

/// Where and what is wrong, in the words of the parser.
fn syntax(text: &str, json: &str, wrong: &serde_json::Error) -> Wrong {
    let before_line: usize = json
        .split_inclusive('\n')
        .take(wrong.line().saturating_sub(1))
        .map(str::len)
        .sum();
    let at = match wrong.is_eof() {
        true => text.len(),
        // It counts from 1, and what ends a line as the beginning of the next one.
        false => text.len() - json.len() + (before_line + wrong.column()).saturating_sub(1),
    };
    // It counts bytes, and may name one within a character.
    let at = floor(text, at);
    let here = text[at..].chars().next();
    let hint = match here {
        Some('/' | '#') => "; JSON has no comments",
        Some('}' | ']') if text[..at].trim_end().ends_with(',') => "; remove the comma before it",
        _ => "",
    };
    let message = words(wrong) + hint;
    (at..at + here.map_or(0, char::len_utf8), message)
}

/// What the parser says, without the place.
fn words(wrong: &serde_json::Error) -> String {
    let said = wrong.to_string();
    let words = said.rsplit_once(" at line ").map(|(words, _)| words);
    words.unwrap_or(&said).to_owned()
}

/// For a document of a hundred thousand overrides with all their settings.
const NODES: usize = 5_000_000;
/// What aliases stand for, all of them together: some lines can stand for gigabytes.
const REPEATED: usize = 100_000;

/// The tree of a document, if it can be read.
fn parse_yaml(text: &str, problems: &Problems) -> Option<Node> {
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
        Ok(root) => Some(yaml_node(root)),
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
        let nodes =
            iter::from_fn(|| list.next_element().transpose()).map(|read| read.map(yaml_node));
        nodes.collect::<Result<_, _>>().map(Value::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<Value, A::Error> {
        let fields =
            iter::from_fn(|| table.next_entry::<Spanned<String>, _>().transpose()).map(|field| {
                let (name, value) = field?;
                let span = bytes(&name.defined);
                let text = name.value;
                Ok((Name { span, text }, yaml_node(value)))
            });
        fields.collect::<Result<_, _>>().map(Value::Table)
    }
}

fn yaml_node(read: Spanned<Value>) -> Node {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Number};

    use super::*;

    fn read(text: &str) -> Result<Value, String> {
        let problems = Problems::default();
        let node = Format::Json.parse(text, &problems);
        match problems.into_sorted().pop() {
            None => Ok(node.value),
            Some(problem) => Err(format!("{:?} {}", problem.span, problem.message)),
        }
    }

    fn plain(value: &Value) -> serde_json::Value {
        match value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(boolean) => (*boolean).into(),
            Value::Integer(number) => Number::from_i128(*number).expect("a number").into(),
            // Exactly: serde_json is one bit off where its feature `float_roundtrip` is not on.
            Value::Float(text) => text.parse::<f64>().expect("a number").into(),
            Value::Time(_) => unreachable!("JSON has no times"),
            Value::Text(text) => text.clone().into(),
            Value::List(nodes) => nodes.iter().map(|node| plain(&node.value)).collect(),
            Value::Table(fields) => {
                let fields = fields
                    .iter()
                    .map(|(name, node)| (name.text.clone(), plain(&node.value)));
                serde_json::Value::Object(fields.collect::<Map<_, _>>())
            }
        }
    }

    #[test]
    fn each_escape_is_its_character() {
        for (text, value) in [
            (r#""\"\\\/\b\f\n\r\t""#, "\"\\/\u{8}\u{c}\n\r\t"),
            (r#""\u00e4\uD83D\uDE00""#, "\u{e4}\u{1f600}"),
            // The last character before the halves, and the first one behind them.
            (r#""\ud7ff\u0041\ue000""#, "\u{d7ff}A\u{e000}"),
            // Windows begins texts with a mark of three bytes.
            ("\u{feff}\"a\"", "a"),
        ] {
            assert_eq!(read(text), Ok(Value::Text(value.to_owned())), "{text}");
        }
        for half in [r#""\ude00""#, r#""\ud83d\u0041""#] {
            assert!(read(half).is_err(), "{half}");
        }
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            (-1e6..1e6_f64).prop_map(Into::into),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 64, 8, |inner| {
            let list = prop::collection::vec(inner.clone(), 0..8);
            let table = prop::collection::btree_map(any::<String>(), inner, 0..8);
            prop_oneof![
                list.prop_map(Into::into),
                table.prop_map(|fields| fields.into_iter().collect::<Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_serde_json_writes_is_read_as_it_was(value in any_json(), is_pretty: bool) {
            let text = match is_pretty {
                true => serde_json::to_string_pretty(&value),
                false => serde_json::to_string(&value),
            };
            let read = read(&text.expect("JSON")).expect("it is JSON");
            prop_assert_eq!(plain(&read), value);
        }

        #[test]
        fn what_is_no_json_has_its_place(text in "[\\[\\]{}:,\"\\\\u019.eE+ \\-atrfnlä\n\t'/]{1,24}") {
            let problems = Problems::default();
            Format::Json.parse(&text, &problems);
            for problem in problems.into_sorted() {
                prop_assert!(text.get(problem.span.clone()).is_some(), "{:?}", problem);
            }
        }
    }
}
