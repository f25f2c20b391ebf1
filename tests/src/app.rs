//! Routers in this process, with a layer around them whose time stands still.

use std::time::Duration;

use axum::{Router, body::Body};
use http::{Request, Response, request};
use tollgate::{
    MINUTE, MemoryStore, Quota, RateLimitLayer, RequestRule, Rule, Store,
    clock::ManualClock,
    key::{PeerAddr, constant},
};
use tollgate_conformance::SwitchedStore;
use tower::ServiceExt;

/// Noon of some day, in microseconds since the epoch: windows begin where the tests do.
pub const NOON: u64 = 1_767_268_800_000_000;

/// A store, and the clock that it follows. It stands at [`NOON`].
#[must_use]
pub fn still() -> (MemoryStore, ManualClock) {
    let clock = ManualClock::new(NOON);
    (MemoryStore::builder().clock(&clock).build(), clock)
}

/// A store that decides at once, and one that has to be waited for.
#[must_use]
pub fn stores() -> [SwitchedStore; 2] {
    [
        SwitchedStore::at_once(still().0),
        SwitchedStore::after(Duration::ZERO, still().0),
    ]
}

/// A rule of `limit` units a minute.
pub fn per_minute(name: &'static str, limit: u64) -> Rule {
    Rule::new(name, Quota::fixed_window(limit, MINUTE))
}

/// The rule for all clients together.
pub fn all(rule: Rule) -> RequestRule {
    rule.by(constant("all"))
}

/// A layer on a store whose time stands still.
///
/// # Panics
///
/// If the rules are invalid.
pub fn layer(rules: impl IntoIterator<Item = RequestRule>) -> RateLimitLayer {
    RateLimitLayer::new(still().0, rules).expect("valid rules")
}

/// A router that answers every request with an empty 200, inside of the layer.
pub fn behind(layer: RateLimitLayer) -> Router {
    Router::new().fallback(|| async {}).layer(layer)
}

/// The same inside of a layer on this store.
///
/// # Panics
///
/// If the rules are invalid.
pub fn app_on(store: impl Store, rules: impl IntoIterator<Item = RequestRule>) -> Router {
    behind(RateLimitLayer::new(store, rules).expect("valid rules"))
}

/// The same on a store whose time stands still.
pub fn app(rules: impl IntoIterator<Item = RequestRule>) -> Router {
    app_on(still().0, rules)
}

/// A request from an address.
#[must_use]
pub fn get(path: &str) -> request::Builder {
    let peer = PeerAddr(([192, 0, 2, 1], 40_000).into());
    Request::get(path).extension(peer)
}

/// A [`get`] of `/` by this client, in `x-client`.
///
/// # Panics
///
/// If the name is no value of a header.
#[must_use]
pub fn from(client: &str) -> Request<Body> {
    let request = get("/").header("x-client", client);
    request.body(Body::empty()).expect("a request")
}

/// What can be sent: the path of a [`get`], or a request.
pub trait Sent {
    /// The request.
    fn request(self) -> Request<Body>;
}

impl Sent for &str {
    fn request(self) -> Request<Body> {
        get(self).request()
    }
}

impl Sent for request::Builder {
    fn request(self) -> Request<Body> {
        self.body(Body::empty()).expect("a request")
    }
}

impl Sent for Request<Body> {
    fn request(self) -> Request<Body> {
        self
    }
}

/// The response of the router.
pub async fn send(app: &Router, request: impl Sent) -> Response<Body> {
    let Ok(response) = app.clone().oneshot(request.request()).await;
    response
}

/// The status of the response.
pub async fn status(app: &Router, request: impl Sent) -> u16 {
    send(app, request).await.status().as_u16()
}

/// What `rule` has left of the client of a request, which costs nothing to ask.
///
/// # Panics
///
/// If the rule is not there, the request has no key, or the store does not answer at once.
pub fn left(limits: &RateLimitLayer, rule: &str, request: impl Sent) -> u64 {
    let (head, _) = request.request().into_parts();
    let key = limits.key_of(rule, &head).expect("it has a key");
    let check = limits.limiter().check(rule, &key).expect("it is there");
    let looked = limits.limiter().peek(&[check.with_cost(0)]).ready();
    looked.expect("memory answers at once").verdicts()[0].remaining()
}

/// A header field of a response; empty if it is missing.
///
/// # Panics
///
/// If it is no text.
#[must_use]
pub fn field<'a>(response: &'a Response<Body>, name: &str) -> &'a str {
    let value = response.headers().get(name);
    value.map_or("", |value| value.to_str().expect("text"))
}

/// The body of a response.
///
/// # Panics
///
/// If it is longer than 4 KiB, or no text.
pub async fn text(response: Response<Body>) -> String {
    let bytes = axum::body::to_bytes(response.into_body(), 1 << 12).await;
    String::from_utf8(bytes.expect("a short body").to_vec()).expect("text")
}
