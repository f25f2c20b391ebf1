//! What operators see.

use axum::Router;
use tollgate::{
    DAY, Key, Limiter, LimitsEndpoint, MINUTE, OnStoreError, Quota, RateLimitLayer, Rule, SECOND,
    key::header,
};
use tollgate_redis::{BreakerState, Keys, RedisStore, Secret};
use tollgate_test_servers::{eventually::eventually, redis_server::RedisServer};
use tollgate_tests::{
    app::{get, send},
    counted::{Counted, Metrics},
    events::Events,
};
use tracing::Level;

use crate::{keys, store, until};

#[tokio::test]
async fn a_denied_instance_registration_is_reported() {
    let events = Events::listen();
    let redis = RedisServer::start(&[]).await;
    let user = ["ACL", "SETUSER", "default", "-zadd"];
    assert_eq!(redis.command(&user).await, "+OK\r\n");
    let store = store(&redis, "shop").await;
    until("there is an event", || {
        let reported = events.recorded().into_iter();
        // Of a command inside of a script servers do not say which it was.
        reported
            .filter(|event| event.level == Level::ERROR)
            .any(|event| event.fields.contains("user"))
    })
    .await;
    assert_eq!(store.instances(), 0);
}

#[tokio::test]
async fn what_a_caller_has_left_costs_one_call_for_each_layer_and_at_most_one_a_second() {
    let metrics = Metrics::record();
    let redis = RedisServer::start(&[]).await;
    let store = store(&redis, "shop").await;
    let rule = |name: &'static str| {
        Rule::new(name, Quota::fixed_window(9, MINUTE)).by(header("x-api-key"))
    };
    let few = RateLimitLayer::new(store.clone(), ["a", "b", "c"].map(rule)).expect("valid");
    let more = RateLimitLayer::new(store.clone(), ["d", "e"].map(rule)).expect("valid");
    let endpoint = LimitsEndpoint::new([&few, &more], header("x-caller")).expect("valid");
    let app = Router::new().route("/limits", endpoint.route());
    let _ = metrics.counted();
    let ask = async |caller: &str| {
        let request = get("/limits")
            .header("x-api-key", "acme")
            .header("x-caller", caller);
        let status = send(&app, request).await.status().as_u16();
        let counted = metrics.counted();
        let requests = counted.count("tollgate_redis_calls_total{for=requests}");
        (status, requests)
    };
    assert_eq!(ask("ada").await, (200, 2));
    // On a machine that stands still a second may be over.
    let denied = loop {
        let answer = ask("ada").await;
        if answer != (200, 2) {
            break answer;
        }
    };
    assert_eq!(denied, (429, 0));
    assert_eq!(ask("bob").await, (200, 2));
}

#[tokio::test]
async fn a_settlement_that_redis_has_not_carried_out_is_counted() {
    let metrics = Metrics::record();
    let redis = RedisServer::start(&[]).await;
    let store = RedisStore::builder(redis.url(), "shop", keys())
        .deadline(SECOND)
        .connect()
        .expect("a valid address");
    store.connected().await;
    let rule = Rule::new("units", Quota::fixed_window(1_000_000, DAY));
    let rule = rule.on_store_error(OnStoreError::Deny);
    let limiter = Limiter::new(store, [rule]).expect("a valid rule");
    let check = limiter.check("units", &Key::shared()).expect("it is there");
    let decided = || async {
        let decision = limiter.acquire(&[check]).await;
        decision.is_allowed().then_some(decision)
    };
    let refused = eventually("units are taken", decided).await;
    let unsent = eventually("more are taken", decided).await;
    let lost = || {
        metrics
            .counted()
            .count("tollgate_redis_settlements_lost_total{}")
    };

    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    limiter.ticket(&[check], &refused).cancel();
    until("the server refuses it", || lost() == 1).await;

    redis.stop();
    // As many as may be without an answer: the settlement waits behind them, until its deadline.
    let unanswered: Vec<_> = (0..1_100).map(|_| limiter.acquire(&[check])).collect();
    limiter.ticket(&[check], &unsent).cancel();
    until("it is not sent", || lost() == 1).await;
    drop(unanswered);
    redis.resume();
}

