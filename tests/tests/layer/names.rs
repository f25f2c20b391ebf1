//! One name is one budget: who holds a name, who does not, and how another quota takes its place.

use std::{
    convert::Infallible,
    future::{Future, pending, ready},
    pin::Pin,
    sync::{Arc, Mutex},
};

use http::{Request, Response};
use tollgate::{
    Admission, HOUR, Key, Limiter, MINUTE, MemoryStore, MessageLimitLayer, Quota, RateLimitLayer,
    RequestRule, Rule, RuleError, RuleErrorKind,
};
use tollgate_client::ClientRateLimitLayer;
use tower::{Layer, Service, ServiceExt, service_fn};

use tollgate_tests::app::{all, get, still};

type Body = http_body_util::Empty<bytes::Bytes>;

fn strict() -> RequestRule {
    all(Rule::new("per-ip", Quota::fixed_window(5, HOUR)))
}

fn loose_rule() -> Rule {
    Rule::new("per-ip", Quota::fixed_window(6_000, MINUTE))
}

fn loose() -> RequestRule {
    all(loose_rule())
}

fn in_use<T>(made: Result<T, RuleError>) -> bool {
    match made {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.kind(), RuleErrorKind::Conflict, "{error}");
            true
        }
    }
}

fn request() -> Request<Body> {
    get("/").body(Body::new()).expect("a request")
}

#[test]
fn a_second_quota_of_a_name_is_rejected_by_layers_and_limiters() {
    let (store, _) = still();
    let log_in = RateLimitLayer::new(store.clone(), [strict()]).expect("the first");
    let error = RateLimitLayer::new(store.clone(), [loose()]).expect_err("the second");
    for words in [
        "\"per-ip\"",
        "fixed_window(5 per 3600s)",
        "fixed_window(6000 per 60s)",
        "another name",
        "the same quota",
    ] {
        assert!(error.to_string().contains(words), "{error}");
    }
    assert!(in_use(MessageLimitLayer::new(store.clone(), [loose()])));
    assert!(in_use(Limiter::new(store.clone(), [loose_rule()])));
    // The same quota shares the budget.
    for made in [
        RateLimitLayer::new(store.clone(), [strict()]).is_ok(),
        MessageLimitLayer::new(store.clone(), [strict()]).is_ok(),
    ] {
        assert!(made);
    }
    // Another store is another budget.
    assert!(RateLimitLayer::new(MemoryStore::new(), [loose()]).is_ok());
    drop(log_in);
    assert!(RateLimitLayer::new(store, [loose()]).is_ok());
}

#[test]
fn message_and_client_layers_hold_names_too() {
    let (store, _) = still();
    let messages = MessageLimitLayer::new(store.clone(), [strict()]).expect("valid");
    assert!(in_use(RateLimitLayer::new(store.clone(), [loose()])));
    let service = messages.layer(());
    drop(messages);
    assert!(in_use(RateLimitLayer::new(store.clone(), [loose()])));
    drop(service);
    let limiter = Limiter::new(store.clone(), [loose_rule()]).expect("valid");
    let client = ClientRateLimitLayer::new().limit(limiter, |limiter, _| {
        limiter.check("per-ip", &Key::shared()).map(|check| [check])
    });
    let client = client.expect("it has no slots");
    assert!(in_use(RateLimitLayer::new(store.clone(), [strict()])));
    let service = client.layer(());
    drop(client);
    assert!(in_use(RateLimitLayer::new(store.clone(), [strict()])));
    drop(service);
    assert!(RateLimitLayer::new(store, [strict()]).is_ok());
}

#[tokio::test]
async fn requests_in_flight_hold_no_name() {
    let (store, _) = still();
    let kept: Arc<Mutex<Option<Admission>>> = Arc::default();
    let keep = Arc::clone(&kept);
    let inner = service_fn(move |request: Request<Body>| {
        *keep.lock().expect("no panic") = request.extensions().get().cloned();
        pending::<Result<Response<Body>, Infallible>>()
    });
    let layer = RateLimitLayer::new(store.clone(), [strict()]).expect("valid");
    let layer = layer.attach_decision();
    let mut service = layer.layer(inner);
    let response = service.ready().await.expect("ready").call(request());
    let admission = kept.lock().expect("no panic").take().expect("attached");
    let ticket = admission.ticket();

    assert!(
        in_use(RateLimitLayer::new(store.clone(), [loose()])),
        "the layer"
    );
    drop(layer);
    assert!(
        in_use(RateLimitLayer::new(store.clone(), [loose()])),
        "the service"
    );
    drop(service);
    let other = RateLimitLayer::new(store, [loose()]).expect("the name is free");
    // The ticket still works.
    ticket.cancel();
    drop((admission, response, other));
}

#[tokio::test]
async fn a_replaced_layer_decides_by_its_own_rules_until_it_is_dropped() {
    let (store, _) = still();
    let ok = service_fn(|_: Request<Body>| ready(Ok::<_, Infallible>(Response::new(Body::new()))));
    let tight = all(Rule::new("api", Quota::fixed_window(2, HOUR)));
    let wide = all(Rule::new("api", Quota::fixed_window(4, HOUR)));
    let old = RateLimitLayer::new(store.clone(), [tight]).expect("valid");
    let before = old.layer(ok);
    let status = |service: &tollgate::service::RateLimit<_>| -> Pin<Box<dyn Future<Output = u16>>> {
        let answer = tower::ServiceExt::oneshot(Clone::clone(service), request());
        Box::pin(async move { answer.await.map_or(0, |answer| answer.status().as_u16()) })
    };
    assert_eq!(status(&before).await, 200);
    assert_eq!(status(&before).await, 200);
    let new = RateLimitLayer::replacing(&[&old.limiter()], store, [wide]).expect("it replaces it");
    let after = new.layer(ok);
    assert_eq!(status(&before).await, 429);
    assert_eq!(status(&after).await, 200);
    assert_eq!(status(&after).await, 200);
    assert_eq!(status(&after).await, 429);
    assert_eq!(status(&before).await, 429);
}
