//! What a middleware in front has found out, as the key.

use std::{fmt, marker::PhantomData};

use http::request::Parts;
use tollgate_core::{KeyBuf, PartKind};

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
/// The key has one part of [`PartKind::EXTENSION`]. Values of two types that are spelled alike are one key; where
/// [`or`](crate::key::KeyExtractorExt::or) has two of them, put a [`constant`](crate::key::constant()) in front of each.
///
/// ```
/// use tollgate::{KeyBuf, key::{Extracted, KeyExtractor, extension}};
///
/// #[derive(Clone)]
/// struct Tenant(String);
///
/// impl AsRef<[u8]> for Tenant {
///     fn as_ref(&self) -> &[u8] {
///         self.0.as_bytes()
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
    T: AsRef<[u8]> + Send + Sync + 'static,
{
    Extension(PhantomData)
}

/// Counts by a part of a value in the request's extensions; `None` says that there is no key.
///
/// Say the type in the closure: `extension_with(|claims: &Claims| Some(claims.subject.clone()))`. As with
/// [`extension`](crate::key::extension()), the value must come from code that has verified it. The key has one part of
/// [`PartKind::EXTENSION`].
pub fn extension_with<T, F, K>(find: F) -> ExtensionWith<T, F, K>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> Option<K> + Send + Sync + 'static,
    K: AsRef<[u8]> + 'static,
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
    T: AsRef<[u8]> + Send + Sync + 'static,
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
pub struct ExtensionWith<T, F, K> {
    find: F,
    types: PhantomData<fn(&T) -> K>,
}

impl<T, F, K> KeyExtractor for ExtensionWith<T, F, K>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> Option<K> + Send + Sync + 'static,
    K: AsRef<[u8]> + 'static,
{
    fn extract(&self, head: &Parts, key: &mut KeyBuf) -> Extracted {
        let found = head.extensions.get::<T>().and_then(&self.find);
        push_found(key, PartKind::EXTENSION, found)
    }
}

impl<T, F: Clone, K> Clone for ExtensionWith<T, F, K> {
    fn clone(&self) -> Self {
        Self {
            find: self.find.clone(),
            types: PhantomData,
        }
    }
}

impl<T, F, K> fmt::Debug for ExtensionWith<T, F, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExtensionWith<{}>", std::any::type_name::<T>())
    }
}
