//! Why a call or a connection has failed, and what is read from the errors of a server.

use std::{
    fmt,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use tollgate_core::{StoreError, StoreErrorKind};
use tollgate_prefilter::NoReply;

/// Why a call or a connection has failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure<K> {
    kind: K,
    /// It costs little to hand to one more call: in an outage every call fails for the same reason.
    message: Arc<str>,
}

impl<K: Copy> Failure<K> {
    pub(crate) fn new(kind: K, message: impl Into<Arc<str>>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    pub(crate) fn kind(&self) -> K {
        self.kind
    }

    /// What to tell others.
    pub(super) fn message(&self) -> Arc<str> {
        Arc::clone(&self.message)
    }
}

impl<K> fmt::Display for Failure<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// A call without an answer. Whether it may have run is what matters.
pub(crate) type CallError = Failure<CallErrorKind>;

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CallErrorKind {
    /// There is no connection, or the server cannot serve at present. It did not run.
    Unavailable,
    /// Too many calls are pending. It did not run.
    Overloaded,
    /// Its deadline passed while it waited to be sent. It did not run.
    NotSent,
    /// It was sent, and no answer came in time or ever. It may have run.
    NoAnswer,
    /// The server answers, and refuses to write: it is full, cannot save, or has too few replicas. It did not run.
    NotWritable,
    /// Its keys are on the move between two servers. It did not run.
    TryAgain,
    /// The server refuses it, and will until somebody changes something.
    Misconfigured,
    /// The answer is none of the script's. Something else may have run.
    Protocol,
}

/// In place of servers' texts, which have a hash.
pub(crate) const NO_RIGHT: &str = "NOPERM the user has no right to a command of the script; `ACL LOG` on the server says to which";

impl CallError {
    /// What the line of an error of the server means, without its leading `-`.
    pub(crate) fn of_server(line: &str) -> Self {
        // As `refusal` of the script.
        let lacks_right = ["ACL failure in script", "user executing the script"];
        let line = match lacks_right.iter().any(|words| line.contains(words)) {
            true => NO_RIGHT,
            false => line,
        };
        Self::new(kind_of(code_of(line)), line)
    }

    /// The line of the error of the server, if it was one; otherwise a text of ours, which begins with no code.
    pub(crate) fn line(&self) -> &str {
        &self.message
    }

    /// Whether the server said it, by a code in capitals.
    pub(crate) fn is_of_server(&self) -> bool {
        let mut code = code_of(self.line()).bytes();
        code.all(|byte| byte.is_ascii_uppercase())
    }

    /// An answer that is none of the script's.
    pub(crate) fn misunderstood() -> Self {
        let message = "Redis answered something else than the script does";
        Self::new(CallErrorKind::Protocol, message)
    }

    /// What is known of a call without an answer.
    pub(crate) fn no_reply(&self) -> NoReply {
        match self.kind {
            CallErrorKind::NoAnswer | CallErrorKind::Protocol => NoReply::NoAnswer,
            _ => NoReply::NotSent,
        }
    }

    /// Whether the server may have run it.
    #[cfg(test)]
    pub(crate) fn may_have_run(&self) -> bool {
        self.kind == CallErrorKind::NoAnswer
    }

    /// Whether it says that this server fails. A mistake of ours does not, nor does a hash slot of a cluster without a server: the next
    /// hash slot may be in order. A server that refuses to write still answers denials, and what it
    /// refuses costs it less than what it serves.
    pub(super) fn weighs(&self) -> bool {
        match self.kind {
            CallErrorKind::Unavailable => code_of(self.line()) != "CLUSTERDOWN",
            kind => matches!(kind, CallErrorKind::NotSent | CallErrorKind::NoAnswer),
        }
    }
}

impl From<CallError> for StoreError {
    fn from(error: CallError) -> Self {
        let kind = match error.kind {
            CallErrorKind::Unavailable
            | CallErrorKind::NotSent
            | CallErrorKind::NotWritable
            | CallErrorKind::TryAgain => StoreErrorKind::Unavailable,
            CallErrorKind::Overloaded => StoreErrorKind::Overloaded,
            CallErrorKind::NoAnswer => StoreErrorKind::Timeout,
            CallErrorKind::Misconfigured => StoreErrorKind::Misconfigured,
            CallErrorKind::Protocol => StoreErrorKind::Protocol,
        };
        Self::new(kind, error.to_string())
    }
}

/// The code of an error of a server: its first word.
///
/// Redis 6 and Dragonfly wrap what a command inside of a script answered:
/// `ERR Error running script (call to f_..): @user_script:21: -READONLY You can't write ..`, or, where the script returned
/// it, `@user_script: 21: -READONLY You can't write ..`.
pub(super) fn code_of(line: &str) -> &str {
    let first = first_word(line);
    if !matches!(first, "ERR" | "@user_script:") || !line.contains("script") {
        return first;
    }
    line.match_indices('-')
        .map(|(place, _)| first_word(&line[place + 1..]))
        .find(|word| is_known(word))
        .unwrap_or(first)
}

fn first_word(text: &str) -> &str {
    text.split([' ', '\r', '\n']).next().unwrap_or_default()
}

fn is_known(code: &str) -> bool {
    code == "WRONGTYPE" || code == "NOPERM" || kind_of(code) != CallErrorKind::Misconfigured
}

fn kind_of(code: &str) -> CallErrorKind {
    match code {
        "BUSY" | "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" | "NOSCRIPT" | "READONLY"
        | "UNBLOCKED" => CallErrorKind::Unavailable,
        "MISCONF" | "NOREPLICAS" | "OOM" => CallErrorKind::NotWritable,
        "TRYAGAIN" => CallErrorKind::TryAgain,
        // Also NOAUTH, NOPERM, WRONGPASS, WRONGTYPE, CROSSSLOT, MOVED (a node of a cluster), and ERR.
        _ => CallErrorKind::Misconfigured,
    }
}

// Why there is no connection.

/// Why there is no connection, or why one has ended.
pub(crate) type ConnectError = Failure<ConnectErrorKind>;

/// What has failed on the way to a connection, or has ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ConnectErrorKind {
    /// The name of the host was not found.
    Dns,
    /// No address of the host accepted a connection, or the connection ended.
    Tcp,
    /// It could not be encrypted.
    #[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "the feature"))]
    Tls,
    /// The server does not let the user in, or the user may not do what a connection needs.
    Login,
    /// The provider of credentials has given none.
    Credentials,
    /// It was not ready in time.
    Timeout,
    /// The server that was named is a replica.
    NotMaster,
    /// Sentinels, or the servers of a cluster, did not say which server it is.
    Unresolved,
    /// The server does not serve at present, its reply cannot be understood, or this process does not need it any more.
    Server,
}

