//! On a cluster each key has a slot of its own, and so has all that the meter keeps of it.

use tollgate_core::{
    Check, Consistency, HOUR, ManualClock, Outcome, Quota, Rule,
    store::{Fingerprint, Settlement},
};
use tollgate_redis::Partition;
use tollgate_test_servers::redis_cluster::RedisCluster;

use crate::{LATER, Process, START, followed::take, seen, until};

const QUOTAS: [Quota; 4] = [
    Quota::fixed_window(20, HOUR),
    Quota::sliding_window(20, HOUR),
    Quota::sliding_buckets(20, HOUR),
    Quota::gcra(20, HOUR),
];

fn check(rule: u16, key: u128, units: u64) -> Check {
    Check::new(rule, Fingerprint::from_bits(key), units)
}

/// The rules of the quotas: each exact, then each eventual.
fn rules() -> Vec<Rule> {
    let eventual = Consistency::Eventual {
        interval: HOUR,
        max_unreported: 20,
    };
    let exact = QUOTAS.iter().enumerate();
    let exact = exact.map(|(place, quota)| Rule::new(format!("exact-{place}"), *quota));
    let counted = QUOTAS
        .iter()
        .enumerate()
        .map(|(place, quota)| Rule::new(format!("counted-{place}"), *quota).consistency(eventual));
    exact.chain(counted).collect()
}

#[tokio::test]
async fn a_meter_sees_the_same_on_a_cluster() {
    let cluster = RedisCluster::start().await;
    let clock = ManualClock::new(START);
    let rules = rules();
    let process = |meter: Option<u32>| {
        let (url, clock, rules) = (cluster.url(), &clock, &rules);
        async move {
            let with = |builder: tollgate_redis::RedisStoreBuilder| {
                let builder = builder.partition(Partition::Key);
                match meter {
                    Some(one_in) => builder.meter(one_in),
                    None => builder,
                }
            };
            Process::start(&url, clock, with, rules).await
        }
    };
    let (one, other) = (process(Some(1)).await, process(Some(1)).await);
    let unseen = process(None).await;
    // As long as a meter has to run before it believes what it knows.
    clock.advance(2 * HOUR);
    let mut requests = 0;
    let mut admitted = 0;
    for key in 0..8 {
        for exact in 0..4 {
            let holding = take(&one, check(exact, key, 15)).await;
            one.bound.settle(&[holding], Settlement::Refund(10));
            // Its own settlements come before what it asks next.
            take(&one, check(exact, key, 15)).await;
            let denied = one.acquire(&[check(exact, key, 1)]).await;
            assert_eq!(denied.outcome(), Outcome::Deny);
            requests += 3;
        }
        for counted in 4..8 {
            for process in [&one, &other] {
                for _ in 0..20 {
                    let decision = process.acquire(&[check(counted, key, 1)]).await;
                    admitted += u64::from(decision.is_allowed());
                    requests += 1;
                }
            }
        }
    }
    seen(&[&one, &other], requests).await;
    clock.advance(LATER);
    let limit = 8 * 4 * 20;
    assert!(admitted > limit, "{admitted}");
    let seen_over = until(&[&one, &other], |seen| seen.over >= admitted - limit).await;
    assert_eq!(
        (seen_over.over, seen_over.falsely, seen_over.dropped),
        (admitted - limit, 0, 0)
    );

    // Units that no meter sees.
    for exact in 0..4 {
        take(&unseen, check(exact, 100, 20)).await;
        let denied = other.acquire(&[check(exact, 100, 1)]).await;
        assert_eq!(denied.outcome(), Outcome::Deny);
    }
    seen(&[&one, &other], requests + 4).await;
    clock.advance(LATER);
    let all = until(&[&one, &other], |seen| seen.falsely >= 4).await;
    assert_eq!((all.falsely, all.over), (4, admitted - limit));
}
