//! Complete files for what services ask for most, as they are in `tests/files`.

use std::{convert::Infallible, net::IpAddr, path::Path};

use http::{Method, Request, Response, StatusCode};
use tollgate::{
    Key, ManualClock, MemoryStore, RateLimitLayer, Store,
    key::{PeerAddr, computed},
};
use tollgate_conformance::SwitchedStore;
use tollgate_rules::{Bindings, LiveRules, RuleText};
use tower::{Layer, ServiceExt, service_fn};

/// Noon of some day.
const NOON: u64 = 1_767_268_800_000_000;
const SECOND: u64 = 1_000_000;

#[derive(Clone)]
struct Caller {
    name: &'static str,
    plan: Option<&'static str>,
}

fn bindings() -> Bindings {
    let by_name = || computed(|head| Some(Key::of(head.extensions.get::<Caller>()?.name)));
    Bindings::new()
        .key_with_text("tenant", by_name(), |text| Some(Key::of(text)))
        .key_with_text("user", by_name(), |text| Some(Key::of(text)))
        .plan("plan", |head| head.extensions.get::<Caller>()?.plan)
        .cost("weight", |head| if head.method.is_safe() { 1 } else { 10 })
}

struct Service {
    layer: RateLimitLayer,
    clock: ManualClock,
}

impl Service {
    fn of_file(name: &str) -> Self {
        Self::on(name, |memory| memory)
    }

    /// The same on a store that has its state in this memory.
    fn on<S: Store>(name: &str, store: impl FnOnce(MemoryStore) -> S) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/files")
            .join(name);
        let text = std::fs::read_to_string(&path).expect(name);
        let format = tollgate_rules::Format::of_path(&path).expect(name);
        let document = RuleText::named(name, &*text, format).parse(&bindings());
        let clock = ManualClock::new(NOON);
        let memory = MemoryStore::builder().clock(&clock).build();
        let rules = document.expect("the file is right").rules();
        Self {
            layer: RateLimitLayer::new(store(memory), rules).expect("valid rules"),
            clock,
        }
    }

    async fn status(&self, request: Request<String>) -> StatusCode {
        let service = self.layer.layer(service_fn(|_: Request<String>| async {
            Ok::<_, Infallible>(Response::new(String::new()))
        }));
        let Ok(response) = service.oneshot(request).await;
        response.status()
    }

    /// How many of these requests pass, one behind the other at one moment.
    async fn passing(&self, requests: u32, request: impl Fn() -> Request<String>) -> u32 {
        let mut passed = 0;
        for _ in 0..requests {
            passed += u32::from(self.status(request()).await == StatusCode::OK);
        }
        passed
    }
}

fn request(method: &str, path: &str) -> Request<String> {
    let made = Request::builder()
        .method(method)
        .uri(path)
        .body(String::new());
    let mut made = made.expect("a request");
    let peer: IpAddr = [192, 0, 2, 1].into();
    made.extensions_mut()
        .insert(PeerAddr((peer, 40_000).into()));
    made
}

fn with(header: &'static str, value: &'static str) -> Request<String> {
    let mut made = request("GET", "/");
    made.headers_mut()
        .insert(header, value.parse().expect("a value"));
    made
}

fn by(caller: &Caller, path: &str) -> Request<String> {
    let mut made = request("GET", path);
    made.extensions_mut().insert(caller.clone());
    made
}

#[tokio::test]
async fn clients_without_a_key_have_less() {
    let service = Service::of_file("anonymous.toml");
    assert_eq!(service.passing(40, || request("GET", "/")).await, 30);
    assert_eq!(
        service.passing(310, || with("x-api-key", "acme")).await,
        300
    );
    assert_eq!(service.passing(1, || with("x-api-key", "other")).await, 1);
}

