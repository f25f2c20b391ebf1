//! Room for the requests that wait.

use std::sync::Arc;

use http::{HeaderMap, Request};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many requests may wait in a layer at once, unless it says otherwise.
pub(crate) const MAX_REQUESTS: usize = 1_024;

/// How many bytes their heads may have together.
pub(crate) const MAX_HEAD_BYTES: usize = 4 << 20;

/// Room for the requests that wait in a layer: a waiting request holds its head, so that their number and their size are bounded.
#[derive(Debug)]
pub(crate) struct WaitRoom {
    pub(crate) max_requests: usize,
    requests: Arc<Semaphore>,
    head_bytes: Arc<Semaphore>,
}

/// A place for one request. It is free again when this is dropped.
pub(crate) type WaitPlace = [OwnedSemaphorePermit; 2];

impl WaitRoom {
    pub(crate) fn new(max_requests: usize, max_head_bytes: usize) -> Arc<Self> {
        let semaphore =
            |permits: usize| Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)));
        Arc::new(Self {
            max_requests,
            requests: semaphore(max_requests),
            head_bytes: semaphore(max_head_bytes),
        })
    }

    /// A place for a request with a head of this size. `None` if there is none.
    pub(crate) fn enter(&self, head_bytes: usize) -> Option<WaitPlace> {
        let take = |of: &Arc<Semaphore>, number: usize| {
            let number = u32::try_from(number).ok()?;
            Arc::clone(of).try_acquire_many_owned(number).ok()
        };
        Some([
            take(&self.requests, 1)?,
            take(&self.head_bytes, head_bytes)?,
        ])
    }
}

/// The bytes of header fields, with 32 for each as HTTP/2 counts them.
pub(crate) fn field_bytes(fields: &HeaderMap) -> usize {
    let sizes = fields.iter();
    sizes
        .map(|(name, value)| name.as_str().len() + value.len() + 32)
        .sum()
}

/// The bytes of a head. Extensions are not counted.
pub(crate) fn head_bytes<B>(request: &Request<B>) -> usize {
    let uri = request.uri();
    let target = uri.path().len()
        + uri.query().map_or(0, str::len)
        + uri
            .authority()
            .map_or(0, |authority| authority.as_str().len());
    field_bytes(request.headers()) + target + request.method().as_str().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate_limit::settings::Settings;

    #[test]
    fn a_layer_has_places_for_1_024_requests_and_4_mib_of_heads() {
        let (requests, head_bytes) = Settings::default().max_waiting;
        let room = WaitRoom::new(requests, head_bytes);
        let enter = |bytes| room.enter(bytes);
        let mut places: Vec<_> = (0..1_024).map_while(|_| enter(4 << 10)).collect();
        assert_eq!(places.len(), 1_024);
        assert!(enter(0).is_none());
        places.pop();
        assert!(enter(4 << 10 | 1).is_none());
        assert!(enter(4 << 10).is_some());
    }

    #[test]
    fn a_head_is_as_long_as_its_target_and_its_fields() {
        let request = Request::get("http://example.com/path?query")
            .header("x-api-key", "k1")
            .body(())
            .expect("a request");
        // GET, example.com, /path, query, and a field.
        assert_eq!(head_bytes(&request), 3 + 11 + 5 + 5 + (9 + 2 + 32));
    }
}
