//! Requests without a key, and keys that are looked up.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use axum::{Router, body::Body, routing};
use http::{Method, Request, Response, StatusCode, request};
use tollgate::{
    Decision, Head, MINUTE, Missing, OnStoreError, Quota, RateLimitLayer, RequestRule, Rule,
    condition::{client_in, method_in},
    decision::Reason,
    key::{Extracted, KeyBuf, KeyExtractor, NoKey, PeerAddr, client_ip, constant, header, look_up},
};
use tollgate_conformance::SwitchedStore;
use tollgate_tests::{
    app::{all, app, behind, field, get, layer, per_minute, send, status, still, text},
    events::Events,
    server::Server,
};
use tower::ServiceExt;
use tracing::Level;

const UNAUTHORIZED: Missing = Missing::Reject(StatusCode::UNAUTHORIZED);

fn one_each(key: impl KeyExtractor) -> RequestRule {
    per_minute("one-each", 1).by(key)
}

fn with_key(key: &str) -> request::Builder {
    get("/").header("x-api-key", key)
}

#[tokio::test]
async fn a_repeated_key_does_not_disable_a_rule() {
    let app = app([one_each(header("x-api-key")).when_missing(Missing::Skip)]);
    let twice = || with_key("a").header("x-api-key", "b");
    assert_eq!(status(&app, twice()).await, 200);
    assert_eq!(status(&app, twice()).await, 429);
}

#[tokio::test]
async fn requests_without_a_key_are_rejected_with_the_status_of_the_rule() {
    let store = SwitchedStore::at_once(still().0);
    let rules = [
        all(per_minute("nine", 9)),
        one_each(header("x-api-key")).when_missing(UNAUTHORIZED),
    ];
    let layer = RateLimitLayer::new(store.clone(), rules)
        .unwrap()
        .attach_decision();
    let app = behind(layer);
    for _ in 0..3 {
        let answer = send(&app, get("/")).await;
        assert_eq!(answer.status(), 401);
        assert_eq!(field(&answer, "ratelimit"), "");
        assert_eq!(field(&answer, "retry-after"), "");
        let decision = answer.extensions().get::<Decision>().unwrap();
        assert_eq!(decision.reason(), Some(Reason::NoKey));
    }
    // The store was not called, so the other rule has all its units.
    assert_eq!(store.calls(), 0);
    let answer = send(&app, with_key("k")).await;
    assert_eq!(
        field(&answer, "ratelimit"),
        r#""nine";r=8;t=60, "one-each";r=0;t=60"#
    );
}

#[tokio::test]
async fn without_addresses_the_policy_decides_and_one_event_names_the_call() {
    for (missing, expected) in [
        (Missing::Shared, [200, 429, 429]),
        // A service that is not set up must not switch the rule off.
        (Missing::Skip, [200, 429, 429]),
        (
            Missing::Reject(StatusCode::INTERNAL_SERVER_ERROR),
            [500, 500, 500],
        ),
    ] {
        let events = Events::listen();
        let rule = one_each(client_ip()).when_missing(missing);
        let layer = layer([rule]);
        let app = Router::new().route("/", routing::get(|| async {}).layer(layer));
        let server = Server::start_without_addresses(app).await;
        for status in expected {
            assert_eq!(server.get("/").await.status, status, "{missing:?}");
        }
        events.one(
            Level::ERROR,
            &[
                "one-each",
                "into_make_service_with_connect_info::<SocketAddr>()",
            ],
        );
    }
}

#[tokio::test]
async fn a_condition_on_unknown_addresses_is_reported_once() {
    let events = Events::listen();
    let everybody = client_in(["0.0.0.0/0", "::/0"]).expect("networks");
    let app = app([one_each(constant("all")).when(everybody)]);
    for _ in 0..3 {
        // The condition is false, so the rule limits no client.
        assert_eq!(status(&app, Request::get("/")).await, 200);
    }
    events.one(Level::ERROR, &["into_make_service_with_connect_info"]);
    assert_eq!(status(&app, get("/")).await, 200);
    assert_eq!(status(&app, get("/")).await, 429);
}

