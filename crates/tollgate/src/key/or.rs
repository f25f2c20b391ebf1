//! Alternatives.

use std::borrow::Cow;

use tollgate_core::{KeyBuf, Pending};

use crate::key::extractor::{Extracted, KeyExtractor, NoKey};

use crate::head::Head;

/// Combinators of extractors.
pub trait KeyExtractorExt: KeyExtractor + Sized {
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
    /// use tollgate::key::{KeyExtractorExt, client_ip, header};
    ///
    /// let by_key_or_address = header("x-api-key").or(client_ip());
    /// # let _ = by_key_or_address;
    /// ```
    fn or<E: KeyExtractor>(self, other: E) -> Or<Self, E> {
        Or {
            first: self,
            second: other,
        }
    }
}

impl<E: KeyExtractor> KeyExtractorExt for E {}

/// The extractor that [`KeyExtractorExt::or`] makes.
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
                let second = self.second.extract(head, key);
                if !matches!(second, Extracted::Key) {
                    key.truncate(start);
                }
                keep_reason(why, second)
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
        Extracted::Nothing(why) => Extracted::Nothing(first.or(why)),
        // `Absent` adds nothing, so the future needs no second box.
        Extracted::Later(second) if first == NoKey::Absent => Extracted::Later(second),
        Extracted::Later(second) => Extracted::Later(Pending::new(async move {
            second.await.map_err(|why| first.or(why))
        })),
    }
}
