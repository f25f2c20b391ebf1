//! Why a request was not sent.

use std::{error::Error, fmt, time::Duration};

use tower::BoxError;

/// A request that was not sent.
///
/// [`ClientRateLimit`](crate::ClientRateLimit) returns it inside of a [`BoxError`]: find it with
/// `error.downcast_ref::<ClientRateLimitError>()`. The request was not sent, so it is safe to repeat.
pub struct ClientRateLimitError {
    kind: ClientRateLimitErrorKind,
    retry_after: Option<Duration>,
    pub(crate) source: Option<BoxError>,
}

/// The kinds of [`ClientRateLimitError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientRateLimitErrorKind {
    /// The server asks for a longer wait than [`max_wait`](crate::ClientRateLimitLayer::max_wait), or the timeout of the gRPC call.
    ServerLimit,
    /// The client's own [`limit`](crate::ClientRateLimitLayer::limit) has no room within `max_wait`, its queue is full, or the
    /// request's cost can never fit.
    ClientLimit,
    /// The closure given to [`limit`](crate::ClientRateLimitLayer::limit) returned an error, which is the source of this one.
    NoChecks,
}

impl ClientRateLimitError {
    pub(crate) fn new(kind: ClientRateLimitErrorKind, retry_after: Option<Duration>) -> Self {
        Self {
            kind,
            retry_after,
            source: None,
        }
    }

    pub(crate) fn no_checks(source: BoxError) -> Self {
        Self {
            source: Some(source),
            ..Self::new(ClientRateLimitErrorKind::NoChecks, None)
        }
    }

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> ClientRateLimitErrorKind {
        self.kind
    }

    /// When to try again, if known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl fmt::Display for ClientRateLimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use ClientRateLimitErrorKind::{ClientLimit, NoChecks, ServerLimit};

        f.write_str(match self.kind {
            ServerLimit => "the server asks for a longer wait than max_wait or the call's timeout",
            ClientLimit => {
                "the client's own limit has no room within max_wait or the call's timeout"
            }
            NoChecks => "the request has no checks for the client's own limit",
        })?;
        match self.retry_after {
            Some(wait) => write!(f, "; try again in {:.1} s", wait.as_secs_f64()),
            None => Ok(()),
        }
    }
}

// The same text as `Display`, because it is what `main` prints; and the source.
tollgate_core::debug_fields!(ClientRateLimitError as Error);

impl Error for ClientRateLimitError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_why_and_when_to_try_again() {
        let wait = Some(Duration::from_millis(1_500));
        for (kind, wait, text) in [
            (
                ClientRateLimitErrorKind::ServerLimit,
                wait,
                "the server asks for a longer wait than max_wait or the call's timeout; try again in 1.5 s",
            ),
            (
                ClientRateLimitErrorKind::ClientLimit,
                None,
                "the client's own limit has no room within max_wait or the call's timeout",
            ),
        ] {
            let error = ClientRateLimitError::new(kind, wait);
            assert_eq!((error.kind(), error.retry_after()), (kind, wait));
            assert_eq!(error.to_string(), text);
            assert_eq!(format!("{error:?}"), text);
            assert!(error.source().is_none());
        }
    }
}
