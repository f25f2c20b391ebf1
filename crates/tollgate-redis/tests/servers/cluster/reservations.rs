//! Reservations in a cluster: the record lies with the states, in one hash slot.

use tollgate_core::{
    Limiter, MAX_PERIOD, MINUTE, Quota, Rule, StoreError, StoreErrorKind, types::Reservation,
};
use tollgate_redis::Partition;
use tollgate_test_servers::redis_cluster::RedisCluster;

use super::{key, store};

pub(crate) async fn a_reservation_lies_in_one_hash_slot(cluster: &RedisCluster) {
    let by_tenant = Partition::ByRule("at-once".into());
    for (partition, has_many) in [
        (Partition::One, true),
        (by_tenant, true),
        (Partition::Key, false),
    ] {
        let namespace = format!(
            "reserved-{has_many}-{}",
            matches!(partition, Partition::One)
        );
        let store = store(cluster, &namespace, partition.clone()).await;
        let rules = [
            Rule::new("at-once", Quota::concurrent(1)),
            Rule::new("per-ip", Quota::fixed_window(10, MAX_PERIOD)),
        ];
        let limiter = Limiter::new(store, rules).expect("valid rules");
        for client in 0..8 {
            let one = reserve(&limiter, client, client).await.expect("one key");
            settle(&limiter, &one, client).await;
            match reserve(&limiter, client, client + 100).await {
                Ok(two) if has_many => settle(&limiter, &two, client).await,
                Err(error) if !has_many => {
                    assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
                    assert!(
                        error.to_string().contains("take `Partition::One`"),
                        "{error}"
                    );
                }
                other => panic!("{partition:?}: {other:?}"),
            }
        }
    }
}

async fn reserve(limiter: &Limiter, tenant: u64, ip: u64) -> Result<Reservation, StoreError> {
    let check = |rule, of: u64| limiter.check(rule, &key(of)).expect("it is there");
    let checks = [check("at-once", tenant), check("per-ip", ip).with_cost(4)];
    // The slot of the one before may be on its way back.
    let decision = loop {
        let decision = limiter.acquire(&checks).await;
        if decision.is_allowed() {
            break decision;
        }
    };
    let ticket = limiter.ticket(&checks, &decision).cancel_on_drop();
    ticket.into_reservation(MINUTE).await
}

async fn settle(limiter: &Limiter, reservation: &Reservation, tenant: u64) {
    let ticket = limiter.redeem(reservation).expect("a text of this store");
    assert!(ticket.extend(MINUTE).await.is_ok());
    let slot = limiter.check("at-once", &key(tenant)).expect("it is there");
    let free = async || limiter.peek(&[slot.with_cost(0)]).await.verdicts()[0].remaining();
    assert_eq!(free().await, 0);
    assert!(ticket.settle(1).await.is_ok());
    let again = ticket.settle(0).await.map_err(|error| error.kind());
    assert_eq!(again, Err(StoreErrorKind::Gone));
}
