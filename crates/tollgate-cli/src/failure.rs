//! Why a command has no report.

use std::fmt::Display;

use tollgate_rules::{
    DocumentError,
    redis::{PushError, PushErrorKind},
};

use crate::{exit::Exit, hints::hints};

/// Why a command has no report, with what would help.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Failure {
    /// The command line is wrong in a way that its grammar does not see.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Usage,
            message: message.into(),
        }
    }

    /// It could not be done.
    pub(crate) fn failed(message: impl Display) -> Self {
        Self {
            exit: Exit::Failed,
            message: message.to_string(),
        }
    }

    /// Wrong rules are an answer, where the question is whether they are right.
    pub(crate) fn mistakes(wrong: DocumentError) -> Self {
        Self {
            exit: Exit::No,
            ..Self::from(wrong)
        }
    }
}

/// Rules that a command needs, and that cannot be read.
impl From<DocumentError> for Failure {
    fn from(wrong: DocumentError) -> Self {
        Self::failed(format!("{wrong}\n{}", hints(&wrong)).trim_end())
    }
}

/// What Redis, or another who pushes, has against a document.
impl From<PushError> for Failure {
    fn from(wrong: PushError) -> Self {
        Self {
            exit: match wrong.kind() {
                PushErrorKind::Document => Exit::No,
                PushErrorKind::Setting => Exit::Usage,
                _ => Exit::Failed,
            },
            message: wrong.to_string(),
        }
    }
}
