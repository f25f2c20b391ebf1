//! Units of a window that is granted come back whole, whatever became of their requests, on a real server. Every order of these events
//! is in `tests/engine/` of the prefilter.

use std::time::Duration;

use tollgate_core::{Check, Decision, HOUR, Key, Limiter, Pending, Quota, Rule, Source, Step};
use tollgate_test_servers::redis_server::RedisServer;

use crate::{
    load::LEASED,
    service::{Service, check},
};

/// As many as come at once.
const BURST: u64 = 150;

const DAY: Duration = Duration::from_secs(86_400);

/// A rule that is granted, and an exact one of one unit for each client.
fn rules(quota: Quota) -> [Rule; 2] {
    [
        Rule::new("granted", quota).consistency(LEASED),
        Rule::new("strict", Quota::gcra(1, HOUR)),
    ]
}

fn of(limiter: &Limiter, rule: &str, client: &str) -> Check {
    let check = limiter.check(rule, &Key::of([client]));
    check.expect("the rule is there")
}

/// A service with these rules, whose client has used up the strict one.
async fn service(url: &str, quota: Quota) -> (Service, Limiter) {
    let service = Service::start(url).await;
    let limiter = service.limiter(rules(quota));
    let used_up = [of(&limiter, "strict", "used-up")];
    let _ = limiter.acquire(&used_up).await;
    (service, limiter)
}

/// Requests that the strict rule denies, all at once: what they cost of the other rule is taken before any of them is answered.
fn burst(service: &Service, limiter: &Limiter) -> Vec<Pending<Decision>> {
    // What the denials before have taught is believed for a second.
    service.clock.advance(Duration::from_millis(1_100));
    let checks = [check(limiter, "granted"), of(limiter, "strict", "used-up")];
    let waiting = (0..BURST).map(|_| match limiter.acquire(&checks) {
        Step::Wait(pending) => pending,
        Step::Ready(decision) => panic!("Redis is asked: {decision:?}"),
    });
    waiting.collect()
}

/// Waits for all of them. Gives of how many the units had been taken from a lease.
async fn are_denied(burst: Vec<Pending<Decision>>) -> u64 {
    let mut held = 0;
    for request in burst {
        let decision = request.await;
        assert!(!decision.is_allowed(), "{decision:?}");
        let granted = decision.verdicts()[0];
        held += u64::from(granted.source() == Source::Lease);
    }
    held
}

#[tokio::test]
async fn five_thousand_a_day_are_admitted_in_full_between_bursts_that_another_rule_denies() {
    const LIMIT: u64 = 5_000;
    let server = RedisServer::start(&[]).await;
    let quota = Quota::fixed_window(LIMIT, DAY);
    let mut services = [
        service(&server.url(), quota).await,
        service(&server.url(), quota).await,
    ];
    let mut spent = 0;
    let mut clients = 0;
    let mut is_left = true;
    while is_left {
        is_left = false;
        for (service, limiter) in &mut services {
            // 150 a second, each of a client that the strict rule lets through.
            for _ in 0..150 {
                service.clock.advance(Duration::from_micros(6_667));
                clients += 1;
                let strict = of(limiter, "strict", &format!("client-{clients}"));
                let decision = limiter.acquire(&[check(limiter, "granted"), strict]).await;
                service.net += u64::from(decision.is_allowed());
                is_left |= decision.is_allowed();
            }
            if is_left {
                spent += are_denied(burst(service, limiter)).await;
            }
        }
    }
    for (service, limiter) in &mut services {
        let granted = check(limiter, "granted");
        service.drain(limiter, granted).await;
    }
    assert!(
        spent > 500,
        "{spent} denied requests had spent from a lease"
    );
    let admitted: u64 = services.iter().map(|(service, _)| service.net).sum();
    // Nothing was lost: no process died, and each reply came.
    assert_eq!(admitted, LIMIT);
}
