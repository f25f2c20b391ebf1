//! What the machine can do: a check and a layer that keep no promise. They are no peers, but show how far away the limit is.

use std::{
    convert::Infallible,
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use axum::extract::ConnectInfo;
use foldhash::quality::RandomState;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Request, Response};
use std::hash::{BuildHasher, Hash};
use tollgate::clock::Clock;
use tollgate_benches::layer::API_KEY;
use tower::Service;

use crate::numbers::Numbers;

/// Slots of the table. Keys that fall on one share it.
const SLOTS: usize = 1 << 21;

/// A table of arrival times without keys, locks and bounds: GCRA in whole microseconds.
pub(crate) struct LossyTable {
    arrivals: Box<[AtomicU64]>,
    hasher: RandomState,
    clock: Clock,
    interval: u64,
    burst: u64,
}

impl LossyTable {
    /// One unit each `interval`, and at most `burst` at once.
    pub(crate) fn new((interval, burst): Numbers) -> Self {
        let interval = interval.as_micros() as u64;
        Self {
            arrivals: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
            hasher: RandomState::default(),
            clock: Clock::system(),
            interval,
            burst: interval * u64::from(burst),
        }
    }

    /// The units that are left, or `None` if the request is denied.
    #[inline]
    pub(crate) fn check(&self, key: impl Hash) -> Option<u64> {
        let slot = self.hasher.hash_one(key) as usize % SLOTS;
        let now = self.clock.now();
        let (last, interval) = (now + self.burst, self.interval);
        let after = |arrival: u64| {
            let after = arrival.max(now) + interval;
            (after <= last).then_some(after)
        };
        let relaxed = Ordering::Relaxed;
        let before = self.arrivals[slot].fetch_update(relaxed, relaxed, after);
        Some((last - after(before.ok()?)?) / interval)
    }
}

/// Checks a request: the units that are left, or `None` if it is denied.
pub(crate) type Check = fn(&LossyTable, &HeaderMap, &Extensions) -> Option<u64>;

/// By the peer's address.
pub(crate) fn by_address(table: &LossyTable, _: &HeaderMap, found: &Extensions) -> Option<u64> {
    let peer = found.get::<ConnectInfo<SocketAddr>>()?;
    table.check(peer.0.ip())
}

/// By the header that carries a client's name.
pub(crate) fn by_header(table: &LossyTable, headers: &HeaderMap, _: &Extensions) -> Option<u64> {
    table.check(headers.get(API_KEY)?.as_bytes())
}

/// A layer that only checks, and writes two fields if `fields` is set.
#[derive(Clone)]
pub(crate) struct BareLimit<S> {
    inner: S,
    table: Arc<LossyTable>,
    check: Check,
    fields: bool,
}

impl<S> BareLimit<S> {
    pub(crate) fn new(inner: S, table: Arc<LossyTable>, check: Check, fields: bool) -> Self {
        Self {
            inner,
            table,
            check,
            fields,
        }
    }
}

impl<S, B, R> Service<Request<B>> for BareLimit<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible>,
    S::Future: Unpin,
    R: Default,
{
    type Response = Response<R>;
    type Error = Infallible;
    type Future = BareFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> Self::Future {
        let left = (self.check)(&self.table, request.headers(), request.extensions());
        BareFuture {
            left: left.filter(|_| self.fields),
            inner: left.is_some().then(|| self.inner.call(request)),
        }
    }
}

pub(crate) struct BareFuture<F> {
    inner: Option<F>,
    left: Option<u64>,
}

impl<F, R> Future for BareFuture<F>
where
    F: Future<Output = Result<Response<R>, Infallible>> + Unpin,
    R: Default,
{
    type Output = F::Output;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Some(inner) = &mut self.inner else {
            let mut denied = Response::new(R::default());
            *denied.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
            return Poll::Ready(Ok(denied));
        };
        let Ok(mut response) = ready!(Pin::new(inner).poll(context));
        if let Some(left) = self.left {
            let fields = response.headers_mut();
            let limit = HeaderValue::from_static("\"rule-0\";q=10000;w=1");
            fields.insert(HeaderName::from_static("ratelimit-policy"), limit);
            fields.insert(HeaderName::from_static("ratelimit"), left.into());
        }
        Poll::Ready(Ok(response))
    }
}
