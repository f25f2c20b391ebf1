//! Half of the processes are far from the server: each piece of what they send and hear is held back.

use std::time::Duration;

use tokio::time::sleep;
use tollgate_core::{Limiter, OnStoreError, Rule, SECOND, Source};
use tollgate_test_servers::{
    eventually::eventually,
    proxy::{Fault, Proxy},
    redis_server::{PATIENCE, RedisServer},
};

use crate::{
    fleet::Fleet,
    load::{EXACT, LEASED, Load, RuleLoad, bucket, eventual},
    worker,
};

/// Several round trips, and the time that a busy machine takes.
const DEADLINE: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_holds_for_two_regions_and_through_a_cut_between_them() {
    let server = RedisServer::start(&[]).await;
    let proxy = Proxy::start(server.port(), 11).await;
    for (round_trip, burst) in [(80, 400), (150, 600)] {
        let way = Duration::from_millis(round_trip / 2);
        let delay = Fault::Delay(way, way + Duration::from_millis(3));
        proxy.set(delay);
        let mut fleet = Fleet::across(&server.url(), &proxy.url(), DEADLINE);
        for (name, consistency) in [
            ("exact", EXACT),
            ("leased", LEASED),
            ("eventual", eventual(20)),
        ] {
            fleet.turn_over();
            let rule = RuleLoad::new(
                &format!("{name}-{round_trip}"),
                bucket(burst, burst, SECOND),
                consistency,
            );
            let load = Load {
                pause: Duration::from_millis(8),
                ..Load::new([rule], 10 * PATIENCE)
            };
            fleet.begin(&load);
            let before = fleet.units(0);
            let more = |before| {
                let fleet = &fleet;
                async move {
                    let more = || async {
                        // All of the book is read each time.
                        sleep(SECOND / 20).await;
                        (fleet.units(0) >= before + burst * 3 / 2).then_some(())
                    };
                    eventually("more is admitted", more).await;
                    fleet.units(0)
                }
            };
            let before = more(before).await;
            // The others go on.
            proxy.set(Fault::BlackHole);
            let before = more(before).await;
            proxy.set(delay);
            more(before).await;
            let counts = fleet.end();
            assert!(counts.allowed > 0, "{counts:?}");
            // What was in a report whose answer was lost is given up.
            fleet.gave_up(8);
            fleet.keeps_its_bounds(&load, 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_regional_rule_goes_on_while_the_global_one_is_cut_off() {
    let (here, there) = (RedisServer::start(&[]).await, RedisServer::start(&[]).await);
    let proxy = Proxy::start(there.port(), 13).await;
    let quota = bucket(40, 1, 3_600 * SECOND).quota();
    let regional = worker::store(&here.url(), PATIENCE).await;
    // Nobody waits for a cut for longer than this.
    let global = worker::store(&proxy.url(), Duration::from_millis(300)).await;
    let limiter = |store, name: &str, answer| {
        let rule = Rule::new(name, quota).on_store_error(answer);
        Limiter::new(store, [rule]).expect("a rule")
    };
    let regional = limiter(regional, "regional", OnStoreError::Deny);
    let global = limiter(global, "global", OnStoreError::Allow);
    let ask = async |limiter: &Limiter, rule: &str| {
        let check = limiter
            .check(rule, &tollgate_core::Key::of("acme"))
            .expect("a rule");
        let decision = limiter.acquire(&[check]).await;
        (decision.is_allowed(), decision.verdicts()[0].source())
    };
    eventually("the global one is counted", || async {
        (ask(&global, "global").await == (true, Source::Store)).then_some(())
    })
    .await;
    proxy.set(Fault::BlackHole);
    let mut allowed = 0;
    for _ in 0..60 {
        let (passes, _) = ask(&global, "global").await;
        assert!(passes);
        allowed += u64::from(ask(&regional, "regional").await.0);
    }
    assert_eq!(allowed, 40);
}