#[tokio::test]
async fn each_key_has_its_own_limit() {
    let service = Service::of_file("per_key.toml");
    assert_eq!(service.passing(12, || with("x-api-key", "acme")).await, 10);
    assert_eq!(service.passing(12, || with("x-api-key", "other")).await, 10);
    let without = service.status(request("GET", "/")).await;
    assert_eq!(without, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_plan_has_two_limits() {
    for (plan, minute, hour) in [
        (None, 100, 1_000),
        (Some("pro"), 1_000, 50_000),
        (Some("enterprise"), 10_000, u32::MAX),
    ] {
        let service = Service::of_file("tenant_plans.toml");
        let caller = Caller { name: "acme", plan };
        let request = || by(&caller, "/");
        assert_eq!(
            service.passing(minute + 1, request).await,
            minute,
            "{plan:?}"
        );
        let mut passed = minute;
        // After two minutes a sliding window is empty.
        for _ in 0..11 {
            service.clock.advance(std::time::Duration::from_secs(120));
            passed += service.passing(minute, request).await;
        }
        assert_eq!(passed, hour.min(12 * minute), "{plan:?}");
    }
}

#[tokio::test]
async fn writes_take_more_of_one_budget() {
    let service = Service::of_file("expensive_writes.toml");
    let write = |path: &'static str| {
        move || {
            let mut made = with("x-api-key", "acme");
            *made.method_mut() = "POST".parse().expect("a method");
            *made.uri_mut() = path.parse().expect("a path");
            made
        }
    };
    assert_eq!(service.passing(5, write("/items")).await, 5);
    assert_eq!(service.passing(60, || with("x-api-key", "acme")).await, 50);
    service.clock.advance(std::time::Duration::from_secs(10));
    assert_eq!(service.passing(5, write("/export")).await, 3);
    assert_eq!(service.passing(1, write("/items")).await, 1);
}

#[tokio::test]
async fn workers_keep_to_what_a_provider_allows() {
    let text = include_str!("files/provider.toml");
    let rules = LiveRules::from_text(text, tollgate_rules::Format::Toml, bindings());
    let clock = ManualClock::new(NOON);
    let store = MemoryStore::builder().clock(&clock).build();
    let limiter = rules.expect("valid").limiter(store).expect("valid rules");
    let allowed = |calls: u32| {
        let allowed = (0..calls).filter(|_| {
            let decision = limiter.try_acquire("provider", &Key::shared());
            decision.expect("the rule is there").is_allowed()
        });
        allowed.count()
    };
    assert_eq!(allowed(60), 50);
    clock.set(NOON + 2 * SECOND);
    assert_eq!(allowed(30), 20);
}

#[tokio::test]
async fn each_kind_of_route_has_its_limit() {
    let service = Service::of_file("endpoints.toml");
    assert_eq!(service.passing(7, || request("POST", "/login")).await, 5);
    assert_eq!(service.passing(7, || request("GET", "/login")).await, 7);
    let user = |name| Caller { name, plan: None };
    assert_eq!(
        service
            .passing(130, || by(&user("alice"), "/api/items"))
            .await,
        120
    );
    assert_eq!(
        service
            .passing(1, || by(&user("bob"), "/api/items/7"))
            .await,
        1
    );
    assert_eq!(
        service.passing(30, || request("GET", "/search?q=1")).await,
        20
    );
    service.clock.advance(std::time::Duration::from_secs(1));
    assert_eq!(service.passing(30, || request("GET", "/search")).await, 10);
}

#[tokio::test]
async fn all_levels_decide_together() {
    let service = Service::of_file("levels.yaml");
    let report = |tenant: &'static str, path: &'static str| {
        move || {
            let mut made = with("x-tenant", tenant);
            *made.uri_mut() = path.parse().expect("a path");
            made
        }
    };
    assert_eq!(service.passing(2, report("acme", "/reports/1")).await, 1);
    assert_eq!(service.passing(2, report("acme", "/reports/2")).await, 1);
    assert_eq!(service.passing(2, report("acme", "/reports/3")).await, 0);
    // What was denied took nothing from the tenant.
    assert_eq!(service.passing(20, || with("x-tenant", "acme")).await, 18);
    assert_eq!(service.passing(1, || with("x-tenant", "other")).await, 1);
}

#[tokio::test]
async fn reads_fail_open_and_writes_fail_closed_on_one_budget() {
    let mut switch = None;
    let service = Service::on("reads_and_writes.toml", |memory| {
        let store = SwitchedStore::at_once(memory);
        switch.insert(store).clone()
    });
    let switch = switch.expect("it was made");
    let read = || with("x-api-key", "acme");
    let write = || {
        let mut made = read();
        *made.method_mut() = Method::POST;
        made
    };
    assert_eq!(service.passing(5, write).await, 5);
    assert_eq!(service.passing(10, read).await, 10);
    switch.switch(false);
    assert_eq!(service.passing(200, read).await, 200);
    let denied = service.status(write()).await;
    assert_eq!(denied, StatusCode::SERVICE_UNAVAILABLE);
    // What passed meanwhile was not counted.
    switch.switch(true);
    assert_eq!(service.passing(2, write).await, 2);
    assert_eq!(service.passing(60, read).await, 20);
}

#[tokio::test]
async fn wrong_passwords_lock_an_address_out_and_right_ones_are_free() {
    let service = Service::of_file("log_in.toml");
    let log_in = |status: StatusCode| {
        let inner = service_fn(move |_: Request<String>| async move {
            let mut response = Response::new(String::new());
            *response.status_mut() = status;
            Ok::<_, Infallible>(response)
        });
        service
            .layer
            .layer(inner)
            .oneshot(request("POST", "/login"))
    };
    for (status, times) in [(200, 20), (401, 2), (200, 5), (403, 1)] {
        let status = StatusCode::from_u16(status).expect("a status");
        for _ in 0..times {
            let Ok(response) = log_in(status).await;
            assert_eq!(response.status(), status);
        }
    }
    let Ok(response) = log_in(StatusCode::OK).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    service.clock.advance(std::time::Duration::from_secs(600));
    let Ok(response) = log_in(StatusCode::OK).await;
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn two_exports_of_a_tenant_run_at_once() {
    let service = Service::of_file("exports.toml");
    let export = || {
        let caller = Caller {
            name: "acme",
            plan: None,
        };
        let mut made = by(&caller, "/export");
        *made.method_mut() = Method::POST;
        made
    };
    // Each runs until its request is let go.
    let running = service.layer.layer(service_fn(|_: Request<String>| async {
        std::future::pending::<Result<Response<String>, Infallible>>().await
    }));
    let mut first = Vec::new();
    for _ in 0..2 {
        let mut export = Box::pin(running.clone().oneshot(export()));
        let begun = std::future::poll_fn(|cx| std::task::Poll::Ready(export.as_mut().poll(cx)));
        assert!(begun.await.is_pending());
        first.push(export);
    }
    assert_eq!(service.passing(1, export).await, 0);
    first.pop();
    // One after the other.
    assert_eq!(service.passing(5, export).await, 5);
}