impl ConnectError {
    /// The server is of no use at present, or this process does not need it any more.
    pub(super) fn server(why: impl Into<Arc<str>>) -> Self {
        Self::new(ConnectErrorKind::Server, why)
    }

    /// Its callers are gone, or the runtime ends.
    pub(super) fn unserved() -> Self {
        Self::server("its task has ended")
    }

    /// It is not known which server it is.
    pub(super) fn unresolved(what: impl Into<Arc<str>>) -> Self {
        Self::new(ConnectErrorKind::Unresolved, what)
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
        Self::new(kind, format!("{doing}: {}", with_remedy(line)))
    }

    /// The same, with where it happened, unless it says so: a host that is named by its address.
    pub(super) fn at(mut self, place: fmt::Arguments<'_>) -> Self {
        let place = format!("{place}: ");
        if !self.message.starts_with(&place) {
            self.message = format!("{place}{}", self.message).into();
        }
        self
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

/// What to do about a replica.
pub(super) const NAME_THE_MASTER: &str =
    "name the master, or the sentinels that know it with redis-sentinel://";

/// The line of an error of the server, with what would be right where that does not say it.
pub(crate) fn with_remedy(line: &str) -> String {
    let remedy = match code_of(line) {
        "NOAUTH" => {
            "the server wants a password: redis://:password@host, or `RedisStoreBuilder::credentials`"
        }
        "WRONGPASS" => {
            "the user and the password are those of the address, or of the credentials provider"
        }
        "MOVED" => "the server belongs to a cluster: name it with redis-cluster://",
        "READONLY" => NAME_THE_MASTER,
        "NOPERM" => "the page `redis` of the guide has the rights that a user needs",
        "ERR" if line.contains("cluster support disabled") => {
            "it is a single server: name it with redis://"
        }
        "ERR"
            if line.contains("unknown command")
                && line.to_ascii_uppercase().contains("SENTINEL") =>
        {
            "it is no sentinel: those listen on port 26379 as a rule"
        }
        _ => return line.to_owned(),
    };
    format!("{line}; {remedy}")
}

// Code of users, whose panics do not end what calls it.

/// What a function returns; `None` if it panics.
pub(super) fn caught_call<T>(function: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(function)).ok()
}

/// What a future ends with; `None` if it panics. What makes the future belongs into it, as an `async` block.
///
/// # Cancel safety
///
/// That of the future.
pub(super) async fn caught<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    // A future that has panicked is not polled again.
    poll_fn(|cx| match caught_call(|| future.as_mut().poll(cx)) {
        Some(poll) => poll.map(Some),
        None => Poll::Ready(None),
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_inside_of_a_wrapped_error_is_recognised() {
        let wrapped = "ERR Error running script (call to f_0a): @user_script:21: -READONLY You can't write against a \
                   read only replica.";
        assert_eq!(code_of(wrapped), "READONLY");
        let dragonfly = "ERR Error running script (call to 0a): @user_script:1: -OOM Out of memory";
        assert_eq!(
            CallError::of_server(dragonfly).kind(),
            CallErrorKind::NotWritable
        );
        let wrong_type =
            "ERR Error running script (call to f_0a): @user_script:3: -WRONGTYPE Operation against";
        assert_eq!(code_of(wrong_type), "WRONGTYPE");
        assert_eq!(code_of("ERR unknown-READONLY command"), "ERR");
        assert_eq!(code_of(""), "");
    }

    #[test]
    fn a_server_that_refuses_to_write_did_not_run_it_and_is_not_in_trouble() {
        for code in ["OOM", "MISCONF", "NOREPLICAS"] {
            let error = CallError::of_server(&format!("{code} Redis is ..."));
            assert_eq!(error.kind(), CallErrorKind::NotWritable, "{code}");
            assert!(!error.may_have_run() && !error.weighs(), "{code}");
            let error = StoreError::from(error);
            assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{code}");
            // Once: `main` prints what it is, with what caused it.
            assert_eq!(format!("{error:?}"), format!("{code} Redis is ..."));
        }
    }

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
