//! Mistakes that were made on purpose are seen.

use std::{net::Ipv4Addr, time::Duration};

use redis::Value;
use tollgate_core::{
    Consistency, HOUR, LeaseShare, OnStoreError, Outcome, Quota, Rule, SECOND, Source,
    algorithm::Taken,
    store::{Receipt, Settlement},
};
use tollgate_test_servers::redis_client::RedisClient;

use crate::{Fleet, LATER, seen, unit, until};

fn eventual(max_unreported: u64) -> Consistency {
    Consistency::Eventual {
        interval: HOUR,
        max_unreported,
    }
}

#[tokio::test]
async fn units_that_two_processes_admit_above_the_limit_are_counted() {
    for quota in [
        Quota::fixed_window(100, HOUR),
        Quota::sliding_window(100, HOUR),
        Quota::gcra(100, HOUR),
        Quota::token_bucket(100).refill(1, HOUR),
        Quota::sliding_buckets(100, HOUR),
    ] {
        let fleet = Fleet::start().await;
        let rules = [Rule::new("per-key", quota).consistency(eventual(100))];
        let processes = [
            fleet.process(1, &rules).await,
            fleet.process(1, &rules).await,
        ];
        let mut admitted = 0;
        for process in &processes {
            // Its first request asks; of all others it reports an hour later.
            for _ in 0..100 {
                let decision = process.acquire(&[unit(7)]).await;
                admitted += u64::from(decision.is_allowed());
                if !decision.is_allowed() {
                    break;
                }
            }
        }
        assert!(admitted > 190, "{admitted} of {quota:?}");
        let [one, other] = &processes;
        seen(&[one, other], admitted).await;
        fleet.clock.advance(LATER);
        let seen = until(&[one, other], |seen| seen.over >= admitted - 100).await;
        assert_eq!(seen.over, admitted - 100, "{quota:?}");
        assert_eq!((seen.falsely, seen.dropped), (0, 0), "{quota:?}");
    }
}

#[tokio::test]
async fn what_passes_while_the_store_fails_counts_as_well() {
    let fleet = Fleet::start().await;
    let rule = Rule::new("open", Quota::fixed_window(10, HOUR));
    let rules = [rule.on_store_error(OnStoreError::Allow)];
    let process = fleet.process(1, &rules).await;
    let limiter = tollgate_core::Limiter::new(process.store.clone(), rules).expect("a valid rule");
    let check = limiter.check("open", &tollgate_core::Key::shared());
    let check = check.expect("it is there");
    assert!(limiter.acquire(&[check]).await.is_allowed());
    // Somebody else's value in its place.
    let mut connection = RedisClient::connect((Ipv4Addr::LOCALHOST, fleet.server.port()).into());
    let Value::Array(names) = connection.say("KEYS *:open:f1") else {
        panic!("keys are a list");
    };
    let [Value::BulkString(name)] = &names[..] else {
        panic!("{names:?}");
    };
    let name = str::from_utf8(name).expect("a name is text");
    connection.say(&format!("DEL {name}"));
    connection.say(&format!("LPUSH {name} foreign"));
    for _ in 0..29 {
        let decision = limiter.acquire(&[check]).await;
        assert_eq!(decision.verdicts()[0].source(), Source::Fallback);
    }
    seen(&[&process], 30).await;
    fleet.clock.advance(LATER);
    let seen = until(&[&process], |seen| seen.over >= 20).await;
    assert_eq!((seen.over, seen.dropped), (20, 0));
}

#[tokio::test]
async fn a_refusal_by_a_bound_that_a_refund_has_made_stale_is_seen() {
    let fleet = Fleet::start().await;
    let rules = [Rule::new(
        "per-key",
        Quota::token_bucket(10).refill(1, SECOND),
    )];
    let (one, other) = (
        fleet.process(1, &rules).await,
        fleet.process(1, &rules).await,
    );
    // As long as a meter has to run before it believes what it knows.
    fleet.clock.advance(Duration::from_secs(60));
    let all = unit(7).with_cost(10);
    let taken = one.acquire(&[all]).await;
    assert!(taken.is_allowed());
    let denied = other.acquire(&[unit(7)]).await;
    assert_eq!(denied.outcome(), Outcome::Deny);
    assert_eq!(seen(&[&one, &other], 2).await.falsely, 0);

    let fresh_at = taken.at() + taken.verdicts()[0].reset_after().as_micros() as u64;
    let holding = Receipt::of_store(all, Taken::new(taken.at(), fresh_at));
    one.bound.settle(&[holding], Settlement::Refund(5));
    fleet.clock.advance(Duration::from_millis(100));
    // The account learns of it some time after the rule. What looks false is asked about once more, and what was given back
    // little more than half a second ago may have been too late for it.
    let mut requests = 2;
    // The bound holds for a second.
    while requests < 880 && other.seen().falsely == 0 {
        let denied = other.acquire(&[unit(7)]).await;
        assert_eq!(denied.verdicts()[0].source(), Source::DenyCache);
        requests += 1;
        seen(&[&one, &other], requests).await;
        fleet.clock.advance(Duration::from_millis(1));
    }
    let seen = until(&[&one, &other], |seen| seen.falsely > 0).await;
    assert_eq!(seen.over, 0);
}

#[tokio::test]
async fn a_refusal_while_units_are_on_lease_elsewhere_is_seen() {
    let fleet = Fleet::start().await;
    let leased = Consistency::Leased {
        share: LeaseShare::percent(10),
    };
    let rules = [Rule::new("per-key", Quota::fixed_window(1_000, HOUR)).consistency(leased)];
    let (one, other) = (
        fleet.process(1, &rules).await,
        fleet.process(1, &rules).await,
    );
    fleet.clock.advance(HOUR);
    let mut requests = 0;
    loop {
        fleet.clock.advance(Duration::from_millis(10));
        let decision = one.acquire(&[unit(7)]).await;
        requests += 1;
        if decision.verdicts()[0].source() == Source::Lease {
            break;
        }
        assert!(requests < 900, "nothing was granted");
    }
    loop {
        let decision = other.acquire(&[unit(7)]).await;
        requests += 1;
        if !decision.is_allowed() {
            break;
        }
        // So that it asks for nothing in advance.
        assert!(requests < 1_100, "nobody was denied");
    }
    // Each on a connection of its own: the last admission of the one may be told after the denial of the other.
    seen(&[&one, &other], requests).await;
    let denied = other.acquire(&[unit(7)]).await;
    assert_eq!(denied.outcome(), Outcome::Deny);
    seen(&[&one, &other], requests + 1).await;
    fleet.clock.advance(LATER);
    let seen = until(&[&one, &other], |seen| seen.falsely > 0).await;
    assert_eq!((seen.over, seen.dropped), (0, 0));
}
