//! A document as a tree whose nodes know where they are, whatever its syntax.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher as _, Hash, Hasher},
    ops::Range,
    sync::LazyLock,
};

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

/// So that no two contents are made to have one hash.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// A hash in this process.
pub(crate) fn hash_of(content: impl Hash) -> u64 {
    HASHER.hash_one(content)
}

/// What a node says, wherever it is.
struct Content<'a>(&'a Node);

impl Hash for Content<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(&self.0.value).hash(state);
        match &self.0.value {
            Value::Null => {}
            Value::Bool(value) => value.hash(state),
            Value::Integer(value) => value.hash(state),
            Value::Float(text) | Value::Text(text) | Value::Time(text) => text.hash(state),
            Value::List(nodes) => {
                nodes.len().hash(state);
                nodes.iter().for_each(|node| Content(node).hash(state));
            }
            Value::Table(fields) => {
                fields.len().hash(state);
                for (name, node) in fields {
                    (&name.text, Content(node)).hash(state);
                }
            }
        }
    }
}

impl Node {
    /// A hash of what it says, wherever it is.
    pub(crate) fn content(&self) -> u64 {
        hash_of(Content(self))
    }

    /// A part of a text: where it lies in the document, if it is written there as it is; else all of it.
    pub(crate) fn part(&self, document: &str, part: Range<usize>) -> Range<usize> {
        let Value::Text(text) = &self.value else {
            return self.span.clone();
        };
        let written = document.get(self.span.clone()).unwrap_or_default();
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

/// The value of the field of a table with this name.
pub(crate) fn field<'a>(table: &'a Node, name: &str) -> Option<&'a Value> {
    field_node(table, name).map(|node| &node.value)
}

/// The field of a table with this name.
pub(crate) fn field_node<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    let Value::Table(fields) = &node.value else {
        return None;
    };
    let found = fields.iter().find(|(field, _)| field.text == name);
    found.map(|(_, node)| node)
}

/// The text of the field of a table with this name.
pub(crate) fn text_field<'a>(table: &'a Node, name: &str) -> Option<&'a str> {
    match field(table, name)? {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

/// A value that was not read from a text.
pub(crate) fn node(value: Value) -> Node {
    Node { span: 0..0, value }
}

/// A table that was not read from a text.
pub(crate) fn table<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Node {
    let fields = fields.into_iter();
    let fields = fields.map(|(name, value)| (Name::new(name), node(value)));
    node(Value::Table(fields.collect()))
}
