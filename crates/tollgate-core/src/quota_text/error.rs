//! What is wrong with a text, and where.

use std::{error::Error, fmt, ops::Range};

use crate::{did_you_mean::did_you_mean, quota_text::word::Word};

/// A text that is no quota: which part of it is wrong, and what would be right.
#[derive(Clone, PartialEq, Eq)]
pub struct ParseQuotaError {
    text: String,
    span: Range<usize>,
    message: String,
}

impl ParseQuotaError {
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

/// The wrong part, and what would be right.
pub(super) struct Wrong {
    span: Range<usize>,
    message: String,
}

impl Wrong {
    pub(super) fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Self {
            span,
            message: message.into(),
        }
    }

    /// An unknown word, with the known one that it resembles.
    pub(super) fn unknown<'a>(
        word: &Word<'_>,
        message: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let mut message = format!("{} {message}", word.quoted());
        if let Some(meant) = did_you_mean(word.text, known) {
            message.push_str(&format!("; did you mean {meant:?}?"));
        }
        Self::new(word.span(), message)
    }

    /// The error about this text.
    pub(super) fn in_text(self, text: &str) -> ParseQuotaError {
        ParseQuotaError {
            text: text.to_owned(),
            span: self.span,
            message: self.message,
        }
    }
}
