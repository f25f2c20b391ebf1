//! A key that has to be looked up.

use std::{fmt, marker::PhantomData};

use http::request::Parts;
use tollgate_core::{KeyBuf, KeyPart, PartKind, Pending};

use crate::key::extractor::{Extracted, KeyExtractor, NoKey};

/// Takes the key that a future finds: the tenant of an API key in a database, say. `None` says that there is none.
///
/// The closure copies what it needs out of the head; its future borrows nothing. It runs for each request, before the
/// request is counted, so it is itself something that a client can make expensive: keep a cache, and a rule by
/// [`client_ip`](crate::key::client_ip()) in a layer in front. The future is boxed, and it is dropped without having been
/// polled where another part of the key is missing or an alternative in front was found.
///
/// It has to end within the [layer's deadline](crate::RateLimitLayer::look_up_deadline), 200 ms unless told otherwise, together
/// with all others of the request: they run at the same time. An alternative behind it
/// ([`or`](crate::key::KeyExtractorExt::or)) is for keys that are not there, and begins only when it has ended.
///
/// What it finds is a [`KeyPart`]; the parts of the key are of [`PartKind::LOOK_UP`], those of addresses of
/// [`PartKind::ADDRESS`].
///
/// # Cancel safety
///
/// The future is dropped when the client goes away, and when the deadline passes.
///
/// ```
/// use tollgate::key::{Extracted, KeyExtractor, look_up};
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
/// let Extracted::Later(key) = by_tenant.extract(&head, &mut Default::default()) else { panic!() };
/// assert!(key.await.is_ok());
/// # });
/// ```
pub fn look_up<F, Fut, K>(find: F) -> LookUp<F, Fut>
where
    F: Fn(&Parts) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Option<K>> + Send + 'static,
    K: KeyPart,
{
    LookUp {
        find,
        future: PhantomData,
    }
}

/// The extractor that [`look_up`] makes.
pub struct LookUp<F, Fut> {
    find: F,
    future: PhantomData<fn() -> Fut>,
}

impl<F, Fut, K> KeyExtractor for LookUp<F, Fut>
where
    F: Fn(&Parts) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Option<K>> + Send + 'static,
    K: KeyPart,
{
    fn extract(&self, head: &Parts, _: &mut KeyBuf) -> Extracted {
        let found = (self.find)(head);
        Extracted::Later(Pending::new(async move {
            let value = found.await.ok_or(NoKey::Absent)?;
            let mut key = KeyBuf::new();
            value.add_to(&mut key, PartKind::LOOK_UP);
            Ok(key)
        }))
    }
}

impl<F: Clone, Fut> Clone for LookUp<F, Fut> {
    fn clone(&self) -> Self {
        Self {
            find: self.find.clone(),
            future: PhantomData,
        }
    }
}

impl<F, Fut> fmt::Debug for LookUp<F, Fut> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LookUp(..)")
    }
}
