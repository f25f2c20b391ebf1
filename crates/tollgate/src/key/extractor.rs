//! What an extractor is, and alternatives.

use std::{borrow::Cow, fmt, net::IpAddr, sync::Arc};

use tollgate_core::{KeyBuf, Pending};

use crate::head::Head;

/// Finds the key of a request in its head.
///
/// Combine extractors with tuples and with [`or`](crate::key::KeyExtractor::or); write your own with
/// [`computed`](crate::key::computed()) or by implementing this trait:
///
/// ```
/// use tollgate::{Head, key::{Extracted, KeyBuf, KeyExtractor, NoKey, PartKind}};
///
/// struct FirstSegment;
///
/// impl KeyExtractor for FirstSegment {
///     fn extract(&self, head: &Head<'_>, key: &mut KeyBuf) -> Extracted {
///         match head.uri.path().split('/').nth(1) {
///             None | Some("") => return Extracted::Nothing(NoKey::Absent),
///             Some(segment) => key.push(PartKind::VALUE, segment),
///         }
///         Extracted::Key
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say whom a rule counts",
    note = "take header(..), client_ip(), extension::<T>(), a tuple of these, or computed(|head| ..)"
)]
pub trait KeyExtractor: Send + Sync + 'static {
    /// Adds the parts of the request's key to `key`.
    ///
    /// After any result but [`Extracted::Key`], the caller removes the parts that were added.
    fn extract(&self, head: &Head<'_>, key: &mut KeyBuf) -> Extracted;

    /// What it counts by: the label `subject_type` of a rule's metrics, unless the rule [says it](crate::Rule::subject_type). A
    /// fixed word, such as `ip` or `header`, and nothing of a request. Default: `custom`.
    fn subject_type(&self) -> Cow<'static, str> {
        "custom".into()
    }

    /// The client's whole address, if the key is made of it: [lists](crate::key_list) of networks are compared with that. `None`, the
    /// default: it is another key.
    fn client_address(&self, _head: &Head<'_>) -> Option<Result<IpAddr, NoKey>> {
        None
    }

    /// Checks the settings of the extractor, once, when a rule is built.
    ///
    /// # Errors
    ///
    /// A sentence that repeats the wrong input and names a right one.
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }

    /// Uses the key of `other` if this extractor finds none, whatever the reason.
    ///
    /// If both find none, the more severe reason counts: misconfigured, then ambiguous, then absent. If this extractor looks its
    /// key up, `other` extracts its key at the same time, because the head is gone later; a look-up of `other` starts only when
    /// it is needed. If the look-up misses the [layer's deadline](crate::RateLimitLayer::look_up_deadline), there is no key, and
    /// `other` is not used.
    ///
    /// Keys of two kinds never collide: an API key that looks like an address is not that address.
    ///
    /// ```
    /// use tollgate::key::{KeyExtractor, client_ip, header};
    ///
    /// let by_key_or_address = header("x-api-key").or(client_ip());
    /// # let _ = by_key_or_address;
    /// ```
    fn or<E: KeyExtractor>(self, other: E) -> Or<Self, E>
    where
        Self: Sized,
    {
        Or {
            first: self,
            second: other,
        }
    }
}

/// The extractor that [`KeyExtractor::or`] makes.
#[derive(Clone, Debug)]
pub struct Or<A, B> {
    first: A,
    second: B,
}

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for Or<A, B> {
    fn extract(&self, head: &Head<'_>, key: &mut KeyBuf) -> Extracted {
        let start = key.len();
        match self.first.extract(head, key) {
            Extracted::Key => Extracted::Key,
            Extracted::Nothing(why) => {
                key.truncate(start);
                keep_reason(why, self.second.extract(head, key))
            }
            Extracted::Later(first) => {
                key.truncate(start);
                let mut spare = KeyBuf::new();
                let second = self.second.extract(head, &mut spare);
                Extracted::Later(Pending::new(async move {
                    match first.await {
                        Ok(key) => Ok(key),
                        Err(why) => match keep_reason(why, second) {
                            Extracted::Key => Ok(spare),
                            Extracted::Nothing(why) => Err(why),
                            Extracted::Later(second) => second.await,
                        },
                    }
                }))
            }
        }
    }

    fn subject_type(&self) -> Cow<'static, str> {
        let (first, second) = (self.first.subject_type(), self.second.subject_type());
        format!("{first}|{second}").into()
    }

    fn validate(&self) -> Result<(), String> {
        self.first.validate()?;
        self.second.validate()
    }
}

/// The second result, without losing the reason of the first.
fn keep_reason(first: NoKey, second: Extracted) -> Extracted {
    match second {
        Extracted::Key => Extracted::Key,
        Extracted::Nothing(why) => Extracted::Nothing(first.max(why)),
        // `Absent` adds nothing, so the future needs no second box.
        Extracted::Later(second) if first == NoKey::Absent => Extracted::Later(second),
        Extracted::Later(second) => Extracted::Later(Pending::new(async move {
            second.await.map_err(|why| first.max(why))
        })),
    }
}

/// The result of an extractor.
#[derive(Debug)]
#[non_exhaustive]
pub enum Extracted {
    /// The key's parts were added.
    Key,
    /// There is no key.
    Nothing(NoKey),
    /// The key is looked up; nothing was added yet. The future borrows nothing from the head.
    Later(Pending<Result<KeyBuf, NoKey>>),
}

/// Why there is no key. The more severe reason is the greater one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum NoKey {
    /// The request does not carry it.
    Absent,
    /// The request carries it more than once.
    ///
    /// The application may read a different one, so none counts. A rule that skips requests without a key does not skip this
    /// one: otherwise sending a key twice would disable the rule.
    Ambiguous,
    /// The look-up failed, or missed the [layer's deadline](crate::RateLimitLayer::look_up_deadline). A custom extractor returns
    /// it if its look-up fails, because of a database error, say.
    LookUpFailed,
    /// The service is not set up for the extractor; the text names the call to add.
    Misconfigured(Cow<'static, str>),
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

// The same text as `Display`, because it is what `main` prints.
tollgate_core::debug_fields!(NoKey as Display);

impl std::error::Error for NoKey {}

impl<E: KeyExtractor + ?Sized> KeyExtractor for Arc<E> {
    fn extract(&self, head: &Head<'_>, key: &mut KeyBuf) -> Extracted {
        (**self).extract(head, key)
    }

    fn subject_type(&self) -> Cow<'static, str> {
        (**self).subject_type()
    }

    fn client_address(&self, head: &Head<'_>) -> Option<Result<IpAddr, NoKey>> {
        (**self).client_address(head)
    }

    fn validate(&self) -> Result<(), String> {
        (**self).validate()
    }
}
