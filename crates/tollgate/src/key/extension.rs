//! What a middleware in front has found out, as the key.

use std::{fmt, marker::PhantomData};

use http::request::Parts;
use tollgate_core::{KeyBuf, KeyPart, PartKind};

use crate::key::{
    extractor::{Extracted, KeyExtractor},
    value::push_found,
};

/// Counts by a value that a middleware in front has put into the request's extensions.
///
/// This is the place for what the application has *verified*: the user of a session, the tenant of an API key, the subject
/// of a token whose signature was checked. Never read a claim out of a token that nobody has checked: its sender writes
/// what he likes.
///
/// The type implements [`KeyPart`]; numbers, `Uuid` and [`IpAddr`](std::net::IpAddr) do so already. The parts of the key
/// are of [`PartKind::EXTENSION`], those of addresses of [`PartKind::ADDRESS`]. Values of two types that are spelled alike
/// are one key; where [`or`](crate::key::KeyExtractorExt::or) has two of them, put a
/// [`constant`](crate::key::constant()) in front of each.
///
/// ```
/// use tollgate::{KeyBuf, KeyPart, PartKind, key::{Extracted, KeyExtractor, extension}};
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
/// assert!(matches!(extension::<Tenant>().extract(&head, &mut key), Extracted::Nothing(_)));
///
/// head.extensions.insert(Tenant("acme".to_owned()));
/// assert!(matches!(extension::<Tenant>().extract(&head, &mut key), Extracted::Key));
/// ```
#[must_use]
pub fn extension<T>() -> Extension<T>
where
    T: KeyPart + Send + Sync + 'static,
{
    Extension(PhantomData)
}

/// Counts by a part of a value in the request's extensions; `None` says that there is no key.
///
/// Say the type in the closure, which borrows from the value: `|claims: &Claims| Some(&claims.subject)`. For a key that is
/// not there to borrow, a tuple of two fields, say, take [`computed`](crate::key::computed()). As with
/// [`extension`](crate::key::extension()), the value must come from code that has verified it, and the parts of the key are
/// of [`PartKind::EXTENSION`].
///
/// ```
/// use tollgate::{KeyBuf, PartKind, key::{Extracted, KeyExtractor, extension_with}};
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
/// assert!(matches!(by_subject.extract(&head, &mut key), Extracted::Key));
/// assert_eq!(key.parts().next(), Some((PartKind::EXTENSION, &b"ada"[..])));
/// ```
pub fn extension_with<T, F, P>(find: F) -> ExtensionWith<T, F, P>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> Option<&P> + Send + Sync + 'static,
    P: KeyPart + ?Sized + 'static,
{
    ExtensionWith {
        find,
        types: PhantomData,
    }
}

/// The extractor that [`extension()`] makes.
pub struct Extension<T>(PhantomData<fn() -> T>);

impl<T> KeyExtractor for Extension<T>
where
    T: KeyPart + Send + Sync + 'static,
{
    fn extract(&self, head: &Parts, key: &mut KeyBuf) -> Extracted {
        push_found(key, PartKind::EXTENSION, head.extensions.get::<T>())
    }
}

impl<T> Clone for Extension<T> {
    fn clone(&self) -> Self {
        Self(PhantomData)
    }
}

impl<T> fmt::Debug for Extension<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extension<{}>", std::any::type_name::<T>())
    }
}

/// The extractor that [`extension_with`] makes.
pub struct ExtensionWith<T, F, P: ?Sized> {
    find: F,
    types: PhantomData<fn(&T) -> &P>,
}

impl<T, F, P> KeyExtractor for ExtensionWith<T, F, P>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> Option<&P> + Send + Sync + 'static,
    P: KeyPart + ?Sized + 'static,
{
    fn extract(&self, head: &Parts, key: &mut KeyBuf) -> Extracted {
        let found = head.extensions.get::<T>().and_then(&self.find);
        push_found(key, PartKind::EXTENSION, found)
    }
}

impl<T, F: Clone, P: ?Sized> Clone for ExtensionWith<T, F, P> {
    fn clone(&self) -> Self {
        Self {
            find: self.find.clone(),
            types: PhantomData,
        }
    }
}

impl<T, F, P: ?Sized> fmt::Debug for ExtensionWith<T, F, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExtensionWith<{}>", std::any::type_name::<T>())
    }
}
