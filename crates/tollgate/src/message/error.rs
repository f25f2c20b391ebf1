//! The error of a stream that was cut off.

use std::{error::Error, fmt, time::Duration};

use tollgate_core::Reason;

/// The error that a handler gets in place of the next message of a stream that exceeds a limit.
///
/// The client gets the denial whatever the handler does with the error, and the handler is dropped [at its next
/// await](crate::message#how-a-call-ends). With the feature `tonic` the error's source is the
/// [`Status`](https://docs.rs/tonic/latest/tonic/struct.Status.html) that the client gets, and tonic passes that to handlers.
pub struct MessageLimitError {
    pub(super) reason: Reason,
    pub(super) retry_after: Option<Duration>,
    /// What the client gets.
    #[cfg(feature = "tonic")]
    pub(super) status: Option<Box<tonic::Status>>,
}

impl MessageLimitError {
    /// Why the stream was cut off.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// When the next message would pass; `None` if a wait does not help, or is not known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl fmt::Display for MessageLimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.reason {
            Reason::Blocked => "the client is blocked",
            Reason::StoreFailed => "the store of the limit on messages failed",
            _ => "the stream has more messages than the limit allows",
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
