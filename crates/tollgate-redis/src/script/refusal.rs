//! Why a server does not run a command of one check, while it may run those of others.

use std::fmt;

use tollgate_core::{StoreError, StoreErrorKind};

/// Why a server refused what one check needs. Nothing was done for that check, and the others of its call were decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `maxmemory` is reached, and its policy evicts nothing.
    OutOfMemory,
    /// It could not write its last snapshot or its append-only file.
    NotPersisted,
    /// Fewer replicas follow it than `min-replicas-to-write` asks for.
    TooFewReplicas,
    /// The user has no right to a command of the script.
    NoPermission,
    /// Another reason, after something had been written for an earlier check.
    Other,
}

impl Refusal {
    /// The refusal that the script gives this number. None: it met a value that is not ours.
    pub(crate) fn of(number: i64) -> Option<Self> {
        Some(match number {
            1 => Self::OutOfMemory,
            2 => Self::NotPersisted,
            3 => Self::TooFewReplicas,
            4 => Self::NoPermission,
            5 => Self::Other,
            _ => return None,
        })
    }

    /// As a server says it: first the code.
    pub(crate) fn line(self) -> &'static str {
        match self {
            Self::OutOfMemory => {
                "OOM the server has reached maxmemory and refuses to write; give it more memory"
            }
            Self::NotPersisted => {
                "MISCONF the server cannot save to its disk and refuses to write; see its log"
            }
            Self::TooFewReplicas => {
                "NOREPLICAS fewer replicas follow than min-replicas-to-write asks for, and the server refuses to write"
            }
            Self::NoPermission => {
                "NOPERM the user has no right to a command of the script; `ACL LOG` on the server says to which"
            }
            Self::Other => "ERR the server refuses a command of the script",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.line())
    }
}

impl From<Refusal> for StoreError {
    fn from(refusal: Refusal) -> Self {
        let kind = match refusal {
            Refusal::OutOfMemory | Refusal::NotPersisted | Refusal::TooFewReplicas => {
                StoreErrorKind::Unavailable
            }
            Refusal::NoPermission | Refusal::Other => StoreErrorKind::Misconfigured,
        };
        Self::new(kind, refusal.line())
    }
}