#[tokio::test]
async fn an_outage_is_reported_once_and_counted_by_outcome() {
    let metrics = Metrics::record();
    let events = Events::listen();

    let mut redis = RedisServer::start(&[]).await;
    let node = format!("127.0.0.1:{}", redis.port());
    let connected = format!("tollgate_redis_connected{{node={node}}}");
    let share = format!("tollgate_redis_breaker_share{{node={node}}}");
    let store = store(&redis, "shop").await;
    let rule = Rule::new("strict", Quota::fixed_window(1_000_000, MINUTE));
    let rule = rule.on_store_error(OnStoreError::Deny);
    let limiter = Limiter::new(store.clone(), [rule]).expect("a valid rule");
    let check = limiter
        .check("strict", &Key::shared())
        .expect("it is there");
    assert!(limiter.acquire(&[check]).await.is_allowed());
    let counted = metrics.counted();
    assert_eq!(
        counted
            .recorded("tollgate_redis_call_duration_seconds{outcome=answered}")
            .len(),
        1
    );
    assert!(counted.gauge(&connected) > 0.5);

    redis.kill();
    for _ in 0..100 {
        assert!(!limiter.acquire(&[check]).await.is_allowed());
    }
    until("the breaker opens", || {
        store.breaker() != BreakerState::Closed
    })
    .await;
    let counted = metrics.counted();
    let failed =
        |error: &str| counted.count(&format!("tollgate_redis_errors_total{{error={error}}}"));
    assert_eq!(failed("unavailable") + failed("unknown"), 100);
    let timed =
        |outcome: &str| format!("tollgate_redis_call_duration_seconds{{outcome={outcome}}}");
    assert_eq!(counted.recorded(&timed("failed")).len(), 100);
    assert!(counted.gauge(&connected) < 0.5);
    assert!(counted.gauge(&share) < 0.5);
    // Counters begin anew with each look.
    let refused = format!("tollgate_redis_connect_failures_total{{node={node},kind=tcp}}");
    let refused_at_first = counted.count(&refused);

    redis.restart().await;
    until("the breaker closes", || {
        store.breaker() == BreakerState::Closed
    })
    .await;
    assert!(limiter.acquire(&[check]).await.is_allowed());
    // The store says what is wrong, and the limiter which rule felt it.
    let warnings = events.at(Level::WARN);
    let once = |words: &str| {
        warnings
            .iter()
            .filter(|fields| fields.contains(words))
            .count()
    };
    assert_eq!(
        (
            warnings.len(),
            once("Redis is unavailable"),
            once("the store failed")
        ),
        (2, 1, 1),
        "{:?}",
        events.recorded()
    );
    let reported = |words: &str| {
        let reported = events.recorded().into_iter();
        let reported =
            reported.filter(|event| event.level == Level::INFO && event.fields.contains(words));
        reported.map(|event| event.fields).collect::<Vec<_>>()
    };
    assert_eq!(
        reported("Redis decides again").len(),
        1,
        "{:?}",
        events.recorded()
    );
    // To whom, once while it is the same server.
    let connected = reported("connected to Redis");
    assert!(connected[0].contains(&node), "{connected:?}");
    assert!(connected[0].contains("master"), "{connected:?}");
    let counted = metrics.counted();
    assert!(refused_at_first + counted.count(&refused) > 0);
    let round_trips = counted.recorded("tollgate_redis_round_trip_duration_seconds{}");
    let waits = counted.recorded("tollgate_redis_queue_duration_seconds{}");
    assert!(!round_trips.is_empty() && !waits.is_empty());
    // The server that was started again does not know the script.
    assert!(counted.count("tollgate_redis_resent_total{why=noscript}") >= 1);
}

#[tokio::test]
async fn failures_to_connect_are_counted_by_kind() {
    let metrics = Metrics::record();
    let redis = RedisServer::start(&[]).await;
    let password = ["CONFIG", "SET", "requirepass", "right"];
    assert_eq!(redis.command(&password).await, "+OK\r\n");
    let address = format!("redis://:wrong@127.0.0.1:{}", redis.port());
    let refused = RedisStore::builder(&*address, "shop", Keys::plain()).connect();
    let unknown = RedisStore::builder("redis://nowhere.invalid", "shop", Keys::plain()).connect();
    let _stores = [refused, unknown].map(|store| store.expect("a valid address"));
    for kind in ["login", "dns"] {
        let labels = [("kind", kind)];
        until(kind, || {
            let counted = metrics.counted();
            counted.sum("tollgate_redis_connect_failures_total", &labels) > 0
        })
        .await;
    }
}

