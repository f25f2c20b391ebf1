//! Why a connection ended.

use std::{fmt, io, sync::Arc};

/// Why a connection is of no use any more.
#[derive(Clone, Debug)]
pub(in crate::connection) enum Lost {
    /// The server closed it.
    Closed,
    /// The socket failed.
    Io(Arc<io::Error>),
    /// The server stands still.
    Silent,
    /// The server sent something that cannot be read.
    Malformed(&'static str),
    /// The server answered with this code: it is no master, or does not know us.
    Refused(String),
    /// Sentinels name another master.
    Moved,
    /// All its callers are gone.
    Dropped,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the server closed it"),
            Self::Io(error) => error.fmt(f),
            Self::Silent => f.write_str("the server was silent for too long"),
            Self::Malformed(what) => f.write_str(what),
            Self::Refused(code) => write!(f, "the server answered {code}"),
            Self::Moved => f.write_str("another server is the master now"),
            Self::Dropped => f.write_str("it is no longer needed"),
        }
    }
}
