//! What operators see of what processes answer alone.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate::{
    Check, Consistency, HOUR, Key, Limiter, Quota, Rule, decision::Source, store::LeaseShare,
};
use tollgate_core::MAX_PERIOD;
use tollgate_redis::{Effective, RedisStore};
use tollgate_test_servers::redis_server::{PATIENCE, RedisServer};
use tollgate_tests::{counted::Metrics, events::Events};
use tracing::Level;

use crate::{keys, store};

fn leased(name: &'static str, quota: Quota) -> Rule {
    Rule::new(name, quota).consistency(Consistency::Leased {
        share: LeaseShare::percent(10),
    })
}

fn eventual(name: &'static str, quota: Quota, interval: Duration) -> Rule {
    Rule::new(name, quota).consistency(Consistency::Eventual {
        interval,
        max_unreported: 40,
    })
}

/// A limiter on this rule, and the check of the shared key.
fn limiter(store: &RedisStore, rule: Rule) -> (Limiter, Check) {
    let name = rule.name().to_owned();
    let limiter = Limiter::new(store.clone(), [rule]).expect("a valid rule");
    let check = limiter.check(&name, &Key::shared()).expect("it is there");
    (limiter, check)
}

#[tokio::test]
async fn calls_are_counted_by_purpose_and_leases_by_outcome() {
    let metrics = Metrics::record();
    let redis = RedisServer::start(&[]).await;
    let store = store(&redis, "shop").await;
    let (limiter, check) = limiter(&store, leased("hot", Quota::gcra(100_000, HOUR)));
    let (mut by_lease, mut by_store) = (0, 0);
    let end = Instant::now() + PATIENCE;
    while by_lease < 10 {
        let decision = limiter.acquire(&[check]).await;
        let source = decision.verdicts()[0].source();
        by_lease += u64::from(source == Source::Lease);
        by_store += u64::from(source == Source::Store);
        assert!(Instant::now() < end, "nothing was granted");
    }

    let counted = metrics.counted();
    let calls = counted.count("tollgate_redis_calls_total{for=requests}");
    assert_eq!(calls, by_store);
    // They are counted once a second.
    let mut leases = [0; 3];
    while leases[1] == 0 {
        assert!(Instant::now() < end, "no lease was counted");
        sleep(Duration::from_millis(20)).await;
        let counted = metrics.counted();
        let names = ["requested", "granted", "lost"];
        let since =
            names.map(|what| counted.count(&format!("tollgate_redis_leases_total{{what={what}}}")));
        leases = [0, 1, 2].map(|place| leases[place] + since[place]);
    }
    assert!(leases[0] >= leases[1] && leases[2] == 0, "{leases:?}");
}

#[tokio::test]
async fn new_keys_are_counted_for_every_rule() {
    let metrics = Metrics::record();
    let redis = RedisServer::start(&[]).await;
    let store = RedisStore::builder(redis.url(), "shop", keys())
        .deadline(PATIENCE)
        .cap_new_keys("capped", 3)
        .connect()
        .expect("valid settings");
    store.connected().await;
    let quota = Quota::fixed_window(100, MAX_PERIOD);
    let rules = [
        Rule::new("exact", Quota::gcra(100, HOUR)),
        leased("leased", quota),
        eventual("eventual", quota, HOUR),
        Rule::new("capped", quota),
    ];
    let names = rules.each_ref().map(|rule| rule.name().to_owned());
    let limiter = Limiter::new(store, rules).expect("valid rules");
    for _ in 0..3 {
        for client in 0..20 {
            for name in &names {
                let check = limiter.check(name, &Key::of([client.to_string()]));
                let decision = limiter.acquire(&[check.expect("it is there")]).await;
                assert!(decision.is_allowed());
            }
        }
    }
    let counted = metrics.counted();
    let new_keys =
        |rule: &str| counted.count(&format!("tollgate_redis_new_keys_total{{rule={rule}}}"));
    for name in ["exact", "leased", "eventual"] {
        assert_eq!(new_keys(name), 20, "{name}");
    }
    let on_redis = redis.command(&["KEYS", "*:capped:*"]).await;
    // One of them is the bucket that the others share.
    let created = on_redis.matches(":capped:").count() as u64 - 1;
    assert!((1..20).contains(&created), "{on_redis}");
    assert_eq!(new_keys("capped"), created);
    let refused = "tollgate_redis_new_keys_refused_total{rule=capped}";
    assert!(counted.count(refused) >= 20 - created);
}

