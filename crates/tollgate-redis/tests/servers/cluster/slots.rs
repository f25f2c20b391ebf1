//! A slot moves while its states are asked for.

use std::time::Duration;

use tollgate_core::{
    Check, Decision, Key, Limiter, MAX_PERIOD, OnStoreError, Outcome, Quota, Reason, Rule,
};
use tollgate_redis::{BreakerState, RedisStore};
use tollgate_test_servers::{
    eventually::eventually, moving_slot::MovingSlot, redis_cluster::RedisCluster,
};
use tollgate_test_services::service::Service;

/// How often calls were sent on to a server of the first three.
pub(crate) async fn sent_on(cluster: &RedisCluster) -> u64 {
    let mut sum = 0;
    for server in 0..3 {
        let stats = cluster.say(server, &["INFO", "commandstats"]).await;
        let calls = stats.split_once("cmdstat_asking:calls=");
        let calls = calls.and_then(|(_, rest)| rest.split(',').next());
        sum += calls.map_or(0, |calls| calls.parse().expect("a number"));
    }
    sum
}

#[tokio::test]
async fn a_slot_that_moves_back_and_forth_gives_no_unit_away_and_loses_none() {
    let cluster = RedisCluster::start_patient().await;
    let (slot, first) = cluster.slot("{faults}").await;
    let mut service = Service::start(&cluster.url()).await;
    let mut owner = first;
    let goes_on = async || {
        let until = service.requests() + 60;
        eventually("the service asks on", || async {
            (service.requests() >= until).then_some(())
        })
        .await;
    };
    for _ in 0..6 {
        let to = (owner + 1) % 3;
        let moving = MovingSlot::begin(&cluster, slot, owner, to).await;
        goes_on().await;
        for rule in ["deny", "cap", "degraded"] {
            moving.carry(|key| key.contains(rule)).await;
            goes_on().await;
        }
        moving.finish().await;
        goes_on().await;
        owner = to;
    }
    assert!(sent_on(&cluster).await > 0);
    service.recovers("the moves").await;
    service.end().await;
}

const LIMIT: u64 = 100;

/// Rules of one request, in one slot.
struct Pair {
    store: RedisStore,
    limiter: Limiter,
}

impl Pair {
    async fn start(cluster: &RedisCluster) -> Self {
        let store = RedisStore::builder(cluster.url(), "pair", tollgate_redis::Keys::plain())
            .partition(tollgate_redis::Partition::One)
            .deadline(Duration::from_secs(20))
            .connect()
            .expect("a valid address");
        store.connected().await;
        let rules = [
            Rule::new("closed", Quota::gcra(LIMIT, MAX_PERIOD)).on_store_error(OnStoreError::Deny),
            Rule::new("open", Quota::sliding_log(LIMIT, MAX_PERIOD))
                .on_store_error(OnStoreError::Allow),
        ];
        let limiter = Limiter::new(store.clone(), rules).expect("the rules are valid");
        Self { store, limiter }
    }

    fn check(&self, rule: &str, client: &str) -> Check {
        let check = self.limiter.check(rule, &Key::of([client]));
        check.expect("the rule is there")
    }

    async fn both(&self, client: &str) -> Decision {
        let checks = [self.check("closed", client), self.check("open", client)];
        self.limiter.acquire(&checks).await
    }

    async fn left(&self, client: &str) -> [u64; 2] {
        let mut left = [0; 2];
        for (left, rule) in left.iter_mut().zip(["closed", "open"]) {
            let look = self.check(rule, client).with_cost(0);
            let looked = self.limiter.peek(&[look]).await;
            let verdict = looked.verdicts()[0];
            assert!(verdict.has_numbers(), "{looked:?}");
            *left = verdict.remaining();
        }
        left
    }
}

#[tokio::test]
async fn a_request_of_several_states_that_are_not_at_one_server_fails_and_takes_nothing() {
    let cluster = RedisCluster::start_patient().await;
    let (slot, from) = cluster.slot("{pair}").await;
    let pair = Pair::start(&cluster).await;
    assert!(pair.both("known").await.is_allowed());
    let moving = MovingSlot::begin(&cluster, slot, from, (from + 1) % 3).await;
    // Both are where they were.
    assert!(pair.both("known").await.is_allowed());
    moving.carry(|key| key.contains("closed")).await;
    // "known" has one state on each server. "new" has none, but the new server cannot know that none is on its way.
    for client in ["known", "new"] {
        for _ in 0..20 {
            let decision = pair.both(client).await;
            assert_eq!(decision.reason(), Some(Reason::StoreFailed), "{client}");
        }
    }
    // The server is not in trouble, and one state alone is found.
    assert_eq!(pair.store.breaker(), BreakerState::Closed);
    assert_eq!(pair.left("known").await, [LIMIT - 2; 2]);
    let alone = pair.limiter.acquire(&[pair.check("open", "new")]).await;
    assert_eq!(alone.verdicts()[0].outcome(), Outcome::Allow);
    assert_eq!(pair.left("new").await, [LIMIT, LIMIT - 1]);
    moving.finish().await;
    for client in ["known", "new"] {
        assert!(pair.both(client).await.is_allowed(), "{client}");
    }
    assert_eq!(pair.left("known").await, [LIMIT - 3; 2]);
    assert_eq!(pair.left("new").await, [LIMIT - 1, LIMIT - 2]);
}
