//! The routes of the shop, each at the time that the test says.

use std::time::Duration;

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::ConnectInfo,
    http::{HeaderMap, Request},
};
use tollgate::clock::ManualClock;
use tower::ServiceExt;

use super::*;

struct Shop {
    app: Router,
    clock: ManualClock,
}

struct Answer {
    status: u16,
    headers: HeaderMap,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Whether the client learns what it has left.
    fn tells_budget(&self) -> bool {
        let mut names = self.headers.keys();
        names.any(|name| name.as_str().contains("ratelimit"))
    }
}

impl Shop {
    fn open() -> Self {
        // Noon: windows begin where the tests do.
        let clock = ManualClock::new(1_767_268_800_000_000);
        let store = MemoryStore::builder().clock(&clock).build();
        let app = app(store).expect("valid rules");
        Self { app, clock }
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        // What the server knows of the connection.
        let client = ConnectInfo(SocketAddr::from(([203, 0, 113, 7], 50_000)));
        let request = request.extension(client).body(Body::empty());
        let response = self.app.clone().oneshot(request.expect("a request")).await;
        let response = response.expect("a router answers");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        // A response has ended when its body has.
        let body = to_bytes(response.into_body(), usize::MAX).await;
        body.expect("a whole body");
        Answer { status, headers }
    }

    async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[]).await
    }

    /// GET /items with a key.
    async fn items(&self, key: &str) -> Answer {
        self.send("GET", "/items", &[("x-api-key", key)]).await
    }

    async fn log_in(&self) -> Answer {
        self.send("POST", "/login", &[]).await
    }
}

#[tokio::test]
async fn home_allows_forty_at_once_and_twenty_a_second() {
    let shop = Shop::open();
    for _ in 0..40 {
        let answer = shop.get("/").await;
        let policy = answer.header("ratelimit-policy");
        assert_eq!(
            (answer.status, policy),
            (200, Some(r#""home-per-ip";q=40;w=2"#))
        );
    }
    assert_eq!(shop.get("/").await.header("retry-after"), Some("1"));
    shop.clock.advance(SECOND);
    for _ in 0..20 {
        assert_eq!(shop.get("/").await.status, 200);
    }
    assert_eq!(shop.get("/").await.status, 429);
}

#[tokio::test]
async fn items_want_a_key() {
    let shop = Shop::open();
    let answer = shop.get("/items").await;
    assert_eq!(answer.status, 401);
    assert_eq!(answer.header("retry-after"), None);
    assert_eq!(shop.items("").await.status, 401);
}

#[tokio::test]
async fn items_of_a_key_are_ten_at_once_and_five_a_second() {
    let shop = Shop::open();
    for _ in 0..10 {
        assert_eq!(shop.items("acme.k1").await.status, 200);
    }
    let denied = shop.items("acme.k1").await;
    assert_eq!(
        denied.header("ratelimit-policy"),
        Some(r#""items-per-key";q=10;w=2, "items-per-tenant";q=100;w=60"#)
    );
    // The key was denied, so the tenant was not debited.
    let reported = denied.header("ratelimit").unwrap();
    assert!(
        reported.contains(r#""items-per-tenant";r=90;"#),
        "{reported}"
    );
    assert_eq!(shop.items("acme.k2").await.status, 200);
    shop.clock.advance(SECOND);
    for status in [200, 200, 200, 200, 200, 429] {
        assert_eq!(shop.items("acme.k1").await.status, status);
    }
}

#[tokio::test]
async fn items_of_a_tenant_are_a_hundred_a_minute_whatever_the_keys() {
    let shop = Shop::open();
    for request in 0..100 {
        let key = format!("acme.k{}", request % 10);
        assert_eq!(shop.items(&key).await.status, 200, "{request}");
    }
    let denied = shop.items("acme.fresh").await;
    assert_eq!(denied.status, 429);
    assert_eq!(shop.items("globex.k1").await.status, 200);
    // Waiting for `Retry-After` is enough.
    let wait: u64 = denied.header("retry-after").unwrap().parse().unwrap();
    shop.clock.advance(Duration::from_secs(wait));
    assert_eq!(shop.items("acme.fresh").await.status, 200);
}

#[tokio::test]
async fn a_search_costs_a_unit_for_each_word() {
    let shop = Shop::open();
    let words = |count| format!("/search?q={}", vec!["w"; count].join("+"));
    // More words than there ever are units have no time to come back. Without a word a search costs one.
    for (path, status, left, wait) in [
        (&*words(51), 429, 50, None),
        (&words(3), 200, 47, None),
        ("/search", 200, 46, None),
        // 60 s / 50 for a word.
        (&words(47), 429, 46, Some("2")),
        (&words(46), 200, 0, None),
    ] {
        let answer = shop.get(path).await;
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(answer.header("retry-after"), wait, "{path}");
        let reported = answer.header("ratelimit").unwrap();
        assert!(
            reported.starts_with(&format!(r#""words-per-ip";r={left};"#)),
            "{reported}"
        );
    }
}

#[tokio::test]
async fn the_sixth_log_in_of_a_minute_waits_and_learns_nothing_else() {
    let shop = Shop::open();
    for _ in 0..5 {
        let answer = shop.log_in().await;
        assert_eq!((answer.status, answer.tells_budget()), (200, false));
    }
    let denied = shop.log_in().await;
    assert_eq!((denied.status, denied.tells_budget()), (429, false));
    assert_eq!(denied.header("retry-after"), Some("60"));
    shop.clock.advance(60 * SECOND);
    let answer = shop.log_in().await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn the_health_check_is_not_limited() {
    let shop = Shop::open();
    for _ in 0..60 {
        let answer = shop.get("/healthz").await;
        assert_eq!((answer.status, answer.tells_budget()), (200, false));
        assert_eq!(answer.header("retry-after"), None);
    }
}

#[tokio::test]
async fn a_request_by_another_method_takes_no_log_in() {
    let shop = Shop::open();
    // Five images on any page would otherwise lock its visitor out.
    for _ in 0..5 {
        assert_eq!(shop.get("/login").await.status, 405);
    }
    for _ in 0..5 {
        assert_eq!(shop.log_in().await.status, 200);
    }
    assert_eq!(shop.log_in().await.status, 429);
}

#[tokio::test]
async fn a_grpc_content_type_does_not_change_the_denial() {
    let shop = Shop::open();
    let fields = [("content-type", "application/grpc")];
    for status in [200, 200, 200, 200, 200, 429] {
        let answer = shop.send("POST", "/login", &fields).await;
        assert_eq!(answer.status, status);
        assert_eq!(answer.header("grpc-status"), None);
    }
}
