//! Policies that depend on the request.

use std::{convert::Infallible, time::Duration};

use http::{Method, Request, Response};
use tollgate::{Admission, RateLimitLayer, decision::Source};
use tollgate_redis::{Keys, RedisStore};
use tollgate_rules::{Bindings, Format, RuleDocument};
use tollgate_test_servers::redis_server::RedisServer;
use tower::{Layer, ServiceExt, service_fn};

const LIMITS: &str = r#"
version = 1
[[rules]]
name = "work"
limit = "fixed_window 1000/d"
by = "header:x-api-key"
consistency = { leased = "20%" }
exact_when = { methods = ["POST"] }
on_store_error = "deny"
"#;

/// Who decided a request of this method.
async fn source(layer: &RateLimitLayer, method: Method) -> Source {
    let service = layer.layer(service_fn(|request: Request<String>| async move {
        let admission = request.extensions().get::<Admission>();
        let admission = admission.expect("the decision is attached");
        let source = admission.decision().verdicts()[0].source();
        let mut response = Response::new(String::new());
        response.extensions_mut().insert(source);
        Ok::<_, Infallible>(response)
    }));
    let request = Request::builder()
        .method(method)
        .uri("/")
        .header("x-api-key", "acme")
        .body(String::new());
    let Ok(response) = service.oneshot(request.expect("a request")).await;
    assert!(response.status().is_success(), "{response:?}");
    *response.extensions().get().expect("it was decided")
}

#[tokio::test]
async fn writes_are_deducted_from_the_shared_pool_and_reads_from_leases() {
    let server = RedisServer::start(&[]).await;
    let store = RedisStore::builder(server.url(), "shop", Keys::plain())
        .deadline(Duration::from_secs(20))
        .connect()
        .expect("an address");
    store.connected().await;
    let document = RuleDocument::parse(LIMITS, Format::Toml, &Bindings::new());
    let rules = document.expect("valid").rules();
    let layer = RateLimitLayer::new(store, rules).expect("valid rules");
    let layer = layer.attach_decision();
    let mut reads = 0;
    while source(&layer, Method::GET).await != Source::Lease {
        reads += 1;
        assert!(reads < 200, "no read was decided by a lease");
    }
    for _ in 0..5 {
        assert_eq!(source(&layer, Method::POST).await, Source::Store);
    }
    assert_eq!(source(&layer, Method::GET).await, Source::Lease);
}
