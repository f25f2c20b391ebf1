//! What is given back, taken afterwards or reset, of rules that are not exact.

use tollgate_core::{Check, Consistency, Key, Limiter, MAX_PERIOD, Quota, Rule, Source};
use tollgate_test_servers::redis_server::RedisServer;

use crate::{
    load::{LEASED, eventual},
    service::{Service, check},
};

/// In any run of these tests nothing comes back by time.
const LIMIT: u64 = 1_000;

/// What of each consistency decides alone, for buckets and windows.
fn rules() -> impl Iterator<Item = (Rule, Source)> {
    let quotas = [
        Quota::gcra(LIMIT, MAX_PERIOD),
        Quota::fixed_window(LIMIT, MAX_PERIOD),
        Quota::sliding_window(LIMIT, MAX_PERIOD),
    ];
    quotas.into_iter().flat_map(|quota| {
        let name = quota.algorithm().name();
        let rule = |suffix: &str, consistency: Consistency| {
            Rule::new(format!("{name}-{suffix}"), quota).consistency(consistency)
        };
        [
            (rule("leased", LEASED), Source::Lease),
            (rule("eventual", eventual(20)), Source::Local),
        ]
    })
}

struct Client {
    service: Service,
    limiter: Limiter,
    check: Check,
}

/// For each rule, a client with units on lease or unreported, and the server.
async fn each(act: impl AsyncFn(&str, Client)) {
    let server = RedisServer::start(&[]).await;
    for (rule, source) in rules() {
        let mut service = Service::start(&server.url()).await;
        let limiter = service.limiter([rule.clone()]);
        let check = check(&limiter, rule.name());
        service.take_until(&limiter, check, source).await;
        act(
            rule.name(),
            Client {
                service,
                limiter,
                check,
            },
        )
        .await;
    }
}

#[tokio::test]
async fn what_is_given_back_and_taken_afterwards_counts() {
    each(async |name, mut client| {
        let (limiter, check) = (&client.limiter, client.check);
        let mut round = 0;
        loop {
            round += 1;
            let decision = client.service.take(limiter, check, 3).await;
            if !decision.is_allowed() {
                break;
            }
            let taken = [check.with_cost(3)];
            let ticket = limiter.ticket(&taken, &decision);
            match round % 5 {
                0 => {
                    ticket.cancel();
                    client.service.net -= 3;
                }
                1 => {
                    ticket.refund(2);
                    client.service.net -= 2;
                }
                // Only where they are surely there.
                2 if decision.verdicts()[0].remaining() > 100 => {
                    ticket.charge(4);
                    client.service.net += 4;
                }
                3 => drop(ticket.cancel_on_drop()),
                _ => ticket.keep(),
            }
            if round % 5 == 3 {
                client.service.net -= 3;
            }
        }
        client.service.drain(limiter, check).await;
        assert_eq!(client.service.net, LIMIT, "{name}");
    })
    .await;
}

#[tokio::test]
async fn after_a_reset_all_of_it_is_there_and_nothing_of_what_was_held() {
    each(async |name, mut client| {
        let (limiter, check) = (&client.limiter, client.check);
        let reset = limiter.reset(name, &Key::of("client"));
        reset
            .expect("the rule is there")
            .await
            .expect("Redis answers");
        client.service.net = 0;
        client.service.drain(limiter, check).await;
        assert_eq!(client.service.net, LIMIT, "{name}");
    })
    .await;
}
