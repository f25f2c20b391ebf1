//! A document as a tree whose nodes know where they are, whatever its syntax.

use std::ops::Range;

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

impl Node {
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
