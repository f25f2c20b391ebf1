//! However many slots a request has, it has one deadline.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tollgate_core::{
    Check, HOUR, OnStoreError, Outcome, Quota, Rule, RuleSet, Store,
    store::{Fingerprint, RuleStore},
};
use tollgate_redis::{Keys, Partition, RedisStore};
use tollgate_test_servers::redis_cluster::RedisCluster;

const DEADLINE: Duration = Duration::from_millis(200);
const SLOTS: u16 = 6;

/// From when on time stands still but for timers, so that a busy machine does not count.
#[tokio::test]
async fn a_request_in_six_slots_of_servers_that_stand_still_waits_for_one_deadline() {
    let cluster = RedisCluster::start().await;
    let store = RedisStore::builder(cluster.url(), "deadline", Keys::plain())
        .deadline(DEADLINE)
        .partition(Partition::Key)
        .without_heartbeats()
        .connect()
        .expect("a valid address");
    store.connected().await;
    let rules = (0..SLOTS).map(|rule| Rule::new(format!("rule-{rule}"), Quota::gcra(10, HOUR)));
    let mut rules: Vec<_> = rules.collect();
    let denies = usize::from(SLOTS) - 2;
    rules[denies] = rules[denies].clone().on_store_error(OnStoreError::Deny);
    let rules = Arc::new(RuleSet::new(rules).expect("valid rules"));
    let bound = store.bind(rules).expect("rules it can serve");
    let check = |rule| Check::new(rule, Fingerprint::from_bits(u128::from(rule) << 64), 1);
    let checks: Vec<_> = (0..SLOTS).map(check).collect();
    is_served(&*bound, &checks).await;

    tokio::time::pause();
    for server in 0..6 {
        cluster.server(server).stop();
    }
    let began = Instant::now();
    let decision = bound.acquire(&checks).await;
    let took = began.elapsed();
    tokio::time::resume();
    for server in 0..6 {
        cluster.server(server).resume();
    }
    assert!(took < 2 * DEADLINE, "{took:?} for {SLOTS} slots");
    assert_eq!(decision.verdicts().len(), usize::from(SLOTS));
    for verdict in decision.verdicts() {
        // The failure of one denies the request, and the last is not asked.
        let is_asked = verdict.rule() <= denies;
        let outcome = [Outcome::NotDecided, Outcome::Failed][usize::from(is_asked)];
        assert_eq!(verdict.outcome(), outcome);
    }
    is_served(&*bound, &checks).await;
}

/// Waits until every server decides.
async fn is_served(bound: &dyn RuleStore, checks: &[Check]) {
    tollgate_test_servers::eventually::eventually("the request is decided", || async {
        let decision = bound.peek(checks).await;
        let mut verdicts = decision.verdicts().iter();
        verdicts
            .all(|verdict| verdict.outcome() == Outcome::Allow)
            .then_some(())
    })
    .await;
}
