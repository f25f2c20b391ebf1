//! A key from a closure.

use std::{fmt, marker::PhantomData};

use http::request::Parts;
use tollgate_core::{KeyBuf, PartKind};

use crate::key::{
    extractor::{Extracted, KeyExtractor},
    value::push_found,
};

/// Takes the key that a closure finds in the head of the request; `None` says that there is none.
///
/// The value borrows nothing of the head: give a `HeaderValue`, a `String`, an array of bytes. What the closure gives is a
/// key even if it is empty. The key has one part of [`PartKind::VALUE`], and so equals
/// [`Key::of([value])`](tollgate_core::Key::of).
///
/// ```
/// use tollgate::{Key, KeyBuf, key::{Extracted, KeyExtractor, key_fn}};
///
/// let by_agent = key_fn(|head| head.headers.get("user-agent").cloned());
///
/// let (head, ()) = http::Request::builder().header("user-agent", "curl/8").body(()).unwrap().into_parts();
/// let mut key = KeyBuf::new();
/// assert!(matches!(by_agent.extract(&head, &mut key), Extracted::Key));
/// assert_eq!(Key::from(key), Key::of(["curl/8"]));
/// ```
pub fn key_fn<F, K>(find: F) -> KeyFn<F, K>
where
    F: Fn(&Parts) -> Option<K> + Send + Sync + 'static,
    K: AsRef<[u8]> + 'static,
{
    KeyFn {
        find,
        found: PhantomData,
    }
}

/// The extractor that [`key_fn`] makes.
pub struct KeyFn<F, K> {
    find: F,
    found: PhantomData<fn() -> K>,
}

impl<F, K> KeyExtractor for KeyFn<F, K>
where
    F: Fn(&Parts) -> Option<K> + Send + Sync + 'static,
    K: AsRef<[u8]> + 'static,
{
    fn extract(&self, head: &Parts, key: &mut KeyBuf) -> Extracted {
        push_found(key, PartKind::VALUE, (self.find)(head))
    }
}

impl<F: Clone, K> Clone for KeyFn<F, K> {
    fn clone(&self) -> Self {
        Self {
            find: self.find.clone(),
            found: PhantomData,
        }
    }
}

impl<F, K> fmt::Debug for KeyFn<F, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyFn(..)")
    }
}
