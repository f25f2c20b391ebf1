//! Why a stream of messages ended before its time.

use std::{error::Error, fmt, time::Duration};

/// Why a stream of messages ended before its time: what a handler gets in place of the next message.
///
/// The client's answer does not depend on what a handler makes of it. With the feature `tonic` the error's source is the
/// [`Status`](https://docs.rs/tonic/latest/tonic/struct.Status.html) that the client gets, and tonic hands that to handlers.
pub struct MessageLimitError {
    kind: MessageLimitErrorKind,
    retry_after: Option<Duration>,
    #[cfg(feature = "tonic")]
    status: Option<Box<tonic::Status>>,
}

/// The kinds of [`MessageLimitError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageLimitErrorKind {
    /// The messages are above a limit, and their turn does not come in time.
    Exceeded,
    /// The store failed, and a rule denies then.
    StoreFailed,
    /// A stream of gRPC-Web in text is not base64.
    NotBase64,
}

impl MessageLimitError {
    pub(super) fn new(kind: MessageLimitErrorKind, retry_after: Option<Duration>) -> Self {
        Self {
            kind,
            retry_after,
            #[cfg(feature = "tonic")]
            status: None,
        }
    }

    /// With the status that the client gets.
    #[cfg(feature = "tonic")]
    pub(super) fn with_status(mut self, status: Option<tonic::Status>) -> Self {
        self.status = status.map(Box::new);
        self
    }

    /// What happened.
    #[must_use]
    pub fn kind(&self) -> MessageLimitErrorKind {
        self.kind
    }

    /// When the next message would pass; `None` where no wait helps or none is known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl fmt::Display for MessageLimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            MessageLimitErrorKind::Exceeded => "the stream has more messages than the limit allows",
            MessageLimitErrorKind::StoreFailed => "the store of the limit on messages failed",
            MessageLimitErrorKind::NotBase64 => "a stream of gRPC-Web in text is not base64",
        })
    }
}

/// As it is displayed, with what caused it: it comes out of `main`.
impl fmt::Debug for MessageLimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)?;
        match self.source() {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl Error for MessageLimitError {
    #[cfg(feature = "tonic")]
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.status.as_deref()?)
    }
}
