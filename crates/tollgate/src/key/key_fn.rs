//! A key borrowed by a closure.

use std::{fmt::Debug, sync::Arc};

use tollgate_core::{KeyPart, PartKind};

use crate::{
    head::Head,
    key::{
        extractor::{KeyExtractor, extractor},
        value::push_found,
    },
};

/// Counts by a value that a closure borrows from the head of the request; `None` is no key.
///
/// For a key that is not a reference into the head, such as lower-cased text, two values or a constant, use
/// [`computed`](crate::key::computed()). An empty value is a key. The key equals [`Key::of(value)`](tollgate_core::Key::of).
///
/// ```
/// use tollgate::{Head, Key, key::{Extracted, KeyBuf, KeyExtractor, key_fn}};
///
/// let by_agent = key_fn(|head| head.headers.get("user-agent"));
///
/// let (head, ()) = http::Request::builder().header("user-agent", "curl/8").body(()).unwrap().into_parts();
/// let mut key = KeyBuf::new();
/// assert!(matches!(by_agent.extract(&Head::from(&head), &mut key), Extracted::Key));
/// assert_eq!(Key::from(key), Key::of("curl/8"));
/// ```
pub fn key_fn<F, P>(find: F) -> impl KeyExtractor + Clone + Debug
where
    F: for<'h> Fn(&Head<'h>) -> Option<&'h P> + Send + Sync + 'static,
    P: KeyPart + ?Sized + 'static,
{
    let find = Arc::new(find);
    extractor("custom", move |head, key| {
        push_found(key, PartKind::VALUE, find(head))
    })
}
