//! The error of a stream that was cut off.

use std::{error::Error, fmt, time::Duration};

/// The error that a handler gets in place of the next message of a stream that exceeds a limit.
///
/// The client gets the denial whatever the handler does with the error. With the feature `tonic` the error's source is the
/// [`Status`](https://docs.rs/tonic/latest/tonic/struct.Status.html) that the client gets, and tonic passes that to handlers.
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
    /// The messages exceed a limit, and did not get through the queue in time.
    Exceeded,
    /// A rule [blocks](crate::decision::Reason::Blocked) the client.
    Blocked,
    /// The store failed, and a rule has [`OnStoreError::Deny`](crate::OnStoreError::Deny).
    StoreFailed,
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

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> MessageLimitErrorKind {
        self.kind
    }

    /// When the next message would pass; `None` if a wait does not help, or is not known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl fmt::Display for MessageLimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            MessageLimitErrorKind::Exceeded => "the stream has more messages than the limit allows",
            MessageLimitErrorKind::Blocked => "the client is blocked",
            MessageLimitErrorKind::StoreFailed => "the store of the limit on messages failed",
        })
    }
}

// The same text as `Display`, because it is what `main` prints; and the source.
tollgate_core::debug_fields!(MessageLimitError as Error);

impl Error for MessageLimitError {
    #[cfg(feature = "tonic")]
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.status.as_deref()?)
    }
}
