//! Alternatives and tuples of extractors.

use std::{
    borrow::Cow,
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
};

use tollgate_core::{KeyBuf, Pending};

use crate::{
    head::Head,
    key::extractor::{Extracted, KeyExtractor, NoKey},
};

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

type LookUp = Pending<Result<KeyBuf, NoKey>>;

macro_rules! tuple {
    ($($extractor:ident $field:tt),+) => {
        /// One key of all parts, in order. If one is missing, there is no key.
        ///
        /// Look-ups run concurrently.
        impl<$($extractor: KeyExtractor),+> KeyExtractor for ($($extractor,)+) {
            fn extract(&self, head: &Head<'_>, key: &mut KeyBuf) -> Extracted {
                in_order(&[$(&self.$field),+], head, key)
            }

            fn subject_type(&self) -> Cow<'static, str> {
                let parts = [$(self.$field.subject_type()),+];
                parts.join("+").into()
            }

            fn validate(&self) -> Result<(), String> {
                $(self.$field.validate()?;)+
                Ok(())
            }
        }
    };
}

tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);

fn in_order(extractors: &[&dyn KeyExtractor], head: &Head<'_>, key: &mut KeyBuf) -> Extracted {
    if !key.is_empty() {
        // A nested tuple: collect our parts separately, because a look-up may have to take them along.
        let mut own = KeyBuf::new();
        let found = in_order(extractors, head, &mut own);
        if matches!(found, Extracted::Key) {
            key.append(&own);
        }
        return found;
    }
    for (i, extractor) in extractors.iter().enumerate() {
        let start = key.len();
        match extractor.extract(head, key) {
            Extracted::Key => {}
            Extracted::Nothing(why) => {
                key.clear();
                return Extracted::Nothing(why);
            }
            Extracted::Later(later) => {
                key.truncate(start);
                return with_look_up(std::mem::take(key), later, &extractors[i + 1..], head);
            }
        }
    }
    Extracted::Key
}

/// Reads everything else from the head now, because it is gone when the look-up ends.
fn with_look_up(
    before: KeyBuf,
    later: LookUp,
    after: &[&dyn KeyExtractor],
    head: &Head<'_>,
) -> Extracted {
    let mut rest = KeyBuf::new();
    let rest_later = match in_order(after, head, &mut rest) {
        Extracted::Key => None,
        Extracted::Nothing(why) => return Extracted::Nothing(why),
        Extracted::Later(rest) => Some(rest),
    };
    Extracted::Later(Pending::new(async move {
        let mut key = before;
        match rest_later {
            Some(rest) => {
                let (later, rest) = both(later, rest).await?;
                key.append(&later);
                key.append(&rest);
            }
            None => {
                key.append(&later.await?);
                key.append(&rest);
            }
        }
        Ok(key)
    }))
}

/// Both keys, or the reason of the first extractor without one, in their order, so that it does not depend on timing.
async fn both(mut first: LookUp, mut second: LookUp) -> Result<(KeyBuf, KeyBuf), NoKey> {
    let (mut one, mut other) = (None, None);
    poll_fn(|cx| {
        if one.is_none()
            && let Poll::Ready(found) = Pin::new(&mut first).poll(cx)
        {
            one = Some(found?);
        }
        if other.is_none()
            && let Poll::Ready(found) = Pin::new(&mut second).poll(cx)
        {
            other = Some(found);
        }
        match (one.take(), other.take()) {
            (Some(one), Some(other)) => Poll::Ready(other.map(|other| (one, other))),
            (found, of_second) => {
                (one, other) = (found, of_second);
                Poll::Pending
            }
        }
    })
    .await
}
