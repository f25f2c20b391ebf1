//! Rule sets that take the place of others while units are out.

use tollgate_core::{Limiter, MAX_PERIOD, OnStoreError, Quota, Rule, Source};
use tollgate_test_servers::{eventually::eventually, redis_server::RedisServer};

use crate::{
    load::{EXACT, LEASED, eventual},
    service::{Service, check},
};

const LIMIT: u64 = 1_000;
#[tokio::test]
async fn a_rule_set_that_takes_the_place_of_another_finds_what_was_used_and_granted() {
    let server = RedisServer::start(&[]).await;
    let quotas = |limit| {
        [
            Quota::gcra(limit, MAX_PERIOD),
            Quota::fixed_window(limit, MAX_PERIOD),
        ]
    };
    for (place, old) in quotas(LIMIT).into_iter().enumerate() {
        for (limit, consistency) in [
            (LIMIT, EXACT),
            (LIMIT, eventual(20)),
            (LIMIT / 2, LEASED),
            (2 * LIMIT, LEASED),
        ] {
            let mut service = Service::start(&server.url()).await;
            let name = format!("{}-{limit}-{consistency:?}", old.algorithm().name());
            let name = name.replace(|other: char| !other.is_ascii_alphanumeric(), "-");
            let name = &name[..name.len().min(60)];
            let before = service.limiter([Rule::new(name, old).consistency(LEASED)]);
            let old_check = check(&before, name);
            service.take_until(&before, old_check, Source::Lease).await;
            for _ in 0..150 {
                let _ = service.take(&before, old_check, 1).await;
            }
            let after = Rule::new(name, quotas(limit)[place]).consistency(consistency);
            let after = service.replacing(&before, after);
            let check = check(&after, name);
            for _ in 0..50 {
                // Requests of before that are still on their way.
                let _ = service.take(&before, old_check, 1).await;
                let _ = service.take(&after, check, 1).await;
            }
            drop(before);
            service.drain(&after, check).await;
            let net = service.net;
            // Leases go back to whatever quota the state has by then. A bucket rounds each time it changes hands.
            let most = limit.max(LIMIT);
            let slack = if place == 0 { limit / 20 } else { 0 };
            assert!(net <= most, "{name}: {net}");
            assert!(net >= limit - slack, "{name}: {net}");
        }
    }
}

#[tokio::test]
async fn what_a_replaced_rule_set_holds_goes_back_while_its_limiter_and_tickets_live() {
    let server = RedisServer::start(&[]).await;
    let quotas: [fn(u64) -> Quota; 3] = [
        |limit| Quota::fixed_window(limit, MAX_PERIOD),
        |limit| Quota::sliding_window(limit, MAX_PERIOD),
        |limit| Quota::gcra(limit, MAX_PERIOD),
    ];
    for quota in quotas {
        for limit in [2 * LIMIT, LIMIT / 2] {
            let mut service = Service::start(&server.url()).await;
            let name = format!("{}-to-{limit}", quota(limit).algorithm().name());
            let rule = |limit| {
                Rule::new(&*name, quota(limit))
                    .consistency(LEASED)
                    .on_store_error(OnStoreError::Deny)
            };
            let before = service.limiter([rule(LIMIT)]);
            let old_check = check(&before, &name);
            service.take_until(&before, old_check, Source::Lease).await;
            // Of the lease, and of the store.
            let mut tickets = Vec::new();
            for units in [1, 40] {
                let layout = [old_check.with_cost(units)];
                let decision = service.take(&before, old_check, units).await;
                tickets.push((units, before.ticket(&layout, &decision)));
            }
            let store = service.store.clone();
            let after = Limiter::replacing(&[&before], store, [rule(limit)]).expect("it replaces");
            let check = check(&after, &name);
            service.drain(&after, check).await;
            // A bucket rounds, and a unit of a lease of its own that has gone back is lost.
            let slack = if name.starts_with("gcra") { 2 } else { 0 };
            let net = service.net;
            assert!((limit - slack..=limit).contains(&net), "{name}: {net}");
            for (units, ticket) in tickets {
                ticket.cancel();
                service.net -= units;
            }
            let check = check.with_cost(0);
            let most = limit - service.net;
            eventually(
                &format!("{name}: what tickets held is there again"),
                async || {
                    let looked = after.peek(&[check]).await;
                    let left = looked.verdicts()[0].remaining();
                    (left + slack >= most).then_some(())
                },
            )
            .await;
            drop(before);
        }
    }
}