#[tokio::test]
async fn another_quota_for_the_same_rule_shows_and_other_rules_do_not() {
    let metrics = Metrics::record();
    let redis = RedisServer::start(&[]).await;
    let bind = async |rules: [(&'static str, Quota); 2]| {
        let store = store(&redis, "shop").await;
        let rules = rules.map(|(name, quota)| Rule::new(name, quota));
        Limiter::new(store, rules).expect("valid rules")
    };
    let _one = bind([
        ("per-ip", Quota::gcra(5, MINUTE)),
        ("login", Quota::gcra(5, MINUTE)),
    ])
    .await;
    let _other = bind([
        ("per-ip", Quota::gcra(6_000, MINUTE)),
        ("search", Quota::gcra(5, MINUTE)),
    ])
    .await;
    let conflicts = |counted: &Counted, rule: &str| {
        let name = format!("tollgate_redis_quota_conflicts{{rule={rule}}}");
        let known = counted.names().any(|known| known == &name);
        known.then(|| counted.gauge(&name).round() as u64)
    };
    until("it shows", || {
        conflicts(&metrics.counted(), "per-ip") == Some(1)
    })
    .await;
    until("each rule is compared", || {
        let counted = metrics.counted();
        let others = ["login", "search"].map(|rule| conflicts(&counted, rule));
        others == [Some(0); 2]
    })
    .await;
    let keys = redis.command(&["KEYS", "*"]).await;
    assert!(keys.contains("{shop}:quotas"), "{keys}");
}

#[tokio::test]
async fn two_secrets_in_one_namespace_show_and_the_steps_of_a_change_do_not() {
    let metrics = Metrics::record();
    let events = Events::listen();
    let redis = RedisServer::start(&[]).await;
    let secret = |byte: u8| Secret::from_bytes([byte; 32]).expect("it is long enough");
    let start = async |keys: Keys| {
        let store = RedisStore::builder(redis.url(), "shop", keys).connect();
        let store = store.expect("a valid address");
        store.connected().await;
        store
    };
    let conflicts = || {
        let counted = metrics.counted();
        let name = "tollgate_redis_key_conflicts{}";
        let known = counted.names().any(|known| known == name);
        known.then(|| counted.gauge(name).round() as u64)
    };
    let _now = start(Keys::hashed(secret(7))).await;
    let next = Keys::hashed(secret(7)).next(secret(8)).expect("another");
    let first_step = start(next).await;
    until("they know of each other", || first_step.instances() == 2).await;
    until("they are compared", || conflicts() == Some(0)).await;
    assert_eq!(events.at(Level::ERROR).len(), 0, "{:?}", events.recorded());

    // Without the second step.
    let _last_step = start(Keys::hashed(secret(8))).await;
    until("it shows", || conflicts().is_some_and(|count| count > 0)).await;
    until("there is an event", || {
        let errors = events.at(Level::ERROR);
        errors.iter().any(|event| event.contains("two budgets"))
    })
    .await;
}

#[tokio::test]
async fn a_server_that_closes_idle_connections_is_not_reported_as_lost() {
    let metrics = Metrics::record();
    let events = Events::listen();
    let redis = RedisServer::start(&["--timeout", "1"]).await;
    let node = format!("127.0.0.1:{}", redis.port());
    let lost = format!("tollgate_redis_connections_lost_total{{node={node}}}");
    let store = RedisStore::builder(redis.url(), "shop", crate::keys()).without_heartbeats();
    let store = store.connect().expect("a valid address");
    store.connected().await;
    // Six in a row would open the breaker, if they were failures.
    let mut closed = 0;
    until("the server has closed six", || {
        closed += metrics.counted().count(&lost);
        closed > 5
    })
    .await;
    assert_eq!(store.breaker(), BreakerState::Closed);
    let recorded = events.recorded();
    let mut warnings = recorded.iter().filter(|event| event.level <= Level::WARN);
    assert_eq!(warnings.next().map(|event| &event.fields), None);
}
