//! Redis that stands still, servers that end, and one budget for all who count on it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::{sleep, timeout};
use tollgate_redis::{Keys, RedisStore, Secret};
use tollgate_rules::{Bindings, Format, RuleDocument};
use tollgate_test_servers::{eventually::eventually, redis_server::RedisServer};

use crate::{
    envoy_answers::get,
    support::{
        envoy::{Asks, Envoy, VERSIONS},
        server::{SECRET, Server},
        upstream::{serve, upstream},
    },
};

fn on_redis(redis: &RedisServer, doors: &str) -> String {
    let url = redis.url();
    format!(
        "rules = 'limits.toml'\nmetrics = '127.0.0.1:0'\n{doors}\n[redis]\naddress = '{url}'\nnamespace = 'edge'\n"
    )
}

const GRPC: &str = "grpc = { listen = '127.0.0.1:0' }";

#[tokio::test]
async fn while_redis_stands_still_each_answer_is_that_of_its_rule_before_envoy_gives_up() {
    let rule = |name: &str, answer: &str| {
        format!(
            "[[rules]]\nname = '{name}'\nlimit = 'fixed_window 1000/h'\nby = 'header:x-api-key'\non_store_error = '{answer}'\nwhen = {{ path = '/{name}' }}\n"
        )
    };
    let rules = format!(
        "version = 1\n{}{}",
        rule("open", "allow"),
        rule("closed", "deny")
    );
    let redis = RedisServer::start(&[]).await;
    let server = Server::start(&on_redis(&redis, GRPC), &rules);
    // Envoy's own is 20 ms. A busy machine may need longer for all that is not the store, so it is five seconds here.
    // By hand, with Envoy's: TOLLGATE_ENVOY_TIMEOUT=0.02s cargo test --release -p tollgate-server --test edge while_redis
    let timeout = std::env::var("TOLLGATE_ENVOY_TIMEOUT");
    let asks = Asks {
        timeout: timeout.as_deref().unwrap_or("5s"),
        ..Asks::head(&server.addresses[..1])
    };
    let envoy = Envoy::start(VERSIONS[0], upstream().await, asks).await;
    let ask = async |path: &str| get(&format!("{}/{path}", envoy.url), &[("x-api-key", "a")]).await;
    eventually("Redis counts", || async {
        ask("closed")
            .await
            .fields
            .contains_key("ratelimit")
            .then_some(())
    })
    .await;
    let errors = envoy.counter("error").await;

    redis.stop();
    for _ in 0..20 {
        assert_eq!(ask("open").await.status, 200);
        let denied = ask("closed").await;
        assert_eq!(denied.status, 429);
        assert!(denied.body.contains("\"status\":503"), "{}", denied.body);
    }
    redis.resume();
    assert_eq!(envoy.counter("error").await - errors, 0);
    let metrics = server.metrics().await;
    let without = metrics
        .lines()
        .find_map(|line| line.strip_prefix("tollgate_checks_without_store_total{door=\"grpc\"} "));
    let without: u64 = without.and_then(|it| it.parse().ok()).unwrap_or_default();
    assert!(without >= 40, "{without}");
    eventually("Redis counts again", || async {
        (ask("closed").await.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn envoy_the_check_and_the_layer_of_a_service_have_one_budget() {
    const LIMIT: u64 = 150;
    let rules = format!(
        "version = 1\n[[rules]]\nname = 'per-key'\nlimit = 'fixed_window {LIMIT}/d'\nby = 'header:x-api-key'\non_store_error = 'deny'\n"
    );
    let redis = RedisServer::start(&[]).await;
    let doors = format!("{GRPC}\nhttp = [{{ listen = '127.0.0.1:0', style = 'forwarded' }}]");
    let server = Server::start(&on_redis(&redis, &doors), &rules);
    let asks = Asks::head(&server.addresses[..1]);
    let envoy = Envoy::start(VERSIONS[0], upstream().await, asks).await;
    let keys = Keys::hashed(Secret::from_text(SECRET).expect("it is one"));
    let store = RedisStore::builder(redis.url(), "edge", keys)
        .connect()
        .expect("it connects");
    let document =
        RuleDocument::parse(&rules, Format::Toml, &Bindings::new()).expect("it is right");
    let layer =
        tollgate::RateLimitLayer::new(store.clone(), document.rules()).expect("it is right");
    let service = axum::Router::new()
        .route("/", axum::routing::get(|| async {}))
        .layer(layer);
    let service = serve(service).await;
    store.connected().await;
    eventually("all count on Redis", || async {
        let fields = get(&envoy.url, &[("x-api-key", "other")]).await.fields;
        fields.contains_key("ratelimit").then_some(())
    })
    .await;

    let allowed = Arc::new(AtomicU64::new(0));
    let check = format!("http://{}/check", server.addresses[1]);
    let urls = [envoy.url.clone(), check, format!("http://{service}/")];
    let all = (0..12).map(|client| {
        let (url, allowed) = (urls[client % 3].clone(), Arc::clone(&allowed));
        tokio::spawn(async move {
            let client = reqwest::Client::new();
            for _ in 0..LIMIT / 6 {
                let request = client.get(&url).header("x-api-key", "acme");
                let request = request
                    .header("x-forwarded-method", "GET")
                    .header("x-forwarded-uri", "/");
                let status = request.send().await.expect("it is answered").status();
                allowed.fetch_add(u64::from(status == 200), Ordering::Relaxed);
            }
        })
    });
    for client in all.collect::<Vec<_>>() {
        client.await.expect("it asks");
    }
    // What Redis was too late for was denied.
    let allowed = allowed.load(Ordering::Relaxed);
    assert!(allowed <= LIMIT, "{allowed}");
}

#[tokio::test]
async fn one_of_two_servers_ends_under_load_without_a_failed_request() {
    let rules =
        "version = 1\n[[rules]]\nname = 'per-key'\nlimit = 'unlimited'\nby = 'header:x-api-key'\n";
    let settings =
        format!("rules = 'limits.toml'\nmetrics = '127.0.0.1:0'\ndrain_seconds = 4\n{GRPC}\n");
    let mut servers = [
        Server::start(&settings, rules),
        Server::start(&settings, rules),
    ];
    let addresses = [
        servers[0].addresses[0].clone(),
        servers[1].addresses[0].clone(),
    ];
    let cluster = "health_checks: [ { timeout: 20s, interval: 0.1s, no_traffic_interval: 0.1s, unhealthy_threshold: 1, healthy_threshold: 1, grpc_health_check: {} } ]";
    let filter = "failure_mode_deny: true";
    let asks = Asks {
        cluster,
        filter,
        ..Asks::head(&addresses)
    };
    let envoy = Envoy::start(VERSIONS[0], upstream().await, asks).await;
    eventually("Envoy has found a server that is well", || async {
        (get(&envoy.url, &[]).await.status == 200).then_some(())
    })
    .await;

    let [ended, failed] = [0; 2].map(|_| Arc::new(AtomicBool::new(false)));
    let load = (0..4).map(|_| {
        let (url, ended, failed) = (envoy.url.clone(), Arc::clone(&ended), Arc::clone(&failed));
        tokio::spawn(async move {
            let client = reqwest::Client::new();
            while !ended.load(Ordering::Relaxed) {
                let status = client
                    .get(&url)
                    .send()
                    .await
                    .expect("it is answered")
                    .status();
                failed.fetch_or(status != 200, Ordering::Relaxed);
                sleep(Duration::from_millis(5)).await;
            }
        })
    });
    let load: Vec<_> = load.collect();
    servers[0].signal("TERM");
    let address = servers[0].addresses[1].clone();
    eventually("it says that it is going to end", || async {
        let ready = reqwest::get(format!("http://{address}/readyz"))
            .await
            .ok()?;
        (ready.status() == 503).then_some(())
    })
    .await;
    let ends = async {
        while servers[0].ended().is_none() {
            sleep(Duration::from_millis(5)).await;
        }
        servers[0].ended()
    };
    let code = timeout(Duration::from_secs(60), ends)
        .await
        .expect("it ends in time");
    ended.store(true, Ordering::Relaxed);
    for client in load {
        client.await.expect("it asks");
    }
    assert_eq!((code, failed.load(Ordering::Relaxed)), (Some(0), false));
}
