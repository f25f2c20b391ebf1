//! A document as a tree whose nodes know where they are, whatever its syntax.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher as _, Hash},
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

/// A table that was not read from a text.
pub(crate) fn table<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Node {
    let fields = fields.into_iter();
    let fields = fields.map(|(name, value)| (Name::new(name), Node::new(value)));
    Node::new(Value::Table(fields.collect()))
}
