//! Why a document was not pushed.

use std::{error::Error, fmt};

use crate::document_error::DocumentError;

/// Why a document was not pushed, or Redis not asked. Nothing has changed, unless the reply was
/// [lost](PushErrorKind::Unavailable).
#[derive(Clone)]
pub struct PushError {
    kind: PushErrorKind,
    message: String,
    /// What is wrong with a document, for the audit: without the pieces of it that an error shows, which may have keys in them.
    pub(crate) mistakes: Vec<String>,
}

/// What a [`PushError`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushErrorKind {
    /// The document is wrong.
    Document,
    /// Somebody else has pushed in the meantime: look at that document, and push again.
    Conflict,
    /// Redis is unavailable, or refuses. If a connection broke, the push may have arrived: look at the revision.
    Unavailable,
    /// The address or the namespace cannot be used.
    Setting,
}

impl PushError {
    pub(crate) fn new(kind: PushErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            mistakes: Vec::new(),
        }
    }

    /// What it is about.
    #[must_use]
    pub fn kind(&self) -> PushErrorKind {
        self.kind
    }
}

impl From<DocumentError> for PushError {
    fn from(wrong: DocumentError) -> Self {
        let mistakes = wrong
            .mistakes()
            .iter()
            .take(20)
            .map(|it| format!("{}:{}: {}", it.origin, it.line, it.message));
        Self {
            mistakes: mistakes.collect(),
            ..Self::new(PushErrorKind::Document, wrong.to_string())
        }
    }
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

// As it is displayed: it comes out of `main`.
tollgate_core::debug_fields!(PushError as Display);

impl Error for PushError {}
