//! A key that is looked up.

use std::{fmt::Debug, sync::Arc};

use tollgate_core::{KeyBuf, KeyPart, PartKind, Pending};

use crate::{
    head::Head,
    key::extractor::{Extracted, KeyExtractor, NoKey, extractor},
};

/// Counts by the key that a future finds, such as the tenant of an API key in a database. `None` is no key.
///
/// The closure copies its input from the head; the future borrows nothing. It runs for each request before the request is
/// counted, so clients can make it expensive: use a cache, and a rule by [`client_ip`](crate::key::client_ip()) in an outer layer.
/// The future is boxed. It is dropped without being polled if another part of the key is missing, or if an earlier alternative
/// has a key.
///
/// All look-ups of a request run concurrently and must finish within the
/// [layer's deadline](crate::RateLimitLayer::look_up_deadline), 200 ms by default. A later alternative
/// ([`or`](crate::key::KeyExtractorExt::or)) starts only after this look-up has found no key.
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
