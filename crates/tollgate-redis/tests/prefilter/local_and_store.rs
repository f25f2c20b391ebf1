//! What goes wrong at the boundary between what a process holds and what the store knows.

use std::time::Duration;

use tollgate_core::{
    Check, Consistency, Key, LeaseShare, Limiter, MAX_PERIOD, MINUTE, Quota, Rule, Source, Ticket,
};
use tollgate_redis::{Keys, Partition, RedisStore};
use tollgate_test_servers::{
    blocking_server::RedisServer, eventually::eventually, redis_cluster::RedisCluster,
};

async fn store(url: &str, partition: Partition) -> RedisStore {
    let store = RedisStore::builder(url, "local", Keys::plain())
        .deadline(Duration::from_secs(10))
        .partition(partition)
        .without_deny_cache()
        .connect()
        .expect("a valid address, a deadline and a runtime");
    store.connected().await;
    store
}

fn check(limiter: &Limiter, rule: &str, client: &str) -> Check {
    let check = limiter.check(rule, &Key::of([client]));
    check.expect("the rule is there")
}

#[tokio::test]
async fn a_ticket_that_is_cancelled_gives_back_what_every_rule_took_where_one_rule_says_the_place()
{
    let server = RedisServer::start(&[]);
    let url = format!("redis://127.0.0.1:{}", server.port());
    let store = store(&url, Partition::ByRule("per-tenant".into())).await;
    let rules = [
        Rule::new("per-user", Quota::fixed_window(10, MAX_PERIOD)),
        Rule::new("per-tenant", Quota::fixed_window(100, MAX_PERIOD)),
    ];
    let limiter = Limiter::new(store, rules).expect("valid rules");
    let checks = [
        check(&limiter, "per-user", "ada"),
        check(&limiter, "per-tenant", "acme"),
    ];
    let decision = limiter.acquire(&checks).await;
    limiter.ticket(&checks, &decision).cancel();
    let looks = checks.map(|check| check.with_cost(0));
    eventually("both have all again", || async {
        let looked = limiter.peek(&looks).await;
        let left: Vec<_> = looked
            .verdicts()
            .iter()
            .map(|one| one.remaining())
            .collect();
        (left == [10, 100]).then_some(())
    })
    .await;
}

/// How a ticket is settled, and what is left then.
type Settlement = (fn(Ticket), [u64; 3]);

#[tokio::test]
async fn a_part_of_a_ticket_is_settled_where_another_rule_says_the_place() {
    let server = RedisServer::start(&[]);
    let url = format!("redis://127.0.0.1:{}", server.port());
    let store = store(&url, Partition::ByRule("per-tenant".into())).await;
    let rules = [
        Rule::new("per-user", Quota::fixed_window(10, MAX_PERIOD)),
        Rule::new("per-tenant", Quota::fixed_window(100, MAX_PERIOD)),
        Rule::new("bytes", Quota::fixed_window(1_000, MAX_PERIOD)),
    ];
    let limiter = Limiter::new(store, rules).expect("valid rules");
    let settlements: [Settlement; 5] = [
        (|ticket| ticket.charge(1), [8, 98, 899]),
        (
            |ticket| ticket.of_rule("bytes").expect("a rule").settle(150),
            [9, 99, 850],
        ),
        (
            |ticket| ticket.of_rule("bytes").expect("a rule").refund(30),
            [9, 99, 930],
        ),
        (
            |ticket| ticket.of_rule("per-user").expect("a rule").cancel(),
            [10, 99, 900],
        ),
        (
            |ticket| {
                ticket.settle_each(|check| match check.cost() {
                    100 => Some(250),
                    _ => Some(check.rule().into()),
                });
            },
            [10, 99, 750],
        ),
    ];
    for (number, (settle, expected)) in settlements.into_iter().enumerate() {
        let tenant = format!("tenant-{number}");
        let checks = [
            check(&limiter, "per-user", "ada"),
            check(&limiter, "per-tenant", &tenant),
            check(&limiter, "bytes", "ada").with_cost(100),
        ];
        let decision = limiter.acquire(&checks).await;
        settle(limiter.ticket(&checks, &decision));
        let looks = checks.map(|check| check.with_cost(0));
        let what = format!("settlement {number} leaves {expected:?}");
        eventually(&what, || async {
            let looked = limiter.peek(&looks).await;
            let left = looked.verdicts().iter().map(|one| one.remaining());
            left.eq(expected).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_lease_that_was_not_asked_for_because_another_slot_denied_is_asked_for_later() {
    let cluster = RedisCluster::start().await;
    let store = store(&cluster.url(), Partition::Key).await;
    let leased = Consistency::Leased {
        share: LeaseShare::percent(50),
    };
    let rules = [
        Rule::new("strict", Quota::gcra(1, 60 * MINUTE)),
        Rule::new("leased", Quota::gcra(1_000_000, MINUTE)).consistency(leased),
    ];
    let limiter = Limiter::new(store, rules).expect("valid rules");
    let strict = check(&limiter, "strict", "acme");
    let leased = check(&limiter, "leased", "ada");
    assert!(limiter.acquire(&[strict]).await.is_allowed());
    let is_leased = async || {
        let decision = limiter.acquire(&[leased]).await;
        (decision.verdicts()[0].source() == Source::Lease).then_some(())
    };
    eventually("there is a lease", is_leased).await;
    // More than any lease: the lease goes back with it, if it is asked.
    let both = [strict, leased.with_cost(900_000)];
    assert!(!limiter.acquire(&both).await.is_allowed());
    eventually("there is a lease again", is_leased).await;
}

#[tokio::test]
async fn a_denial_of_one_tenant_says_nothing_of_the_same_client_of_another() {
    let server = RedisServer::start(&[]);
    let url = format!("redis://127.0.0.1:{}", server.port());
    let store = RedisStore::builder(&url, "local", Keys::plain())
        .deadline(Duration::from_secs(10))
        .partition(Partition::ByRule("per-tenant".into()))
        .connect()
        .expect("a valid address, a deadline and a runtime");
    store.connected().await;
    let rules = [
        Rule::new("per-user", Quota::fixed_window(1, MAX_PERIOD)),
        Rule::new("per-tenant", Quota::gcra(100, MINUTE)),
    ];
    let limiter = Limiter::new(store, rules).expect("valid rules");
    for tenant in ["acme", "initech"] {
        let checks = [
            check(&limiter, "per-user", "ada"),
            check(&limiter, "per-tenant", tenant),
        ];
        for allowed in [true, false] {
            assert_eq!(limiter.acquire(&checks).await.is_allowed(), allowed);
        }
    }
}
