//! The words of a text, with their places.

use std::{error::Error, fmt, ops::Range};

use crate::{error::did_you_mean, quota::MAX_UNITS};

/// A part of the text, and where it begins.
#[derive(Clone, Copy)]
pub(super) struct Word<'a> {
    pub(super) text: &'a str,
    pub(super) start: usize,
}

impl<'a> Word<'a> {
    pub(super) fn span(&self) -> Range<usize> {
        self.start..self.start + self.text.len()
    }

    /// For a message: at most 40 characters of it.
    pub(super) fn quoted(&self) -> String {
        match self.text.char_indices().nth(40) {
            None => format!("{:?}", self.text),
            Some((end, _)) => format!("{:?}…", &self.text[..end]),
        }
    }

    /// What is wrong with it.
    pub(super) fn wrong(&self, message: impl Into<String>) -> ParseQuotaError {
        ParseQuotaError::new(self.span(), message)
    }

    /// The same in a message that begins with it.
    pub(super) fn quoted_wrong(&self, message: &str) -> ParseQuotaError {
        self.wrong(format!("{} {message}", self.quoted()))
    }

    /// What is before its first `/`, and what is behind it.
    pub(super) fn halves(&self) -> Option<(Self, Self)> {
        let (before, after) = self.split_at(self.text.find('/')?);
        Some((before.trimmed(), after.split_at(1).1.trimmed()))
    }

    pub(super) fn split_at(&self, at: usize) -> (Self, Self) {
        let (before, after) = self.text.split_at(at);
        let start = self.start + at;
        let after = Word { text: after, start };
        let before = Word {
            text: before,
            ..*self
        };
        (before, after)
    }

    /// Without white space around it.
    pub(super) fn trimmed(&self) -> Self {
        let text = self.text.trim_start();
        let start = self.start + (self.text.len() - text.len());
        let text = text.trim_end();
        Word { text, start }
    }
}

/// The words of a text. A `/` belongs to the word around it: `100 / min` is one.
pub(super) fn words(text: &str) -> Vec<Word<'_>> {
    let mut words: Vec<Word<'_>> = Vec::new();
    for part in text.split_whitespace() {
        // Both are slices of one text.
        let start = part.as_ptr().addr() - text.as_ptr().addr();
        match words.last_mut() {
            Some(last) if last.text.ends_with('/') || part.starts_with('/') => {
                last.text = &text[last.start..start + part.len()];
            }
            _ => words.push(Word { text: part, start }),
        }
    }
    words
}

// Numbers of units: `100`, `1_000_000`.

/// A number of units: digits, which may be grouped by `_`.
pub(super) fn units(word: &Word<'_>) -> Result<u64, ParseQuotaError> {
    let digits: String = word.text.chars().filter(|c| *c != '_').collect();
    if digits.is_empty()
        || word.text.starts_with('_')
        || !digits.bytes().all(|b| b.is_ascii_digit())
    {
        return Err(match word.text {
            "" => word.wrong("the number of units is missing; write it as 100"),
            _ => {
                word.quoted_wrong("is not a number of units; write a whole number as 100 or 1_000")
            }
        });
    }
    match digits.parse() {
        Ok(units) if units <= MAX_UNITS => Ok(units),
        _ => {
            let message = format!("units are above {MAX_UNITS}; count in larger units");
            Err(word.quoted_wrong(&message))
        }
    }
}

// What is wrong with a text, and where.

/// A text that is no quota: which part of it is wrong, and what would be right.
#[derive(Clone, PartialEq, Eq)]
pub struct ParseQuotaError {
    text: String,
    span: Range<usize>,
    message: String,
}

impl ParseQuotaError {
    /// Without the text, which is added at last.
    pub(super) fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Self {
            text: String::new(),
            span,
            message: message.into(),
        }
    }

    /// What is missing at the end of a text.
    pub(super) fn missing(text: &str, message: impl Into<String>) -> Self {
        Self::new(text.len()..text.len(), message)
    }

    /// An unknown word, with the known one that it resembles.
    pub(super) fn unknown<'a>(
        word: &Word<'_>,
        message: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        word.quoted_wrong(&match did_you_mean(word.text, known) {
            Some(meant) => format!("{message}; did you mean {meant:?}?"),
            None => message.to_owned(),
        })
    }

    pub(super) fn in_text(self, text: &str) -> Self {
        let text = text.to_owned();
        Self { text, ..self }
    }

    /// The wrong part, as bytes of the text. It is empty, at the end, where something is missing.
    #[must_use]
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// What is wrong and what would be right, without the text.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for ParseQuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It may come from anywhere, and be of any length.
        match self.text.char_indices().nth(80) {
            None => write!(f, "quota {:?}: {}", self.text, self.message),
            Some((end, _)) => write!(f, "quota {:?}…: {}", &self.text[..end], self.message),
        }
    }
}

// As it is displayed: it comes out of `main`.
crate::debug_fields!(ParseQuotaError as Display);

impl Error for ParseQuotaError {}
