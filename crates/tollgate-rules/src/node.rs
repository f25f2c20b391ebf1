//! A document as a tree whose nodes know where they are, whatever its syntax; and what is wrong with it, collected while it is read.

use std::{
    cell::RefCell,
    collections::hash_map::RandomState,
    fmt::{self, Write as _},
    hash::{BuildHasher as _, Hash},
    ops::Range,
    sync::LazyLock,
};

/// How deep tables and lists may lie in each other.
pub(crate) const DEPTH: usize = 32;

/// A value of a document, and its bytes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) span: Range<usize>,
    pub(crate) value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Integer(i128),
    /// As it is written.
    Float(String),
    Text(String),
    /// A time as TOML has it.
    Time(String),
    List(Vec<Node>),
    /// In the order of the document.
    Table(Vec<(Name, Node)>),
}

/// A key of a table, and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) span: Range<usize>,
    pub(crate) text: String,
}

impl Name {
    /// One that was not read from a text.
    pub(crate) fn new(text: &str) -> Self {
        let text = text.to_owned();
        Self { span: 0..0, text }
    }
}

impl Value {
    /// For messages: `a number`.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a boolean",
            Self::Integer(_) | Self::Float(_) => "a number",
            Self::Text(_) => "a text",
            Self::Time(_) => "a time",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }
}

/// As JSON on one line. What the syntaxes write in their own ways is text there: times, and numbers that are not whole.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(boolean) => boolean.fmt(f),
            Self::Integer(number) => number.fmt(f),
            Self::Float(text) | Self::Text(text) | Self::Time(text) => write_text(f, text),
            Self::List(nodes) => {
                f.write_char('[')?;
                for node in nodes {
                    write!(f, "{separator}{}", node.value)?;
                    separator = ", ";
                }
                f.write_char(']')
            }
            Self::Table(fields) => {
                f.write_char('{')?;
                for (name, node) in fields {
                    f.write_str(separator)?;
                    write_text(f, &name.text)?;
                    write!(f, ": {}", node.value)?;
                    separator = ", ";
                }
                f.write_char('}')
            }
        }
    }
}

fn write_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            // These have four digits.
            c if c.is_control() || c == '\u{feff}' || ('\u{2028}'..='\u{2029}').contains(&c) => {
                write!(f, "\\u{:04x}", u32::from(c))?;
            }
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}

/// So that no two contents are made to have one hash.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// A hash in this process.
pub(crate) fn hash_of(content: impl Hash) -> u64 {
    HASHER.hash_one(content)
}

impl Node {
    /// A value that was not read from a text.
    pub(crate) fn new(value: Value) -> Self {
        Self { span: 0..0, value }
    }

    /// The fields of a table; of another value none.
    pub(crate) fn fields(&self) -> &[(Name, Self)] {
        match &self.value {
            Value::Table(fields) => fields,
            _ => &[],
        }
    }

    /// The nodes of a list; of another value none.
    pub(crate) fn items(&self) -> &[Self] {
        match &self.value {
            Value::List(nodes) => nodes,
            _ => &[],
        }
    }

    /// The field of a table with this name.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        let mut fields = self.fields().iter();
        fields.find_map(|(field, node)| (field.text == name).then_some(node))
    }

    /// The text of the field of a table with this name.
    pub(crate) fn text_of(&self, name: &str) -> Option<&str> {
        match &self.get(name)?.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A hash of what it says, wherever it is.
    pub(crate) fn content(&self) -> u64 {
        hash_of(self.value.to_string())
    }

    /// The text of a document in JSON, which every version reads, with each entry of its lists on a line.
    #[cfg(any(feature = "redis", test))]
    pub(crate) fn json_text(&self) -> String {
        let fields = self.fields().iter().map(|(name, node)| {
            let lines = node.items().iter();
            let lines: Vec<_> = lines
                .map(|entry| format!("\n    {}", entry.value))
                .collect();
            let value = match lines.is_empty() {
                true => node.value.to_string(),
                false => format!("[{}\n  ]", lines.join(",")),
            };
            format!("\n  \"{}\": {value}", name.text)
        });
        format!("{{{}\n}}\n", fields.collect::<Vec<_>>().join(","))
    }

    /// A part of a text: where it lies in the document, if it is written there as it is; else all of it.
    pub(crate) fn part(&self, document: &str, part: Range<usize>) -> Range<usize> {
        let Value::Text(text) = &self.value else {
            return self.span.clone();
        };
        let written = document
            .get(self.span.clone())
            .unwrap_or_default()
            .trim_end();
        let quotes = written.len().saturating_sub(text.len()) / 2;
        match written.get(quotes..quotes + text.len()) {
            Some(inner) if inner == text => {
                let start = self.span.start + quotes;
                start + part.start..start + part.end
            }
            _ => self.span.clone(),
        }
    }
}

