//! A key computed by a closure.

use std::{fmt::Debug, sync::Arc};

use tollgate_core::Key;

use crate::{
    head::Head,
    key::extractor::{Extracted, KeyExtractor, NoKey, extractor},
};

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
