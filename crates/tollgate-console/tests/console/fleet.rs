//! Several processes on one Redis, and samples without a browser.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, BodyDataStream},
};
use http::Request;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tokio_stream::StreamExt;
use tollgate::{MemoryStore, RateLimitLayer};
use tollgate_console::{Access, Console};
use tollgate_redis::{Keys, RedisStore, Secret};
use tollgate_rules::{Author, Bindings, Format, LiveRules, RuleText, redis::RedisRules};
use tollgate_test_servers::redis_server::{PATIENCE, RedisServer};
use tower::util::ServiceExt;

use crate::{
    by_hand::{act, json_of, sent, state},
    service::{App, LIMITS},
};

/// What a tab hears.
struct Tab(BodyDataStream);

impl Tab {
    async fn open(router: &Router) -> Self {
        let request = Request::get("/events")
            .body(Body::empty())
            .expect("a request");
        let response = router.clone().oneshot(request).await.expect("an answer");
        let mut tab = Self(response.into_body().into_data_stream());
        assert!(tab.next().await.starts_with("retry: "));
        tab
    }

    async fn next(&mut self) -> String {
        let next = timeout(PATIENCE, self.0.next())
            .await
            .expect("within the time");
        let bytes = next.expect("it goes on").expect("bytes");
        String::from_utf8(bytes.to_vec()).expect("text")
    }

    async fn sample(&mut self) -> Value {
        let text = self.next().await;
        let data = text.strip_prefix("data: ").expect("an event");
        serde_json::from_str(data).expect("JSON")
    }
}

async fn until(mut holds: impl FnMut() -> bool) {
    let polled = async {
        while !holds() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, polled).await.expect("within the time");
}

#[tokio::test]
async fn one_sample_a_second_is_made_for_all_tabs_and_none_without_one() {
    let (app, rendered) = (App::new(LIMITS), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&rendered);
    let console = app.console(Access::by_application()).metrics(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        "tollgate_check_duration_seconds_bucket{le=\"0.001\"} 5\ntollgate_check_duration_seconds_bucket{le=\"+Inf\"} 5\n".to_owned()
    });
    let router = console.router();
    state(&router).await;
    assert_eq!(rendered.load(Ordering::Relaxed), 0);
    let (mut tab, mut slow) = (Tab::open(&router).await, Tab::open(&router).await);
    let samples = [tab.sample().await, tab.sample().await, tab.sample().await];
    // Once for both, and not each second.
    assert!((1..=2).contains(&rendered.load(Ordering::Relaxed)));
    // A slow tab gets the latest sample, and keeps no other tab waiting.
    assert!(slow.sample().await["at"].as_u64() >= samples[2]["at"].as_u64());
    assert_eq!(samples[2]["meters"]["redis"], Value::Null);
    let mut last = tab;
    for _ in 3..20 {
        last.sample().await;
    }
    // It ends now and then, so that a service that shuts down need not wait for it.
    assert!(last.0.next().await.is_none());
}

#[tokio::test]
async fn a_switch_on_the_page_of_one_process_is_in_force_in_all_and_an_outage_is_said_first() {
    let server = RedisServer::start(&[]).await;
    let secret = || Secret::from_bytes([7; 32]).expect("32 bytes");
    let redis = RedisRules::new(server.url(), "shop", &secret()).expect("an address");
    let bindings = || Bindings::new().secret(&secret());
    let text = RuleText::new(LIMITS, Format::Toml);
    redis
        .push(text, &bindings(), &Author::new("the file"))
        .await
        .expect("valid");
    let rules = LiveRules::follow(redis.source(), bindings())
        .await
        .expect("valid");
    let store = RedisStore::builder(server.url(), "shop", Keys::hashed(secret()))
        .connect()
        .expect("an address");
    store.connected().await;
    let limits = rules.layer(store.clone()).expect("valid");
    let other = LiveRules::follow(redis.source(), bindings())
        .await
        .expect("valid");
    let others = other.layer(MemoryStore::new()).expect("valid");
    let limit = |layer: &RateLimitLayer| layer.limiter().rules().rules()[0].quota().limit();
    let console = Console::new(Access::by_application())
        .layer("api", &limits)
        .rules(&rules)
        .fleet(&redis, bindings())
        .store(&store);
    let router: Router = console.router();

    let switch = json!({ "action": "switch", "rule": "*", "limit": "50%", "because": "slow database", "who": "alice" });
    assert_eq!(
        json_of(sent(&router, act(&switch)).await).await["scope"],
        "fleet"
    );
    until(|| limit(&others) == 15 && limit(&limits) == 15).await;
    let entry = state(&router).await["entries"][0].clone();
    assert_eq!(
        (&entry["origin"], &entry["by"], &entry["because"]),
        (
            &json!("all processes"),
            &json!("alice"),
            &json!("slow database")
        )
    );
    let end = json!({ "action": "end", "id": entry["id"], "is_local": false, "because": "over", "who": "alice" });
    assert_eq!(sent(&router, act(&end)).await.status(), 200);
    until(|| limit(&others) == 30 && limit(&limits) == 30).await;
    let audit = redis.audit(9).await.expect("Redis is there");
    assert_eq!(audit[0].author.to_string(), "alice, because: over");

    drop(server);
    let mut tab = Tab::open(&router).await;
    let says = |sample: Value| sample["problems"][0]["text"].to_string();
    while !says(tab.sample().await).contains("Redis does not decide") {}
    let action = sent(&router, act(&switch)).await;
    assert_eq!(action.status(), 422);
}
