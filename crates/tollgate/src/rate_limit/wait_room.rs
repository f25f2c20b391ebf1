//! Room for the requests that wait.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use http::Request;

/// How many requests may wait in a layer at once, unless it says otherwise.
pub(crate) const MAX_REQUESTS: usize = 1_024;

/// How many bytes their heads may have together.
pub(crate) const MAX_HEAD_BYTES: usize = 4 << 20;

/// Room for the requests that wait in a layer: a waiting request holds its head, so that their number and their size are bounded.
#[derive(Debug)]
pub(crate) struct WaitRoom {
    max_requests: usize,
    max_head_bytes: usize,
    requests: AtomicUsize,
    head_bytes: AtomicUsize,
}

/// A place for one request. It is free again when this is dropped.
#[derive(Debug)]
#[must_use = "the place is free again when this is dropped"]
pub(crate) struct WaitPlace {
    room: Arc<WaitRoom>,
    head_bytes: usize,
}

impl WaitRoom {
    pub(crate) fn new(max_requests: usize, max_head_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            max_requests,
            max_head_bytes,
            requests: AtomicUsize::new(0),
            head_bytes: AtomicUsize::new(0),
        })
    }

    pub(crate) fn max_requests(&self) -> usize {
        self.max_requests
    }

    /// Whether no further request may wait.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.requests.load(Ordering::Relaxed) >= self.max_requests
    }

    /// A place for a request with a head of this size. `None` if there is none.
    pub(crate) fn enter(self: &Arc<Self>, head_bytes: usize) -> Option<WaitPlace> {
        let add = |to: &AtomicUsize, number: usize, max: usize| {
            to.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| {
                before.checked_add(number).filter(|after| *after <= max)
            })
            .is_ok()
        };
        if !add(&self.requests, 1, self.max_requests) {
            return None;
        }
        if !add(&self.head_bytes, head_bytes, self.max_head_bytes) {
            self.requests.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(WaitPlace {
            room: Arc::clone(self),
            head_bytes,
        })
    }
}

impl Drop for WaitPlace {
    fn drop(&mut self) {
        self.room.requests.fetch_sub(1, Ordering::Relaxed);
        self.room
            .head_bytes
            .fetch_sub(self.head_bytes, Ordering::Relaxed);
    }
}

/// The bytes of a head, with 32 for each field as HTTP/2 counts them. Extensions are not counted.
pub(crate) fn head_bytes<B>(request: &Request<B>) -> usize {
    let fields = request.headers().iter();
    let fields = fields.map(|(name, value)| name.as_str().len() + value.len() + 32);
    let uri = request.uri();
    let target = uri.path().len()
        + uri.query().map_or(0, str::len)
        + uri
            .authority()
            .map_or(0, |authority| authority.as_str().len());
    fields.sum::<usize>() + target + request.method().as_str().len()
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
        let request = Request::get("http://example.com/path?query").header("x-api-key", "k1");
        let request = request.body(()).expect("a request");
        // GET, example.com, /path, query, and a field.
        assert_eq!(head_bytes(&request), 3 + 11 + 5 + 5 + (9 + 2 + 32));
    }
}
