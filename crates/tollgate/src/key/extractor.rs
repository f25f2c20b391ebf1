//! What an extractor is.

use std::{borrow::Cow, fmt, sync::Arc};

use http::request::Parts;
use tollgate_core::{KeyBuf, Pending};

/// Finds the key of a request in its head.
///
/// Combine extractors with tuples and with [`or`](crate::key::KeyExtractorExt::or); write your own with
/// [`key_fn`](crate::key::key_fn) or by implementing this trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say whom a rule counts",
    note = "take header(..), client_ip(), extension::<T>(), a tuple of these, or key_fn(|head| ..)"
)]
pub trait KeyExtractor: Send + Sync + 'static {
    /// Adds the parts of the request's key to `key`.
    ///
    /// Where there is no key, `key` may be left with parts that the caller takes off again.
    fn extract(&self, head: &Parts, key: &mut KeyBuf) -> Extracted;
}

/// What an extractor found.
#[derive(Debug)]
pub enum Extracted {
    /// The key's parts were added.
    Key,
    /// There is no key.
    Nothing(NoKey),
    /// The key's parts come later; nothing was added yet. A future that borrows nothing of the head.
    Later(Pending<Result<KeyBuf, NoKey>>),
}

/// Why there is no key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoKey {
    /// The request does not carry it.
    Absent,
    /// The service is not set up for it; the text names the call to add.
    Misconfigured(Cow<'static, str>),
}

impl fmt::Display for NoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("the request has no key"),
            Self::Misconfigured(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for NoKey {}

impl<E: KeyExtractor + ?Sized> KeyExtractor for Arc<E> {
    fn extract(&self, head: &Parts, key: &mut KeyBuf) -> Extracted {
        (**self).extract(head, key)
    }
}
