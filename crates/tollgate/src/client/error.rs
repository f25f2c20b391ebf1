//! Why a request was not sent.

use std::{error::Error, fmt, time::Duration};

/// A request that was not sent, because it would have had to wait too long or has no key.
///
/// It is inside of the [`BoxError`](tower::BoxError) that [`Pace`](crate::client::Pace) returns: `error.downcast_ref::<PaceError>()`.
/// Nothing was sent, so the request may be made again.
#[derive(Clone, PartialEq, Eq)]
pub struct PaceError {
    kind: PaceErrorKind,
    retry_after: Option<Duration>,
}

/// The kinds of [`PaceError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PaceErrorKind {
    /// The server has asked for a longer wait than the request's patience.
    Held,
    /// Too many requests wait for a unit of the client's own quota, or what this one costs never fits.
    OwnQuota,
    /// A rule of the client's own quota rejects requests without a key, and this one has none.
    NoKey,
}

impl PaceError {
    pub(super) fn new(kind: PaceErrorKind, retry_after: Option<Duration>) -> Self {
        Self { kind, retry_after }
    }

    /// What happened.
    #[must_use]
    pub fn kind(&self) -> PaceErrorKind {
        self.kind
    }

    /// After what time it is worth another try, where that is known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl fmt::Display for PaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            PaceErrorKind::Held => {
                "the server has asked for a longer wait than this request's patience"
            }
            PaceErrorKind::OwnQuota => {
                "the client's own quota has no room within this request's patience"
            }
            PaceErrorKind::NoKey => "the request has no key for a rule that requires one",
        })?;
        match self.retry_after {
            Some(wait) => write!(f, "; try again in {:.1} s", wait.as_secs_f64()),
            None => Ok(()),
        }
    }
}

/// As it is displayed: it comes out of `main`.
impl fmt::Debug for PaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for PaceError {}
