//! One process on a server, beside a store in memory by the same clock.

use std::time::Duration;

use tollgate_core::{Key, Limiter, MINUTE, ManualClock, MemoryStore, Quota, Rule, SECOND, Source};
use tollgate_test_servers::{numbers::Numbers, redis_server::RedisServer};

use crate::{
    load::LEASED,
    service::{NOW, Service},
};

const HISTORIES: u64 = 40;
const STEPS: u64 = 300;

fn quotas() -> [Quota; 7] {
    [
        Quota::gcra(100, SECOND),
        Quota::token_bucket(1_000).refill(7, SECOND),
        Quota::token_bucket(97).refill(99_991, MINUTE),
        Quota::gcra(6_000, MINUTE),
        Quota::leaky_bucket(50).leak(3, Duration::from_millis(10)),
        Quota::fixed_window(200, SECOND),
        Quota::sliding_window(200, 3 * SECOND),
    ]
}

/// Takes from memory what the process was admitted.
#[derive(Debug)]
struct Twin(Limiter);

impl Twin {
    fn new(clock: &ManualClock, rule: &Rule) -> Self {
        let memory = MemoryStore::builder().clock(clock).build();
        let rule = rule.clone().consistency(tollgate_core::Consistency::Exact);
        Self(Limiter::new(memory, [rule]).expect("a valid rule"))
    }

    fn takes(&self, units: u64) -> bool {
        let check = self.0.check("rule", &Key::of("client"));
        let check = check.expect("the rule is there").with_cost(units);
        let decision = self.0.acquire(&[check]).ready();
        decision.expect("memory answers at once").is_allowed()
    }
}

/// A random history of a client. Memory takes what was admitted; never is it asked for more than it has.
/// In a leap of the clock, leases expire without being returned. Gives how many requests passed, and how many were answered from leases.
async fn history(address: &str, seed: u64, limiters: u64) -> (u64, u64) {
    let mut numbers = Numbers(seed);
    let quota = quotas()[seed as usize % quotas().len()];
    let rule = Rule::new("rule", quota).consistency(LEASED);
    let service = Service::start(address).await;
    service.clock.set(NOW + seed * 1_000_000_000_000);
    let twin = Twin::new(&service.clock, &rule);
    let limiters: Vec<_> = (0..limiters)
        .map(|_| service.limiter([rule.clone()]))
        .collect();
    let unit = (quota.period().as_micros() as u64 / quota.rate()).max(1);
    let key = Key::of("client");
    let (mut allowed, mut granted) = (0, 0);
    for step in 0..STEPS {
        let passed = match numbers.below(12) {
            0 => numbers.below(20_000_000),
            1 => 0,
            2 => numbers.below(unit * 40),
            _ => numbers.below(unit * 3),
        };
        service.clock.advance(Duration::from_micros(passed));
        let units = 1 + numbers.below(3) * numbers.below(1 + quota.limit() / 10);
        let limiter = &limiters[numbers.below(limiters.len() as u64) as usize];
        let check = limiter.check("rule", &key).expect("the rule is there");
        let decision = limiter.acquire(&[check.with_cost(units)]).await;
        let at = format_args!("seed {seed}, step {step}, {quota:?}, {units} units, {decision:?}");
        let source = decision.verdicts()[0].source();
        assert_ne!(source, Source::Fallback, "{at}");
        granted += u64::from(source == Source::Lease);
        if decision.is_allowed() {
            allowed += 1;
            assert!(twin.takes(units), "above the limit: {at}");
        }
    }
    (allowed, granted)
}

#[tokio::test]
async fn nothing_is_admitted_that_memory_would_deny() {
    let server = RedisServer::start(&[]).await;
    let mut granted = 0;
    for seed in 0..HISTORIES {
        let (allowed, from_leases) = history(&server.url(), seed, 1 + seed % 3).await;
        assert!(allowed > 0, "seed {seed}");
        granted += from_leases;
        server.command(&["FLUSHALL"]).await;
    }
    assert!(
        granted > HISTORIES * 10,
        "{granted} requests were answered from leases"
    );
}
