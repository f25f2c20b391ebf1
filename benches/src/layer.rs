//! A request through a layer, without a network: a service that answers at once, and a poll of its future.

use std::{
    convert::Infallible,
    future::{Future, Ready, ready},
    hint::black_box,
    marker::PhantomData,
    pin::pin,
    task::{Context, Poll, Waker},
};

use http::{HeaderName, HeaderValue, Method, Request, Response, Uri, header::CONTENT_TYPE};
use tollgate::{
    MemoryStore, Quota, RateLimitLayer, Rule, RuleError, SECOND, Store,
    condition::path,
    header::HeaderStyle,
    key::{KeyExtractor, PeerAddr, client_ip, header},
};
use tower_service::Service;

use crate::check::{DAILY, account, note};

/// The header that carries a client's name.
pub const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Answers at once, with an empty body of type `B`.
#[derive(Debug)]
pub struct Bare<B>(PhantomData<fn() -> B>);

impl<B> Bare<B> {
    /// The service.
    #[must_use]
    pub fn new() -> Self {
        Self(PhantomData)
    }
}

impl<B> Default for Bare<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B> Clone for Bare<B> {
    fn clone(&self) -> Self {
        Self::new()
    }
}

impl<R, B: Default> Service<Request<R>> for Bare<B> {
    type Response = Response<B>;
    type Error = Infallible;
    type Future = Ready<Result<Response<B>, Infallible>>;

    #[inline]
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn call(&mut self, request: Request<R>) -> Self::Future {
        drop(black_box(request));
        ready(Ok(Response::new(B::default())))
    }
}

/// A layer with `rules` equal rules that count by the [`API_KEY`], on a store of its own.
///
/// # Errors
///
/// A quota that cannot be used.
pub fn layer(
    quota: Quota,
    rules: usize,
    headers: HeaderStyle,
) -> Result<RateLimitLayer, RuleError> {
    let rules = (0..rules).map(|i| Rule::new(format!("rule-{i}"), quota).by(header(API_KEY)));
    RateLimitLayer::new(MemoryStore::new(), rules)?.headers(headers)
}

/// A layer with one such rule, whose requests wait for up to a second.
///
/// # Errors
///
/// A quota that cannot be used.
pub fn layer_that_waits(quota: Quota) -> Result<RateLimitLayer, RuleError> {
    let rule = Rule::new("rule-0", quota).wait(SECOND).by(header(API_KEY));
    RateLimitLayer::new(MemoryStore::new(), [rule])?.headers(HeaderStyle::NONE)
}

/// A layer with one rule of a window, on this store, that is durable or not, with the fields that a layer has by itself.
///
/// # Errors
///
/// A store that cannot serve it.
pub fn layer_of_window(store: impl Store, is_durable: bool) -> Result<RateLimitLayer, RuleError> {
    let mut rule = Rule::new("rule-0", DAILY);
    if is_durable {
        rule = rule.durable(account);
    }
    let layer = RateLimitLayer::new(store, [rule.by(header(API_KEY))])?;
    note(layer.limiter().journal());
    Ok(layer)
}

/// A layer with one such rule, and one of slots that no bench uses up.
///
/// # Errors
///
/// A quota that cannot be used.
pub fn layer_of_slots(quota: Quota) -> Result<RateLimitLayer, RuleError> {
    let slots = Quota::concurrent(1_000);
    let rules = [("rate", quota), ("at-once", slots)];
    let rules = rules.map(|(name, quota)| Rule::new(name, quota).by(header(API_KEY)));
    RateLimitLayer::new(MemoryStore::new(), rules)?.headers(HeaderStyle::NONE)
}

/// A layer with a rule for each of so many routes, on a store of its own.
///
/// # Errors
///
/// A quota that cannot be used.
pub fn layer_of_routes(quota: Quota, routes: usize) -> Result<RateLimitLayer, RuleError> {
    let rule = |n: usize| {
        let rule = Rule::new(format!("rule-{n}"), quota).by(header(API_KEY));
        Ok(rule.when(path(&format!("/route-{n}/{{id}}"))?))
    };
    let rules = (0..routes)
        .map(rule)
        .collect::<Result<Vec<_>, RuleError>>()?;
    RateLimitLayer::new(MemoryStore::new(), rules)?.headers(HeaderStyle::NONE)
}

/// A request with an [`API_KEY`] on the first of those routes.
#[must_use]
pub fn request_on_route<R: Default>() -> Request<R> {
    let mut request = request();
    *request.uri_mut() = Uri::from_static("/route-0/7");
    request
}

/// A layer with one rule that counts by `key`, on a store of its own.
///
/// # Errors
///
/// A quota that cannot be used.
pub fn layer_by(
    key: impl KeyExtractor,
    quota: Quota,
    headers: HeaderStyle,
) -> Result<RateLimitLayer, RuleError> {
    RateLimitLayer::new(MemoryStore::new(), [Rule::new("rule-0", quota).by(key)])?.headers(headers)
}

/// The same by the address of the client.
///
/// # Errors
///
/// As [`layer_by`].
pub fn layer_by_address(quota: Quota, headers: HeaderStyle) -> Result<RateLimitLayer, RuleError> {
    layer_by(client_ip(), quota, headers)
}

/// A request from an address.
#[must_use]
pub fn request_from<R: Default>() -> Request<R> {
    let mut request = Request::new(R::default());
    let peer = PeerAddr(([192, 0, 2, 7], 40_000).into());
    request.extensions_mut().insert(peer);
    request
}

/// A request with an [`API_KEY`].
#[must_use]
pub fn request<R: Default>() -> Request<R> {
    let mut request = Request::new(R::default());
    let name = HeaderValue::from_static("customer-000000000000007");
    request.headers_mut().insert(API_KEY, name);
    request
}

/// A unary call of gRPC with an [`API_KEY`].
#[must_use]
pub fn grpc_call<R: Default>() -> Request<R> {
    let mut call = request();
    *call.method_mut() = Method::POST;
    *call.uri_mut() = Uri::from_static("/weather.v1.Weather/Current");
    let grpc = HeaderValue::from_static("application/grpc");
    call.headers_mut().insert(CONTENT_TYPE, grpc);
    call
}

/// Sends a request through a service that answers without waiting.
///
/// # Panics
///
/// If it does wait.
#[inline]
pub fn send<S: Service<Request<R>>, R>(
    service: &mut S,
    request: Request<R>,
) -> Result<S::Response, S::Error> {
    let mut context = Context::from_waker(Waker::noop());
    let future = pin!(service.call(request));
    match future.poll(&mut context) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the service waits"),
    }
}