#[tokio::test]
async fn what_a_process_holds_and_the_calls_that_it_saves_are_counted() {
    let metrics = Metrics::record();
    let redis = RedisServer::start(&[]).await;
    let store = store(&redis, "shop").await;
    let (limiter, tracked) = limiter(&store, leased("hot", Quota::gcra(100_000, HOUR)));
    let other = limiter
        .check("hot", &Key::of("other"))
        .expect("it is there");
    let mut saved = 0;
    let mut decide = async |check: Check, at_least: u64| {
        let (end, mut alone) = (Instant::now() + PATIENCE, 0);
        while alone < at_least {
            let decision = limiter.acquire(&[check]).await;
            alone += u64::from(decision.verdicts()[0].source() == Source::Lease);
            assert!(Instant::now() < end, "nothing was granted");
        }
        saved += alone;
    };
    decide(tracked, 10).await;
    decide(other, 7).await;
    let (end, mut counted_as_saved) = (Instant::now() + PATIENCE, 0);
    loop {
        let counted = metrics.counted();
        counted_as_saved += counted.count("tollgate_redis_calls_saved_total{}");
        let is_there = |name: &str| counted.names().any(|known| known == name);
        let keys = "tollgate_redis_leased_keys{kind=lease}";
        if counted_as_saved == saved && is_there(keys) && counted.gauge(keys) > 1.5 {
            let gauge = |name: &str| counted.gauge(&format!("tollgate_redis_{name}"));
            let near =
                |name: &str, number: f64| assert!((gauge(name) - number).abs() < 0.5, "{name}");
            near("leased_keys{kind=lease}", 2.0);
            near("leased_keys{kind=scheduled}", 0.0);
            near("table_keys{}", 2.0);
            // 65 536 denials of 32 bytes are in it.
            assert!(gauge("table_bytes{}") >= f64::from(1 << 21));
            break;
        }
        assert!(counted_as_saved <= saved, "{counted_as_saved} of {saved}");
        assert!(Instant::now() < end, "{counted_as_saved} of {saved}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn reports_are_counted_and_unreported_usage_is_a_gauge() {
    let metrics = Metrics::record();
    let redis = RedisServer::start(&[]).await;
    let store = store(&redis, "shop").await;
    let rule = eventual("slow", Quota::fixed_window(1_000, MAX_PERIOD), HOUR);
    let (hourly, check) = limiter(&store, rule);
    // The first two call Redis.
    for _ in 0..12 {
        assert!(hourly.acquire(&[check]).await.is_allowed());
    }
    let end = Instant::now() + PATIENCE;
    loop {
        let counted = metrics.counted();
        let known = counted
            .names()
            .any(|name| name == "tollgate_redis_units_unreported{}");
        if known && counted.gauge("tollgate_redis_units_unreported{}") > 9.5 {
            break;
        }
        assert!(Instant::now() < end, "nothing is unreported");
        sleep(Duration::from_millis(20)).await;
    }
    let rule = eventual(
        "fast",
        Quota::fixed_window(1_000, MAX_PERIOD),
        Duration::from_millis(10),
    );
    let (often, check) = limiter(&store, rule);
    for _ in 0..11 {
        assert!(often.acquire(&[check]).await.is_allowed());
    }
    let end = Instant::now() + PATIENCE;
    while metrics
        .counted()
        .count("tollgate_redis_reports_total{what=sent}")
        == 0
    {
        assert!(Instant::now() < end, "no report was sent");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_downgraded_consistency_is_reported_once_with_its_reason() {
    let events = Events::listen();
    let redis = RedisServer::start(&[]).await;
    let store = store(&redis, "shop").await;
    let small = leased("small", Quota::gcra(5, HOUR)).plan("gold", Quota::gcra(5_000, HOUR));
    assert!(matches!(
        store.effective(&small, 0),
        Effective::Exact(Some(_))
    ));
    assert!(matches!(store.effective(&small, 1), Effective::Leased(_)));
    let limiter = Limiter::new(store, [small]).expect("a valid rule");
    let check = limiter.check("small", &Key::shared()).expect("it is there");
    for _ in 0..3 {
        let _ = limiter.acquire(&[check]).await;
    }
    events.one(Level::WARN, &["small", "below 20"]);
}
