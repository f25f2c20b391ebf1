//! What an extractor is.

use std::{borrow::Cow, fmt, sync::Arc};

use http::request::Parts;
use tollgate_core::{KeyBuf, Pending};

/// Finds the key of a request in its head.
///
/// Combine extractors with tuples and with [`or`](crate::key::KeyExtractorExt::or); write your own with
/// [`key_fn`](crate::key::key_fn()) or by implementing this trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say whom a rule counts",
    note = "take header(..), client_ip(), extension::<T>(), a tuple of these, or key_fn(|head| ..)"
)]
pub trait KeyExtractor: Send + Sync + 'static {
    /// Adds the parts of the request's key to `key`.
    ///
    /// Only [`Extracted::Key`] leaves parts behind. After any other answer the caller takes off what was added.
    fn extract(&self, head: &Parts, key: &mut KeyBuf) -> Extracted;

    /// Whether the extractor is set up so that it can work. Asked once, when a rule is built.
    ///
    /// # Errors
    ///
    /// A sentence that repeats the wrong input and says what would be right.
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
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
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoKey {
    /// The request does not carry it.
    Absent,
    /// The request carries it more than once.
    ///
    /// The application may read another one than we would, so none counts. It is not the same as absent: a rule that
    /// skips requests without a key must not skip this one, or sending a key twice would switch the rule off.
    Ambiguous,
    /// It was not looked up within the
    /// [layer's deadline](crate::RateLimitLayer::look_up_deadline). Made by the layer; an extractor whose look-up fails in
    /// another way, an error of a database say, gives it too.
    LookUpFailed,
    /// The service is not set up for it; the text names the call to add.
    Misconfigured(Cow<'static, str>),
}

impl NoKey {
    /// The more telling one of two reasons; the first, if they tell the same.
    pub(crate) fn or(self, other: Self) -> Self {
        if other.weight() > self.weight() {
            other
        } else {
            self
        }
    }

    fn weight(&self) -> u8 {
        match self {
            Self::Absent => 0,
            Self::Ambiguous => 1,
            Self::LookUpFailed => 2,
            Self::Misconfigured(_) => 3,
        }
    }
}

impl fmt::Display for NoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("the request has no key"),
            Self::Ambiguous => f.write_str("the request carries its key more than once"),
            Self::LookUpFailed => f.write_str("the key of the request was not looked up in time"),
            Self::Misconfigured(what) => f.write_str(what),
        }
    }
}

/// As it is displayed: it comes out of `main`.
impl fmt::Debug for NoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for NoKey {}

impl<E: KeyExtractor + ?Sized> KeyExtractor for Arc<E> {
    fn extract(&self, head: &Parts, key: &mut KeyBuf) -> Extracted {
        (**self).extract(head, key)
    }

    fn validate(&self) -> Result<(), String> {
        (**self).validate()
    }
}

impl<E: KeyExtractor + ?Sized> KeyExtractor for Box<E> {
    fn extract(&self, head: &Parts, key: &mut KeyBuf) -> Extracted {
        (**self).extract(head, key)
    }

    fn validate(&self) -> Result<(), String> {
        (**self).validate()
    }
}
