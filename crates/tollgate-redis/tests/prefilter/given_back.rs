//! Units of a window that is granted come back whole, whatever became of their requests, on a real server. Every order of these events
//! is in `tests/engine/` of the prefilter.

use std::time::Duration;

use tollgate_core::{
    Check, Consistency, Decision, HOUR, Key, Limiter, MAX_PERIOD, Outcome, Pending, Quota, Rule,
    Source, Step,
};
use tollgate_test_servers::{
    eventually::eventually,
    proxy::{Fault, Proxy},
    redis_server::{PATIENCE, RedisServer},
};

use crate::{
    load::LEASED,
    service::{Service, check},
};

const LIMIT: u64 = 2_000;

/// As many as come at once.
const BURST: u64 = 150;

const DAY: Duration = Duration::from_secs(86_400);

/// Windows that are not over while a test runs.
fn windows() -> [Quota; 2] {
    [
        Quota::fixed_window(LIMIT, MAX_PERIOD),
        Quota::sliding_window(LIMIT, MAX_PERIOD),
    ]
}

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

#[tokio::test]
async fn requests_that_are_dropped_while_they_wait_cost_nothing_of_a_window() {
    for quota in windows() {
        let server = RedisServer::start(&[]).await;
        let (mut service, limiter) = service(&server.url(), quota).await;
        let granted = check(&limiter, "granted");
        for _ in 0..5 {
            service.take_until(&limiter, granted, Source::Lease).await;
            // Some hold a unit and wait for the other rule; the others wait for both.
            drop(burst(&service, &limiter));
            // More than any lease: it goes with the query, and Redis takes them.
            if limiter.acquire(&[granted.with_cost(130)]).ready().is_some() {
                service.net += 130;
            }
        }
        let unreported = service.store.flush(PATIENCE).await;
        assert_eq!(unreported, 0);
        service.drain(&limiter, granted).await;
        assert_eq!(service.net, LIMIT, "{quota:?}");
    }
}

#[tokio::test]
async fn a_lease_that_was_to_go_with_a_query_which_was_never_sent_is_still_there() {
    for quota in windows() {
        let server = RedisServer::start(&[]).await;
        let proxy = Proxy::start(server.port(), 7).await;
        let (mut service, limiter) = service(&proxy.url(), quota).await;
        let granted = check(&limiter, "granted");
        service.take_until(&limiter, granted, Source::Lease).await;
        proxy.set(Fault::Refuse);
        eventually("the connection is gone", || async {
            let looked = limiter.peek(&[granted.with_cost(0)]).await;
            (looked.verdicts()[0].outcome() == Outcome::Failed).then_some(())
        })
        .await;
        for _ in 0..3 {
            let decision = limiter.acquire(&[granted.with_cost(LIMIT / 2)]).await;
            assert_eq!(decision.verdicts()[0].source(), Source::Fallback);
        }
        // It serves while Redis does not answer.
        let decision = service.take(&limiter, granted, 1).await;
        assert_eq!(decision.verdicts()[0].source(), Source::Lease);
        proxy.set(Fault::None);
        service.store.connected().await;
        eventually("Redis answers", || async {
            let looked = limiter.peek(&[granted.with_cost(0)]).await;
            (looked.verdicts()[0].outcome() == Outcome::Allow).then_some(())
        })
        .await;
        service.drain(&limiter, granted).await;
        assert_eq!(service.net, LIMIT, "{quota:?}");
    }
}

#[tokio::test]
async fn what_comes_back_when_the_limiter_is_gone_goes_back_to_redis() {
    for quota in windows() {
        let server = RedisServer::start(&[]).await;
        let (mut service, limiter) = service(&server.url(), quota).await;
        let granted = check(&limiter, "granted");
        service.take_until(&limiter, granted, Source::Lease).await;
        let waiting = burst(&service, &limiter);
        let decision = service.take(&limiter, granted, 1).await;
        let ticket = limiter.ticket(&[granted], &decision);
        drop(limiter);
        let exact = Rule::new("granted", quota);
        let exact = Limiter::new(service.store.clone(), [exact]).expect("a valid rule");
        are_denied(waiting).await;
        ticket.cancel();
        service.net -= 1;
        let look = [of(&exact, "granted", "client").with_cost(0)];
        eventually("all is back that was not spent", || async {
            let looked = exact.peek(&look).await;
            (looked.verdicts()[0].remaining() == LIMIT - service.net).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_request_that_costs_nothing_sees_what_this_process_holds() {
    let mut quotas = windows().to_vec();
    quotas.push(Quota::gcra(LIMIT, MAX_PERIOD));
    for quota in quotas {
        let server = RedisServer::start(&[]).await;
        let (mut service, limiter) = service(&server.url(), quota).await;
        let granted = check(&limiter, "granted");
        service.take_until(&limiter, granted, Source::Lease).await;
        let free = [granted.with_cost(0)];
        let strict = of(&limiter, "strict", "another").with_cost(0);
        for checks in [&free[..], &[free[0], strict]] {
            let decision = limiter.acquire(checks).await;
            let verdict = decision.verdicts()[0];
            assert_eq!(verdict.source(), Source::Store);
            assert_eq!(verdict.remaining(), LIMIT - service.net, "{quota:?}");
            assert!(decision.is_allowed());
        }
    }
}

#[tokio::test]
async fn a_report_whose_answer_was_lost_is_not_sent_again() {
    let server = RedisServer::start(&[]).await;
    let proxy = Proxy::start(server.port(), 7).await;
    let mut service = Service::start(&proxy.url()).await;
    // None is due by itself while this runs: the clock stands.
    let consistency = Consistency::Eventual {
        interval: Duration::from_secs(3_600),
        max_unreported: 100,
    };
    let quota = Quota::fixed_window(LIMIT, MAX_PERIOD);
    let rule = Rule::new("counted", quota).consistency(consistency);
    let limiter = service.limiter([rule]);
    let counted = check(&limiter, "counted");
    service.take_until(&limiter, counted, Source::Local).await;
    for _ in 0..20 {
        let _ = service.take(&limiter, counted, 1).await;
    }
    // No byte of the reply passes, and the connection is cut: the report was counted, but the process cannot know.
    proxy.set(Fault::ResetAfter(0));
    drop(limiter);
    let exact = Service::start(&server.url()).await;
    let exact_limiter = exact.limiter([Rule::new("counted", quota)]);
    let look = [check(&exact_limiter, "counted").with_cost(0)];
    let left = async || {
        let looked = exact_limiter.peek(&look).await;
        looked.verdicts()[0].remaining()
    };
    eventually("the report is counted", || async {
        (left().await == LIMIT - service.net).then_some(())
    })
    .await;
    proxy.set(Fault::None);
    service.store.connected().await;
    // All that there is to say is said.
    assert_eq!(service.store.flush(PATIENCE).await, 0);
    assert_eq!(left().await, LIMIT - service.net);
}
