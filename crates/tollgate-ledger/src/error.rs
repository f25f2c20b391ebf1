//! What goes wrong with a ledger.

use std::{error::Error, fmt};

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LedgerErrorKind {
    /// Something was set up or named wrongly.
    Setup,
    /// The database does not answer, or refuses.
    Database,
    /// An id was used for something else before.
    Conflict,
}

/// Why a ledger cannot do what it was asked.
#[derive(Debug)]
pub struct LedgerError {
    kind: LedgerErrorKind,
    message: String,
    source: Option<sqlx::Error>,
}

impl LedgerError {
    pub(crate) fn setup(message: impl Into<String>) -> Self {
        Self::new(LedgerErrorKind::Setup, message)
    }

    pub(crate) fn new(kind: LedgerErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            source: None,
        }
    }

    /// What is wrong.
    #[must_use]
    pub fn kind(&self) -> LedgerErrorKind {
        self.kind
    }
}

impl From<sqlx::Error> for LedgerError {
    fn from(error: sqlx::Error) -> Self {
        Self {
            source: Some(error),
            ..Self::new(LedgerErrorKind::Database, "the ledger's database")
        }
    }
}

impl fmt::Display for LedgerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl Error for LedgerError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
