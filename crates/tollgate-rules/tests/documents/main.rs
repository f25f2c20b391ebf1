//! Documents: what they mean, in all three syntaxes, what is wrong with them, and who follows them.

mod audit;
mod bounds;
mod client_ip;
mod edge;
mod entries;
mod envoy_import;
mod explanation;
mod guide;
mod keys_and_conditions;
#[cfg(feature = "redis")]
mod lists;
mod live_rules;
mod load;
mod model;
mod round_trip;
mod schema;
mod sources;
mod wrong_documents;

use std::{
    convert::Infallible,
    fmt::Display,
    net::IpAddr,
    time::{Duration, Instant},
};

use http::{Method, Request, Response};
use tollgate::{
    Key, MINUTE, MemoryStore, Quota, RateLimitLayer, RequestRule,
    clock::{Clock, ManualClock},
    key::{PeerAddr, computed},
};
use tollgate_rules::{Bindings, DocumentError, Format, RuleDocument};
use tower::{Layer, ServiceExt, service_fn};

/// Noon of some day.
pub(crate) const START: u64 = 1_767_268_800_000_000;
pub(crate) const DAY: u64 = 86_400_000_000;

#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) tenant: &'static str,
    pub(crate) plan: Option<&'static str>,
}

pub(crate) fn bindings() -> Bindings {
    let by_tenant = computed(|head| Some(Key::of(head.extensions.get::<Caller>()?.tenant)));
    let raw = computed(|head| Some(Key::of(head.uri.path())));
    Bindings::new()
        .key_with_text("tenant", by_tenant, |text| {
            (text != "nobody").then(|| Key::of(text))
        })
        .key("raw", raw)
        .cost("words", |head| {
            head.uri.query().map_or(1, |query| query.len() as u64)
        })
        .plan("plan", |head| {
            head.extensions
                .get::<Caller>()
                .and_then(|caller| caller.plan)
        })
        .quota("token", |head| {
            let text = head.headers.get("x-limit")?.to_str().ok()?;
            match text.parse() {
                Ok(units) => Some(Quota::gcra(units, MINUTE)),
                Err(_) => text.parse().ok(),
            }
        })
        .condition("beta", |head| head.headers.contains_key("x-beta"))
}

pub(crate) fn toml(text: &str) -> Result<RuleDocument, DocumentError> {
    RuleDocument::parse(text, Format::Toml, &bindings())
}

pub(crate) fn request(method: Method, uri: &str) -> Request<String> {
    let peer: IpAddr = [192, 0, 2, 1].into();
    let mut request = Request::new(String::new());
    *request.method_mut() = method;
    *request.uri_mut() = uri.parse().expect("a URI");
    request
        .extensions_mut()
        .insert(PeerAddr((peer, 40_000).into()));
    request
}

pub(crate) fn get(uri: &str) -> Request<String> {
    request(Method::GET, uri)
}

pub(crate) fn client(uri: &str, name: &str) -> Request<String> {
    let mut request = get(uri);
    let value = http::HeaderValue::from_str(name).expect("a value");
    request.headers_mut().insert("x-api-key", value);
    request
}

/// How many of ten requests pass. Time stands still.
pub(crate) async fn passing(rules: Vec<RequestRule>, request: impl Fn() -> Request<String>) -> u32 {
    let clock = ManualClock::new(START);
    let store = MemoryStore::builder().clock(Clock::from(clock)).build();
    let layer = RateLimitLayer::new(store, rules).expect("valid rules");
    passing_through(&layer, request).await
}

pub(crate) async fn passing_through(
    layer: &RateLimitLayer,
    request: impl Fn() -> Request<String>,
) -> u32 {
    let service = layer.layer(service_fn(|_: Request<String>| async {
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    let mut passed = 0;
    for _ in 0..10 {
        let Ok(response) = service.clone().oneshot(request()).await;
        passed += u32::from(response.status().is_success());
    }
    passed
}

pub(crate) fn one(by: &str, more: &str) -> String {
    format!(
        "version = 1\n[[rules]]\nname = \"rule\"\nlimit = \"fixed_window 2/min\"\nby = {by}\n{more}\n"
    )
}

/// An error or a status says this.
#[track_caller]
pub(crate) fn says(what: impl Display, words: &str) {
    let said = what.to_string();
    assert!(said.contains(words), "{said}");
}

/// Waits until it holds, with a deadline.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    #[expect(clippy::disallowed_methods, reason = "a deadline of a test")]
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
