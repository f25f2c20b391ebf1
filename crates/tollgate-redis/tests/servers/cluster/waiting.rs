//! Requests that wait, in a cluster: in the order of the server that has their states.

use tokio::task::JoinSet;
use tollgate_core::{Check, Limiter, MINUTE, Quota, Reason, Rule, SECOND, Tick};
use tollgate_redis::Partition;
use tollgate_test_servers::{eventually::eventually, redis_cluster::RedisCluster};

use super::{key, store};

/// Units of the rules that wait, in µs.
const UNIT: Tick = 100_000;
const SLOW_UNIT: Tick = 60_000_000;

/// All states are in one slot, and two processes wait in one queue.
pub(crate) async fn requests_wait_in_the_order_of_their_server(cluster: &RedisCluster) {
    // Each of these is at another server.
    let mut servers = Vec::new();
    for number in 0.. {
        let namespace = format!("waits-{number}");
        let (_, server) = cluster.slot(&format!("{{{namespace}}}")).await;
        if servers.contains(&server) {
            continue;
        }
        servers.push(server);
        let processes = [
            limiter(cluster, &namespace).await,
            limiter(cluster, &namespace).await,
        ];
        those_who_wait_start_a_unit_apart(&processes).await;
        what_cannot_wait_is_charged_at_the_start(&processes[0]).await;
        if servers.len() == 3 {
            return;
        }
    }
}

async fn limiter(cluster: &RedisCluster, namespace: &str) -> Limiter {
    let store = store(cluster, namespace, Partition::One).await;
    let rules = [
        Rule::new("narrow", Quota::gcra(10, SECOND).burst(1)).wait(MINUTE),
        Rule::new("wide", Quota::gcra(50, SECOND).burst(5)).wait(MINUTE),
        Rule::new("slow", Quota::gcra(1, MINUTE)).wait(60 * MINUTE),
        Rule::new("window", Quota::sliding_log(2, 60 * MINUTE)),
    ];
    Limiter::new(store, rules).expect("one slot has all of them")
}

fn checks(limiter: &Limiter, rules: &[&str], client: &str) -> Vec<Check> {
    let check = |rule: &&str| limiter.check(rule, &key(client)).expect("it is there");
    rules.iter().map(check).collect()
}

async fn those_who_wait_start_a_unit_apart(processes: &[Limiter; 2]) {
    const REQUESTS: u64 = 6;
    let mut tasks = JoinSet::new();
    for limiter in processes.iter().cycle().take(REQUESTS as usize) {
        let (limiter, checks) = (limiter.clone(), checks(limiter, &["narrow", "wide"], "a"));
        tasks.spawn(async move {
            let decision = limiter.acquire_within(&checks, MINUTE).await;
            decision.expect("there is room in the queue")
        });
    }
    let mut starts = Vec::new();
    while let Some(decision) = tasks.join_next().await {
        let decision = decision.expect("a request");
        assert!(decision.is_allowed(), "{decision:?}");
        // By the server's clock: when it was asked, and when it said to start.
        let at = decision.at();
        starts.push((at + decision.waited().as_micros() as Tick, at));
    }
    starts.sort_unstable();
    assert!(starts.is_sorted_by_key(|(_, at)| at), "{starts:?}");
    let due = |pair: &[(Tick, Tick)]| (pair[1].0 - pair[0].0, pair[1].1 > pair[0].0);
    for (apart, came_later) in starts.windows(2).map(due) {
        // A request that found an empty queue did not wait for the one before.
        assert!(apart == UNIT || came_later && apart > UNIT, "{starts:?}");
    }
}

async fn what_cannot_wait_is_charged_at_the_start(limiter: &Limiter) {
    let all = checks(limiter, &["slow", "window"], "b");
    let mut places = Vec::new();
    for _ in 0..4 {
        // Nothing of the window is taken while they wait.
        places.push(limiter.acquire(&all).await);
    }
    let began = places[0].at();
    let mut reasons = Vec::new();
    for (n, place) in (0..).zip(places) {
        let start = place.at() + place.delay().as_micros() as Tick;
        assert!(
            place.is_allowed() && start == began + n * SLOW_UNIT,
            "{place:?}"
        );
        reasons.push(limiter.start(&all, place).await.reason());
    }
    let full = Some(Reason::Quota);
    assert_eq!(reasons, [None, None, full, full]);
    // No request stood behind the last one that was denied.
    eventually("its place goes back", || async {
        let looked = limiter.peek(&[all[0].with_cost(0)]).await;
        let end = looked.at() + looked.verdicts()[0].reset_after_ticks();
        (end == began + 3 * SLOW_UNIT).then_some(())
    })
    .await;
}
