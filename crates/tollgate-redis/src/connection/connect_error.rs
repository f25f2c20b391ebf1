//! Why there is no connection.

use std::{fmt, sync::Arc};

use crate::connection::error::{CallError, CallErrorKind, code_of};

/// Why there is no connection.
#[derive(Clone, Debug)]
pub(super) struct ConnectError {
    kind: CallErrorKind,
    message: Arc<str>,
}

impl ConnectError {
    pub(super) fn unavailable(message: impl Into<Arc<str>>) -> Self {
        Self {
            kind: CallErrorKind::Unavailable,
            message: message.into(),
        }
    }

    /// Nobody said who logs in.
    pub(super) fn no_credentials(why: impl fmt::Display) -> Self {
        Self::unavailable(format!("no credentials: {why}"))
    }

    /// An error of the server on the way to a connection. Whoever may not log in is configured wrongly; everything else
    /// may pass.
    pub(super) fn of_server(doing: &str, line: &str) -> Self {
        let kind = match code_of(line) {
            "WRONGPASS" | "NOAUTH" | "NOPERM" | "ERR"
                if !line.contains("max number of clients") =>
            {
                CallErrorKind::Misconfigured
            }
            _ => CallErrorKind::Unavailable,
        };
        Self {
            kind,
            message: format!("{doing}: {line}").into(),
        }
    }

    /// The same, with where it happened.
    pub(super) fn at(mut self, place: fmt::Arguments<'_>) -> Self {
        self.message = format!("{place}: {}", self.message).into();
        self
    }

    /// What to tell others.
    pub(super) fn message(&self) -> &Arc<str> {
        &self.message
    }

    /// The error of a call that found no connection for this reason.
    pub(super) fn to_call_error(&self) -> CallError {
        CallError::new(
            self.kind,
            format!("not connected to Redis: {}", self.message),
        )
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_server_is_no_mistake_of_ours() {
        let full = ConnectError::of_server("HELLO", "ERR max number of clients reached");
        assert_eq!(full.to_call_error().kind(), CallErrorKind::Unavailable);
        let wrong = ConnectError::of_server("HELLO", "WRONGPASS invalid username-password pair");
        assert_eq!(wrong.to_call_error().kind(), CallErrorKind::Misconfigured);
    }
}
