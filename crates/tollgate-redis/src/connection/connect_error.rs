//! Why there is no connection.

use std::{fmt, sync::Arc};

use crate::connection::error::{CallError, CallErrorKind, code_of};

/// Why there is no connection.
#[derive(Clone, Debug)]
pub(crate) struct ConnectError {
    kind: ConnectErrorKind,
    message: Arc<str>,
}

/// What has failed on the way to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ConnectErrorKind {
    /// The name of the host was not found.
    Dns,
    /// No address of the host accepted a connection, or the connection ended.
    Tcp,
    /// It could not be encrypted.
    #[cfg(feature = "tls")]
    Tls,
    /// The server does not let the user in, or the user may not do what a connection needs.
    Login,
    /// The provider of credentials has given none.
    Credentials,
    /// It was not ready in time.
    Timeout,
    /// The server that was named is not the master.
    NotMaster,
    /// Sentinels, or the servers of a cluster, did not say which server it is.
    Unresolved,
    /// The server does not serve at present, or its reply cannot be understood.
    Server,
}

impl ConnectErrorKind {
    /// What metrics call it.
    #[cfg(feature = "metrics")]
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Tcp => "tcp",
            #[cfg(feature = "tls")]
            Self::Tls => "tls",
            Self::Login => "login",
            Self::Credentials => "credentials",
            Self::Timeout => "timeout",
            Self::NotMaster => "not_master",
            Self::Unresolved => "unresolved",
            Self::Server => "server",
        }
    }
}

impl ConnectError {
    pub(super) fn new(kind: ConnectErrorKind, message: impl Into<Arc<str>>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// The provider of credentials failed.
    pub(super) fn no_credentials(why: impl fmt::Display) -> Self {
        Self::new(
            ConnectErrorKind::Credentials,
            format!("no credentials: {why}"),
        )
    }

    /// An error of the server on the way to a connection. A refused log-in is a mistake of the configuration; everything else
    /// may pass.
    pub(super) fn of_server(doing: &str, line: &str) -> Self {
        let kind = match code_of(line) {
            "WRONGPASS" | "NOAUTH" | "NOPERM" | "ERR"
                if !line.contains("max number of clients") =>
            {
                ConnectErrorKind::Login
            }
            _ => ConnectErrorKind::Server,
        };
        let remedy = remedy(line).map(|remedy| format!("; {remedy}"));
        Self::new(
            kind,
            format!("{doing}: {line}{}", remedy.unwrap_or_default()),
        )
    }

    /// The same, with where it happened, unless it says so: a host that is named by its address.
    pub(super) fn at(mut self, place: fmt::Arguments<'_>) -> Self {
        let place = format!("{place}: ");
        if !self.message.starts_with(&place) {
            self.message = format!("{place}{}", self.message).into();
        }
        self
    }

    pub(super) fn kind(&self) -> ConnectErrorKind {
        self.kind
    }

    /// What to tell others.
    pub(super) fn message(&self) -> Arc<str> {
        Arc::clone(&self.message)
    }

    /// The error of a call that found no connection for this reason.
    pub(super) fn to_call_error(&self) -> CallError {
        let kind = match self.kind {
            ConnectErrorKind::Login => CallErrorKind::Misconfigured,
            _ => CallErrorKind::Unavailable,
        };
        CallError::new(kind, format!("not connected to Redis: {}", self.message))
    }
}

/// What would be right, where the line of an error does not say it.
fn remedy(line: &str) -> Option<&'static str> {
    match code_of(line) {
        "NOAUTH" => Some(
            "the server wants a password: redis://:password@host, or `RedisStoreBuilder::credentials`",
        ),
        "WRONGPASS" => Some(
            "the user and the password are those of the address, or of the credentials provider",
        ),
        "ERR" if line.contains("cluster support disabled") => {
            Some("it is a single server: name it with redis://")
        }
        "ERR"
            if line.contains("unknown command")
                && line.to_ascii_uppercase().contains("SENTINEL") =>
        {
            Some("it is no sentinel: those listen on port 26379 as a rule")
        }
        _ => None,
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

    #[test]
    fn an_error_of_the_server_says_what_would_be_right() {
        for (line, words) in [
            (
                "NOAUTH HELLO must be called with the client",
                "redis://:password@host",
            ),
            (
                "WRONGPASS invalid username-password pair",
                "credentials provider",
            ),
            ("ERR This instance has cluster support disabled", "redis://"),
            ("ERR unknown command 'SENTINEL', with args", "26379"),
            ("ERR unknown command `SENTINEL`, with args", "26379"),
        ] {
            let error = ConnectError::of_server("ASKED", line).to_string();
            let remedy = error.strip_prefix(&format!("ASKED: {line}; "));
            assert!(
                remedy.is_some_and(|remedy| remedy.contains(words)),
                "{error}"
            );
        }
        let other = ConnectError::of_server("SELECT 99", "ERR DB index is out of range");
        assert_eq!(other.to_string(), "SELECT 99: ERR DB index is out of range");
    }
}
