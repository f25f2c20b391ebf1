//! A value in the request's extensions as the key.

use std::{borrow::Cow, fmt, marker::PhantomData};

use tollgate_core::{Key, KeyBuf, KeyPart, PartKind};

use crate::key::{
    extractor::{Extracted, KeyExtractor, NoKey},
    value::push_found,
};

use crate::head::Head;

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
/// use tollgate::{Head, KeyBuf, PartKind, key::{Extracted, KeyExtractor, KeyPart, extension}};
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
pub fn extension<T>() -> Extension<T>
where
    T: KeyPart + Send + Sync + 'static,
{
    Extension(PhantomData)
}

/// Counts by a part of a value in the request's extensions; `None` is no key.
///
/// Name the type in the closure, which borrows from the value: `|claims: &Claims| Some(&claims.subject)`. For a key that is not a
/// reference into the value, such as two of its fields, use [`extension_key`]. As with
/// [`extension`](crate::key::extension()), the value must come from code that has verified it, and the parts of the key are
/// of [`PartKind::EXTENSION`].
///
/// ```
/// use tollgate::{Head, KeyBuf, PartKind, key::{Extracted, KeyExtractor, extension_with}};
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

/// Counts by what a function makes of a value in the request's extensions; `None` is no key.
///
/// As [`extension_with`], for a key that is not a reference into the value: two fields of it, say.
///
/// ```
/// use tollgate::{Head, Key, KeyBuf, key::{Extracted, KeyExtractor, extension_key}};
///
/// #[derive(Clone)]
/// struct Claims {
///     tenant: String,
///     user: u64,
/// }
///
/// let by_user = extension_key(|claims: &Claims| Some(Key::of((&claims.tenant, claims.user))));
///
/// let (mut head, ()) = http::Request::new(()).into_parts();
/// head.extensions.insert(Claims { tenant: "acme".to_owned(), user: 7 });
/// let mut key = KeyBuf::new();
/// assert!(matches!(by_user.extract(&Head::from(&head), &mut key), Extracted::Key));
/// assert_eq!(Key::from(key), Key::of(("acme", 7)));
/// ```
pub fn extension_key<T, F>(make: F) -> ExtensionKey<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> Option<Key> + Send + Sync + 'static,
{
    ExtensionKey {
        make,
        of: PhantomData,
    }
}

/// The extractor that [`extension()`] makes.
pub struct Extension<T>(PhantomData<fn() -> T>);

impl<T> KeyExtractor for Extension<T>
where
    T: KeyPart + Send + Sync + 'static,
{
    fn extract(&self, head: &Head<'_>, key: &mut KeyBuf) -> Extracted {
        push_found(key, PartKind::EXTENSION, head.extensions.get::<T>())
    }

    fn subject_type(&self) -> Cow<'static, str> {
        "extension".into()
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
    fn extract(&self, head: &Head<'_>, key: &mut KeyBuf) -> Extracted {
        let found = head.extensions.get::<T>().and_then(&self.find);
        push_found(key, PartKind::EXTENSION, found)
    }

    fn subject_type(&self) -> Cow<'static, str> {
        "extension".into()
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

/// The extractor that [`extension_key`] makes.
pub struct ExtensionKey<T, F> {
    make: F,
    of: PhantomData<fn(&T)>,
}

impl<T, F> KeyExtractor for ExtensionKey<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> Option<Key> + Send + Sync + 'static,
{
    fn extract(&self, head: &Head<'_>, key: &mut KeyBuf) -> Extracted {
        match head.extensions.get::<T>().and_then(&self.make) {
            Some(made) => {
                key.append(made.as_ref());
                Extracted::Key
            }
            None => Extracted::Nothing(NoKey::Absent),
        }
    }

    fn subject_type(&self) -> Cow<'static, str> {
        "extension".into()
    }
}

impl<T, F: Clone> Clone for ExtensionKey<T, F> {
    fn clone(&self) -> Self {
        Self {
            make: self.make.clone(),
            of: PhantomData,
        }
    }
}

impl<T, F> fmt::Debug for ExtensionKey<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExtensionKey<{}>", std::any::type_name::<T>())
    }
}
