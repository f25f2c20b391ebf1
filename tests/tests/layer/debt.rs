//! Clients that cost 90 times their estimate, over HTTP and by the clock of the machine. Simulated time is in the conformance suite.

use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{Router, routing};
use tokio::time::{Instant, sleep};
use tollgate::{MemoryStore, Quota, RateLimitLayer, Rule, SECOND, key::header};
use tollgate_redis::{Keys, RedisStore};
use tollgate_test_servers::redis_server::RedisServer;
use tollgate_tests::server::Server;

/// What clients have used that take 10 units first and cost 900, so many at once.
async fn used(
    redis: Option<RedisStore>,
    quota: Quota,
    at_once: u64,
    time: Duration,
) -> (u64, Duration) {
    let rule = Rule::new("tokens", quota)
        .cost(10)
        .debt(9_000)
        .by(header("x-client"))
        .cost_by_response(|response| response.header("x-units")?.parse().ok());
    let limits = match redis {
        Some(redis) => {
            redis.connected().await;
            RateLimitLayer::new(redis, [rule])
        }
        None => RateLimitLayer::new(MemoryStore::new(), [rule]),
    };
    let app = Router::new().route("/", routing::get(|| async { [("x-units", "900")] }));
    let server = Arc::new(Server::start(app.layer(limits.expect("a valid rule"))).await);
    let (used, start) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let clients = (0..at_once).map(|_| {
        let (server, used) = (Arc::clone(&server), Arc::clone(&used));
        tokio::spawn(async move {
            while start.elapsed() < time {
                let answer = server.send("GET", "/", &[("x-client", "ann")]).await;
                if answer.status == 200 {
                    used.fetch_add(900, Ordering::Relaxed);
                    continue;
                }
                let retry = answer.list("retry-after").parse().expect("seconds");
                let left = time.saturating_sub(start.elapsed());
                sleep(Duration::from_secs(retry).min(left)).await;
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.expect("no client fails");
    }
    (used.load(Ordering::Relaxed), start.elapsed())
}

/// For `TOLLGATE_DEBT_SECONDS`, or two: `test.sh` takes a minute.
#[tokio::test(flavor = "multi_thread")]
async fn over_http_clients_use_what_the_quota_allows_and_the_debt() {
    let seconds = env::var("TOLLGATE_DEBT_SECONDS").ok();
    let seconds = seconds.map_or(2, |text| text.parse().expect("a number of seconds"));
    let quotas = [
        Quota::gcra(1_000, SECOND),
        Quota::token_bucket(1_000).refill(1_000, SECOND),
        Quota::leaky_bucket(1_000).leak(1_000, SECOND),
        Quota::fixed_window(1_000, SECOND),
        Quota::sliding_window(1_000, SECOND),
    ];
    let redis = RedisServer::start(&[]).await;
    let runs = quotas.into_iter().enumerate().flat_map(|(number, quota)| {
        [(false, 1), (false, 10), (true, 1), (true, 10)].map(|(on_redis, at_once)| {
            let namespace = format!("{number}-{at_once}");
            let store = RedisStore::builder(redis.url(), &namespace, Keys::plain());
            let store = store.deadline(Duration::from_secs(30));
            let store = on_redis.then(|| store.connect().expect("an address"));
            let run = used(store, quota, at_once, Duration::from_secs(seconds));
            (quota, at_once, tokio::spawn(run))
        })
    });
    for (quota, at_once, run) in runs.collect::<Vec<_>>() {
        let (used, time) = run.await.expect("a run");
        let most = 1_000 * (time.as_secs() + 2) + 9_000;
        println!("| {quota} | {at_once} | {used} | {most} |");
        assert!(used <= most, "{quota}, {at_once} at once: {used} of {most}");
    }
}
