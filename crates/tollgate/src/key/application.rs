//! Keys that the application finds: in the extensions of a request, by a closure, by a look-up; and none at all.

use std::{fmt::Debug, sync::Arc};

use tollgate_core::{Key, KeyBuf, KeyPart, PartKind, Pending};

use crate::{
    head::Head,
    key::{
        extractor::{Extracted, KeyExtractor, NoKey},
        extractor_fn::extractor,
    },
};

/// Counts by a value in the request's extensions, set by an outer middleware.
///
/// Use this for what the application has *verified*: the user of a session, the tenant of an API key, the subject of a token
/// whose signature was checked. Never use a claim of an unverified token: its sender can write anything.
///
/// The type implements [`KeyPart`]; numbers, `Uuid` and [`IpAddr`](std::net::IpAddr) do so already. The parts of the key
/// are of [`PartKind::EXTENSION`], those of addresses of [`PartKind::ADDRESS`]. Equal values of two
/// types are one key; to combine them with [`or`](crate::key::KeyExtractor::or), prefix each with a
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

/// Counts by the key that a closure computes from the head of the request; `None` is no key.
///
/// This is the most general synchronous extractor. If the key is a part of a value in the extensions,
/// [`extension_with`](crate::key::extension_with()) is shorter. An empty value is a key, so return `None` for a client that sends
/// none.
///
/// ```
/// use tollgate::{Head, Key, key::{Extracted, KeyBuf, KeyExtractor, computed}};
///
/// #[derive(Clone)]
/// struct Claims {
///     tenant: String,
///     user: u64,
/// }
///
/// let by_user = computed(|head| {
///     let claims: &Claims = head.extensions.get()?;
///     Some(Key::of((&claims.tenant, claims.user)))
/// });
///
/// let (mut head, ()) = http::Request::new(()).into_parts();
/// head.extensions.insert(Claims { tenant: "acme".to_owned(), user: 7 });
/// let mut key = KeyBuf::new();
/// assert!(matches!(by_user.extract(&Head::from(&head), &mut key), Extracted::Key));
/// assert_eq!(Key::from(key), Key::of(("acme", 7)));
/// ```
pub fn computed<F>(make: F) -> impl KeyExtractor + Clone + Debug
where
    F: Fn(&Head<'_>) -> Option<Key> + Send + Sync + 'static,
{
    let make = Arc::new(make);
    extractor("custom", move |head, key| match make(head) {
        Some(made) => {
            key.append(made.as_ref());
            Extracted::Key
        }
        None => Extracted::Nothing(NoKey::Absent),
    })
}

/// Counts by the key that a future finds, such as the tenant of an API key in a database. `None` is no key.
///
/// The closure copies its input from the head; the future borrows nothing. It runs for each request before the request is
/// counted, so clients can make it expensive: use a cache, and a rule by [`client_ip`](crate::key::client_ip()) in an outer layer.
/// The future is boxed. It is dropped without being polled if another part of the key is missing, or if an earlier alternative
/// has a key.
///
/// All look-ups of a request run concurrently and must finish within the
/// [layer's deadline](crate::RateLimitLayer::look_up_deadline), 200 ms by default. A later alternative
/// ([`or`](crate::key::KeyExtractor::or)) starts only after this look-up has found no key.
///
/// The result is a [`KeyPart`]; the parts of the key are of [`PartKind::LOOK_UP`], those of addresses of [`PartKind::ADDRESS`].
///
/// # Cancel safety
///
/// The future is dropped when the client disconnects, and at the deadline.
///
/// ```
/// use tollgate::{Head, key::{Extracted, KeyExtractor, look_up}};
///
/// async fn tenant_of(api_key: http::HeaderValue) -> Option<String> {
///     (api_key == "k-1").then(|| "acme".to_owned())
/// }
///
/// let by_tenant = look_up(|head| {
///     let api_key = head.headers.get("x-api-key").cloned();
///     async move { tenant_of(api_key?).await }
/// });
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let (head, ()) = http::Request::builder().header("x-api-key", "k-1").body(()).unwrap().into_parts();
/// let Extracted::Later(key) = by_tenant.extract(&Head::from(&head), &mut Default::default()) else { panic!() };
/// assert!(key.await.is_ok());
/// # });
/// ```
pub fn look_up<F, Fut, K>(find: F) -> impl KeyExtractor + Clone + Debug
where
    F: Fn(&Head<'_>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Option<K>> + Send + 'static,
    K: KeyPart,
{
    let find = Arc::new(find);
    extractor("look_up", move |head, _| {
        let found = find(head);
        Extracted::Later(Pending::new(async move {
            let value = found.await.ok_or(NoKey::Absent)?;
            let mut key = KeyBuf::new();
            value.add_to(&mut key, PartKind::LOOK_UP);
            Ok(key)
        }))
    })
}

/// Counts all requests together, or marks a key: `(constant("export"), header("x-api-key"))`.
///
/// The key has one part of [`PartKind::CONSTANT`].
pub fn constant(value: impl AsRef<[u8]>) -> impl KeyExtractor + Clone + Debug {
    let value: Box<[u8]> = value.as_ref().into();
    extractor("constant", move |_, key| {
        key.push(PartKind::CONSTANT, &value);
        Extracted::Key
    })
}