/// A table that was not read from a text.
pub(crate) fn table<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Node {
    let fields = fields
        .into_iter()
        .map(|(name, value)| (Name::new(name), Node::new(value)));
    Node::new(Value::Table(fields.collect()))
}

/// The most bytes of a message: parsers repeat what they have read, and that may be megabytes.
const LONGEST: usize = 1_000;

/// The most that are kept. A document of ten megabytes may have millions.
pub(crate) const MOST: usize = 100;

/// A wrong part of a document, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Problem {
    /// Bytes of the document.
    pub(crate) span: Range<usize>,
    pub(crate) message: String,
}

/// What is wrong with a document: the first [`MOST`] problems. And what is probably not meant in the rule that is read.
#[derive(Debug, Default)]
pub(crate) struct Problems(RefCell<Vec<Problem>>, RefCell<Vec<String>>);

impl Problems {
    pub(crate) fn add(&self, span: Range<usize>, message: impl Into<String>) {
        let mut problems = self.0.borrow_mut();
        if problems.len() < MOST {
            let mut message = message.into();
            if message.len() > LONGEST {
                message.truncate(floor(&message, LONGEST));
                message.push('…');
            }
            problems.push(Problem { span, message });
        }
    }

    /// Notes what is right, and probably not meant.
    pub(crate) fn warn(&self, message: String) {
        self.1.borrow_mut().push(message);
    }

    pub(crate) fn take_warnings(&self) -> Vec<String> {
        self.1.take()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// All of them in a line.
    pub(crate) fn messages(self) -> String {
        let messages = self.into_sorted().into_iter();
        let messages: Vec<_> = messages.map(|problem| problem.message).collect();
        messages.join("; ")
    }

    /// In the order of the document.
    pub(crate) fn into_sorted(self) -> Vec<Problem> {
        let mut problems = self.0.into_inner();
        problems.sort_by_key(|problem| (problem.span.start, problem.span.end));
        problems.dedup();
        problems
    }
}

/// The start of the character at or before this byte.
pub(crate) fn floor(text: &str, at: usize) -> usize {
    let mut bytes = (0..=at.min(text.len())).rev();
    bytes.find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Format;

    #[test]
    fn a_tree_is_read_again_as_it_was() {
        let toml = concat!(
            "a = \"quote\\\" \\\\ \\u0001\\u2028ü\"\n",
            "b = [1, -2, 2.5, true]\n",
            "c = { d = { e = [{ f = [] }, {}] } }\n",
            "t = 2030-12-01T00:00:00Z\n",
            "[[x]]\ny = 1\n[[x]]\ny = { z = '' }\n",
        );
        let written = r#"{"a": "quote\" \\ \u0001\u2028ü", "b": [1, -2, "2.5", true], "c": {"d": {"e": [{"f": []}, {}]}}, "t": "2030-12-01T00:00:00Z", "x": [{"y": 1}, {"y": {"z": ""}}]}"#;
        let problems = Problems::default();
        let tree = Format::Toml.parse(toml, &problems);
        assert_eq!(tree.value.to_string(), written);
        let again = Format::Json.parse(&tree.json_text(), &problems);
        assert!(problems.is_empty());
        assert_eq!(again.value.to_string(), written);
    }

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let problems = Problems::default();
        problems.add(0..1, format!("x{}", "ü".repeat(LONGEST)));
        problems.add(1..2, "x".repeat(LONGEST));
        let messages: Vec<String> = problems
            .into_sorted()
            .into_iter()
            .map(|problem| problem.message)
            .collect();
        assert_eq!(messages[0], format!("x{}…", "ü".repeat(LONGEST / 2 - 1)));
        assert_eq!(messages[1].len(), LONGEST);
    }
}
