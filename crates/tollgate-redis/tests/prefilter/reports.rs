//! When and how the store hears of what was counted alone.

use std::time::Duration;

use tollgate_core::{Key, Limiter, MAX_PERIOD, Quota, Rule, Source};
use tollgate_test_servers::{
    eventually::eventually,
    redis_server::{PATIENCE, RedisServer},
};

use crate::{
    load::{LEASED, eventual},
    service::{Service, check},
};

const LIMIT: u64 = 1_000;

/// What a flush is given that is not to end by it.
const LONG: Duration = PATIENCE;

/// How long a flush may take when no server answers.
const SHORT: Duration = Duration::from_millis(200);

fn rule() -> Rule {
    Rule::new("rule", Quota::gcra(LIMIT, MAX_PERIOD)).consistency(eventual(20))
}

/// The units that the store says are left.
async fn left(service: &Service, rule: Rule) -> u64 {
    let name = rule.name().to_owned();
    let exact = service.limiter([rule.consistency(tollgate_core::Consistency::Exact)]);
    let look = check(&exact, &name).with_cost(0);
    // After an outage requests come back to the store little by little.
    eventually("the store answers", || async {
        let decision = exact.peek(&[look]).await;
        let verdict = decision.verdicts()[0];
        // A look that was kept from it says nothing is left, and that this is no number.
        verdict.has_numbers().then(|| verdict.remaining())
    })
    .await
}

/// Waits until it is known that the server is gone: what is sent from then on certainly does not run.
async fn is_lost(limiter: &Limiter) {
    let other = limiter.check("rule", &Key::of("other"));
    let other = [other.expect("the rule is there").with_cost(0)];
    eventually("the connection is known to be gone", || async {
        let decision = limiter.acquire(&other).await;
        (decision.verdicts()[0].source() == Source::Fallback).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_process_that_flushes_leaves_nothing_unreported_and_nothing_granted() {
    let server = RedisServer::start(&[]).await;
    for quota in [
        Quota::gcra(LIMIT, MAX_PERIOD),
        Quota::fixed_window(LIMIT, MAX_PERIOD),
        Quota::sliding_window(LIMIT, MAX_PERIOD),
    ] {
        for (consistency, source) in [(LEASED, Source::Lease), (eventual(20), Source::Local)] {
            for is_dropped in [false, true] {
                let name = format!("{}-{source:?}-{is_dropped}", quota.algorithm().name());
                let rule = Rule::new(name.to_lowercase(), quota).consistency(consistency);
                let mut service = Service::start(&server.url()).await;
                let limiter = service.limiter([rule.clone()]);
                let check = check(&limiter, rule.name());
                service.take_until(&limiter, check, source).await;
                let _ = service.take(&limiter, check, 1).await;
                let limiter = (!is_dropped).then_some(limiter);
                assert_eq!(service.store.flush(LONG).await, 0);
                assert_eq!(left(&service, rule).await, LIMIT - service.net, "{name}");
                drop(limiter);
            }
        }
    }
}

#[tokio::test]
async fn a_flush_ends_in_time_when_redis_does_not_answer_and_says_what_is_missing() {
    let server = RedisServer::start(&[]).await;
    let mut service = Service::start(&server.url()).await;
    let limiter = service.limiter([rule()]);
    let check = check(&limiter, "rule");
    service.take_until(&limiter, check, Source::Local).await;
    let _ = service.take(&limiter, check, 4).await;
    server.stop();
    assert_eq!(service.store.flush(SHORT).await, 5);
    server.resume();
    // What was sent is not sent again.
    assert_eq!(service.store.flush(LONG).await, 0);
    assert_eq!(left(&service, rule()).await, LIMIT - service.net);
}

#[tokio::test]
async fn what_redis_refused_is_reported_once_it_is_back_also_of_a_limiter_that_is_gone() {
    for is_dropped in [false, true] {
        let mut server = RedisServer::start(&[]).await;
        let mut service = Service::start(&server.url()).await;
        let limiter = service.limiter([rule()]);
        let client = check(&limiter, "rule");
        service.take_until(&limiter, client, Source::Local).await;
        let _ = service.take(&limiter, client, 4).await;
        server.kill();
        is_lost(&limiter).await;
        let limiter = (!is_dropped).then_some(limiter);
        if !is_dropped {
            assert_eq!(service.store.flush(SHORT).await, 5);
        }
        server.restart().await;
        assert_eq!(service.store.flush(LONG).await, 0);
        // What was counted before the end of the server is gone with it.
        assert_eq!(left(&service, rule()).await, LIMIT - 5);
        drop(limiter);
    }
}