#[tokio::test]
async fn a_hundred_requests_without_a_key_are_reported_once() {
    for (missing, words) in [
        (Missing::Shared, "share one bucket"),
        (Missing::Skip, "none of them is limited"),
        (UNAUTHORIZED, "rejected"),
    ] {
        let events = Events::listen();
        let per_key = per_minute("per-key", 500);
        let app = app([per_key.by(header("x-api-kee")).when_missing(missing)]);
        for _ in 0..99 {
            status(&app, with_key("k")).await;
        }
        assert!(events.at(Level::WARN).is_empty());
        for _ in 0..150 {
            status(&app, with_key("k")).await;
        }
        events.one(
            Level::WARN,
            &["\"per-key\"", "first 100 requests", words, "misspelt"],
        );
    }
}

#[tokio::test]
async fn one_key_among_the_first_hundred_is_enough() {
    for looked_up in [false, true] {
        let events = Events::listen();
        let nine = per_minute("nine", 9);
        let app = app([if looked_up {
            nine.by(Directory::default().tenant())
        } else {
            nine.by(header("x-api-key"))
        }]);
        for _ in 0..99 {
            status(&app, get("/")).await;
        }
        status(&app, with_key("acme.1")).await;
        for _ in 0..200 {
            status(&app, get("/")).await;
        }
        assert!(events.at(Level::WARN).is_empty(), "{:?}", events.recorded());
    }
}

/// A directory that knows `acme.…`, and counts its look-ups.
#[derive(Clone, Default)]
struct Directory(Arc<AtomicU64>);

impl Directory {
    fn tenant(&self) -> impl KeyExtractor + use<> {
        let sent = Arc::clone(&self.0);
        look_up(move |head| {
            let key = head.headers.get("x-api-key").cloned();
            let sent = Arc::clone(&sent);
            async move {
                sent.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                let key = key?;
                let (tenant, _) = key.to_str().ok()?.split_once('.')?;
                (tenant == "acme").then(|| tenant.to_owned())
            }
        })
    }
}

