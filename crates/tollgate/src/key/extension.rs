//! A value in the request's extensions as the key.

use std::{fmt::Debug, sync::Arc};

use tollgate_core::{KeyPart, PartKind};

use crate::key::extractor::{Extracted, KeyExtractor, NoKey, extractor};

/// Counts by a value in the request's extensions, set by an outer middleware.
///
/// Use this for what the application has *verified*: the user of a session, the tenant of an API key, the subject of a token
/// whose signature was checked. Never use a claim of an unverified token: its sender can write anything.
///
/// The type implements [`KeyPart`]; numbers, `Uuid` and [`IpAddr`](std::net::IpAddr) do so already. The parts of the key
/// are of [`PartKind::EXTENSION`], those of addresses of [`PartKind::ADDRESS`]. Equal values of two
/// types are one key; to combine them with [`or`](crate::key::KeyExtractorExt::or), prefix each with a
/// [`constant`](crate::key::constant()).
///
/// ```
/// use tollgate::{Head, key::{Extracted, KeyBuf, KeyExtractor, KeyPart, PartKind, extension}};
///
/// #[derive(Clone)]
/// struct Tenant(String);
///
/// impl KeyPart for Tenant {
///     fn add_to(&self, key: &mut KeyBuf, kind: PartKind) {
///         self.0.add_to(key, kind);
///     }
/// }
///
/// let (mut head, ()) = http::Request::new(()).into_parts();
/// let mut key = KeyBuf::new();
/// assert!(matches!(extension::<Tenant>().extract(&Head::from(&head), &mut key), Extracted::Nothing(_)));
///
/// head.extensions.insert(Tenant("acme".to_owned()));
/// assert!(matches!(extension::<Tenant>().extract(&Head::from(&head), &mut key), Extracted::Key));
/// ```
#[must_use]
pub fn extension<T>() -> impl KeyExtractor + Clone + Debug
where
    T: KeyPart + Send + Sync + 'static,
{
    extension_with(|value: &T| Some(value))
}

/// Counts by a part of a value in the request's extensions; `None` is no key.
///
/// Name the type in the closure, which borrows from the value: `|claims: &Claims| Some(&claims.subject)`. For a key that is not a
/// reference into the value, such as two of its fields, use [`computed`](crate::key::computed()). As with
/// [`extension`](crate::key::extension()), the value must come from code that has verified it, and the parts of the key are
/// of [`PartKind::EXTENSION`].
///
/// ```
/// use tollgate::{Head, key::{Extracted, KeyBuf, KeyExtractor, PartKind, extension_with}};
///
/// #[derive(Clone)]
/// struct Claims {
///     subject: String,
/// }
///
/// let by_subject = extension_with(|claims: &Claims| Some(&claims.subject));
///
/// let (mut head, ()) = http::Request::new(()).into_parts();
/// head.extensions.insert(Claims { subject: "ada".to_owned() });
/// let mut key = KeyBuf::new();
/// assert!(matches!(by_subject.extract(&Head::from(&head), &mut key), Extracted::Key));
/// assert_eq!(key.parts().next(), Some((PartKind::EXTENSION, &b"ada"[..])));
/// ```
pub fn extension_with<T, F, P>(find: F) -> impl KeyExtractor + Clone + Debug
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> Option<&P> + Send + Sync + 'static,
    P: KeyPart + ?Sized + 'static,
{
    let find = Arc::new(find);
    extractor("extension", move |head, key| {
        let Some(found) = head.extensions.get::<T>().and_then(&*find) else {
            return Extracted::Nothing(NoKey::Absent);
        };
        found.add_to(key, PartKind::EXTENSION);
        Extracted::Key
    })
}
