//! A key borrowed by a closure.

use std::{fmt, marker::PhantomData};

use tollgate_core::{KeyBuf, KeyPart, PartKind};

use crate::key::{
    extractor::{Extracted, KeyExtractor},
    value::push_found,
};

use crate::head::Head;

/// Counts by a value that a closure borrows from the head of the request; `None` is no key.
///
/// For a key that is not a reference into the head, such as lower-cased text, two values or a constant, use
/// [`computed`](crate::key::computed()). An empty value is a key. The key equals [`Key::of(value)`](tollgate_core::Key::of).
///
/// ```
/// use tollgate::{Head, Key, KeyBuf, key::{Extracted, KeyExtractor, key_fn}};
///
/// let by_agent = key_fn(|head| head.headers.get("user-agent"));
///
/// let (head, ()) = http::Request::builder().header("user-agent", "curl/8").body(()).unwrap().into_parts();
/// let mut key = KeyBuf::new();
/// assert!(matches!(by_agent.extract(&Head::from(&head), &mut key), Extracted::Key));
/// assert_eq!(Key::from(key), Key::of("curl/8"));
/// ```
pub fn key_fn<F, P>(find: F) -> KeyFn<F, P>
where
    F: for<'h> Fn(&Head<'h>) -> Option<&'h P> + Send + Sync + 'static,
    P: KeyPart + ?Sized + 'static,
{
    KeyFn {
        find,
        found: PhantomData,
    }
}

/// The extractor that [`key_fn`] makes.
pub struct KeyFn<F, P: ?Sized> {
    find: F,
    found: PhantomData<fn(&P)>,
}

impl<F, P> KeyExtractor for KeyFn<F, P>
where
    F: for<'h> Fn(&Head<'h>) -> Option<&'h P> + Send + Sync + 'static,
    P: KeyPart + ?Sized + 'static,
{
    fn extract(&self, head: &Head<'_>, key: &mut KeyBuf) -> Extracted {
        push_found(key, PartKind::VALUE, (self.find)(head))
    }
}

impl<F: Clone, P: ?Sized> Clone for KeyFn<F, P> {
    fn clone(&self) -> Self {
        Self {
            find: self.find.clone(),
            found: PhantomData,
        }
    }
}

impl<F, P: ?Sized> fmt::Debug for KeyFn<F, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyFn(..)")
    }
}