#[tokio::test]
async fn a_key_that_is_looked_up_counts() {
    let directory = Directory::default();
    let app = app([one_each(directory.tenant()).when_missing(UNAUTHORIZED)]);
    assert_eq!(status(&app, with_key("acme.1")).await, 200);
    assert_eq!(status(&app, with_key("acme.2")).await, 429);
    assert_eq!(status(&app, with_key("nobody.1")).await, 401);
    assert_eq!(status(&app, get("/")).await, 401);
    assert_eq!(directory.0.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn a_skipped_look_up_leaves_the_other_rules_in_their_order() {
    let quota = |limit| Quota::fixed_window(limit, MINUTE);
    let skipped = |name, limit| {
        let rule = Rule::new(name, quota(limit)).by(Directory::default().tenant());
        rule.when_missing(Missing::Skip)
    };
    let app = app([
        skipped("a", 9),
        Rule::new("b", quota(8)).by(constant("all")),
        skipped("c", 7),
        Rule::new("d", quota(6)).by(Directory::default().tenant()),
    ]);
    let answer = send(&app, with_key("nobody.1")).await;
    assert_eq!(field(&answer, "ratelimit"), r#""b";r=7;t=60, "d";r=5;t=60"#);
    let answer = send(&app, with_key("acme.1")).await;
    assert_eq!(
        field(&answer, "ratelimit"),
        r#""a";r=8;t=60, "b";r=6;t=60, "c";r=6;t=60, "d";r=5;t=60"#
    );
}

#[tokio::test]
async fn a_look_up_keeps_the_cost_and_the_plan_of_its_rule() {
    let rule = per_minute("units", 3)
        .plan("gold", Quota::fixed_window(10, MINUTE))
        .by(Directory::default().tenant())
        .cost_by(|_| 4)
        .plan_by(|_| Some("gold"));
    let answer = send(&app([rule]), with_key("acme.1")).await;
    assert_eq!(field(&answer, "ratelimit"), r#""units";r=6;t=60"#);
}

#[tokio::test]
async fn a_rejected_request_is_not_looked_up() {
    let directory = Directory::default();
    let app = app([
        per_minute("tenant", 9).by(directory.tenant()),
        one_each(header("x-device")).when_missing(UNAUTHORIZED),
    ]);
    assert_eq!(status(&app, with_key("acme.1")).await, 401);
    assert_eq!(directory.0.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_shadow_rejects_no_request_without_a_key() {
    let rules = [
        all(per_minute("nine", 9)),
        per_minute("shadow", 1)
            .shadow()
            .by(header("x-api-key"))
            .when_missing(UNAUTHORIZED),
        per_minute("looked-up", 1)
            .shadow()
            .by(Directory::default().tenant())
            .when_missing(UNAUTHORIZED),
    ];
    let app = app(rules);
    for left in [8, 7] {
        let answer = send(&app, get("/")).await;
        assert_eq!(answer.status(), 200);
        let reported = format!(r#""nine";r={left};t=60"#);
        assert_eq!(field(&answer, "ratelimit"), reported);
    }
}

/// Finds the key once as many look-ups wait for each other as the barrier says.
fn together(barrier: &Arc<tokio::sync::Barrier>) -> impl KeyExtractor + use<> {
    let barrier = Arc::clone(barrier);
    look_up(move |_| {
        let barrier = Arc::clone(&barrier);
        async move {
            barrier.wait().await;
            Some("found")
        }
    })
}

#[tokio::test(start_paused = true)]
async fn look_ups_of_a_request_run_at_the_same_time() {
    let barrier = Arc::new(tokio::sync::Barrier::new(4));
    let nine = |name| per_minute(name, 9);
    let one = || together(&barrier);
    let app = app([
        nine("a").by(one()).when_missing(UNAUTHORIZED),
        nine("b")
            .by((constant("b"), one(), header("x-api-key"), one()))
            .when_missing(UNAUTHORIZED),
        nine("c").by(one()).when_missing(UNAUTHORIZED),
    ]);
    let answer = send(&app, with_key("k")).await;
    assert_eq!(
        field(&answer, "ratelimit"),
        r#""a";r=8;t=60, "b";r=8;t=60, "c";r=8;t=60"#
    );
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_first_look_up_finds_nothing_waits_for_no_other() {
    let none = || look_up(|_| async { None::<String> });
    for (by, status, millis) in [
        (Arc::new((none(), lost())) as Arc<dyn KeyExtractor>, 401, 0),
        (Arc::new((lost(), none())), 503, 200),
    ] {
        let app = app([per_minute("two", 9).by(by).when_missing(UNAUTHORIZED)]);
        let before = tokio::time::Instant::now();
        assert_eq!(send(&app, get("/")).await.status(), status);
        assert_eq!(before.elapsed().as_millis(), millis);
    }
}

/// A key whose look-up never ends.
fn lost() -> impl KeyExtractor {
    look_up(|_| std::future::pending::<Option<String>>())
}

#[tokio::test(start_paused = true)]
async fn a_look_up_that_does_not_end_in_time_is_a_failure_that_lets_nothing_through_unseen() {
    use std::time::Duration;
    use tokio::time::Instant;
    use tollgate::OnStoreError::{Allow, Degraded, Deny, LocalShare};
    for (on_error, missing, expected) in [
        (LocalShare, Missing::Shared, [200, 429]),
        (LocalShare, Missing::Skip, [200, 429]),
        (LocalShare, UNAUTHORIZED, [503, 503]),
        (Deny, Missing::Shared, [503, 503]),
        (Deny, Missing::Skip, [503, 503]),
        (Allow, Missing::Shared, [200, 200]),
        (Degraded, UNAUTHORIZED, [200, 200]),
    ] {
        let events = Events::listen();
        let rule = per_minute("one-each", 1);
        let rule = rule.on_store_error(on_error).by(lost());
        let layer = layer([rule.when_missing(missing)]);
        let set = layer.clone().look_up_deadline(Duration::from_millis(30));
        for (layer, deadline) in [(layer, 200), (set, 30)] {
            let app = behind(layer.attach_decision());
            let before = Instant::now();
            let answer = send(&app, get("/")).await;
            assert_eq!(before.elapsed().as_millis(), deadline);
            // Both layers count on the same state.
            let nth = usize::from(deadline == 30);
            assert_eq!(answer.status(), expected[nth], "{on_error:?} {missing:?}");
            if answer.status() == 503 {
                let decision = answer.extensions().get::<Decision>().unwrap();
                assert_eq!(decision.reason(), Some(Reason::StoreFailed));
                assert_eq!(field(&answer, "retry-after"), "");
                let body = text(answer).await;
                assert!(body.contains("cannot tell who is asking"), "{body}");
            }
        }
        events.one(Level::WARN, &["one-each", "look_up_deadline"]);
    }
}

#[test]
fn without_a_timer_a_look_up_that_waits_fails_at_once_and_one_that_does_not_is_used() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let one = || per_minute("one-each", 1);
        let waits = app([one()
            .on_store_error(tollgate::OnStoreError::Deny)
            .by(lost())]);
        assert_eq!(status(&waits, get("/")).await, 503);
        let ready = app([one().by(Directory::default().tenant())]);
        assert_eq!(status(&ready, with_key("acme.1")).await, 200);
        assert_eq!(status(&ready, with_key("acme.2")).await, 429);
    });
}

#[tokio::test(start_paused = true)]
async fn a_look_up_in_time_counts_if_another_times_out() {
    let nine = |name| per_minute(name, 9);
    let app = app([
        nine("lost").by(lost()).when_missing(Missing::Skip),
        nine("found").by(Directory::default().tenant()),
    ]);
    for left in [8, 7] {
        let answer = send(&app, with_key("acme.1")).await;
        assert_eq!(
            field(&answer, "ratelimit"),
            format!(r#""lost";r={left};t=60, "found";r={left};t=60"#)
        );
    }
    let answer = send(&app, get("/").header("x-api-key", "nobody.1")).await;
    assert_eq!(
        field(&answer, "ratelimit"),
        r#""lost";r=6;t=60, "found";r=8;t=60"#
    );
}

#[tokio::test(start_paused = true)]
async fn a_shadow_whose_key_is_not_looked_up_in_time_counts_nothing() {
    let rules = [
        all(per_minute("nine", 9)),
        per_minute("shadow", 1)
            .shadow()
            .on_store_error(tollgate::OnStoreError::Deny)
            .by(lost()),
    ];
    let answer = send(&app(rules), get("/")).await;
    assert_eq!(field(&answer, "ratelimit"), r#""nine";r=8;t=60"#);
}

#[test]
fn outside_of_tokio_a_look_up_is_waited_for() {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };
    let layer = layer([one_each(Directory::default().tenant())]);
    let inner = tower::service_fn(|_: Request<Body>| async {
        Ok::<_, std::convert::Infallible>(Response::new(Body::empty()))
    });
    let request = with_key("acme.1").body(Body::empty()).unwrap();
    let mut answer = pin!(tower::Layer::layer(&layer, inner).oneshot(request));
    for _ in 0..10 {
        if let Poll::Ready(answer) = answer
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            assert_eq!(
                answer.unwrap().headers()["ratelimit"],
                r#""one-each";r=0;t=60"#
            );
            return;
        }
    }
    panic!("it does not end");
}

/// A directory that fails at once.
struct Down;

impl KeyExtractor for Down {
    fn extract(&self, _: &Head<'_>, _: &mut KeyBuf) -> Extracted {
        Extracted::Nothing(NoKey::LookUpFailed)
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_look_up_is_answered_as_a_store_failure_of_its_request() {
    let rule = || per_minute("one-each", 1).on_store_error(OnStoreError::Allow);
    for rule in [rule().by(lost()), rule().by(Down)] {
        let posts = method_in([Method::POST]);
        let app = app([rule.on_store_error_when(posts, OnStoreError::Deny)]);
        for _ in 0..2 {
            assert_eq!(status(&app, get("/")).await, 200);
            assert_eq!(status(&app, get("/").method(Method::POST)).await, 503);
        }
    }
}

#[tokio::test]
async fn one_call_limits_each_address() {
    let layer = RateLimitLayer::per_ip(2, MINUTE).unwrap();
    let limiter = layer.limiter();
    let rule = &limiter.rules().rules()[0];
    assert_eq!(
        (rule.name(), *rule.quota()),
        ("per-ip", Quota::gcra(2, MINUTE))
    );
    let app = behind(layer);
    let other = || {
        let peer = PeerAddr(([198, 51, 100, 7], 40_000).into());
        Request::get("/").extension(peer)
    };
    for expected in [200, 200, 429] {
        assert_eq!(status(&app, "/").await, expected);
        assert_eq!(status(&app, other()).await, expected);
    }
    // Another such layer counts apart.
    let again = behind(RateLimitLayer::per_ip(2, MINUTE).unwrap());
    assert_eq!(status(&again, "/").await, 200);
    let error = RateLimitLayer::per_ip(0, MINUTE).expect_err("it never lets anything pass");
    assert!(error.to_string().contains("limit of 0"), "{error}");
}
