//! One process on a server, beside a store in memory by the same clock.

use std::time::Duration;

use tollgate_core::{Key, Limiter, MINUTE, ManualClock, MemoryStore, Quota, Rule, SECOND, Source};
use tollgate_prefilter::LeaseTerms;
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

    fn left(&self) -> u64 {
        let check = self.0.check("rule", &Key::of("client"));
        let check = check.expect("the rule is there").with_cost(0);
        let decision = self.0.peek(&[check]).ready();
        decision.expect("memory answers at once").verdicts()[0].remaining()
    }
}

/// A unit or two of a lease are not handed back, now and then.
const FEW: u64 = 10;

/// What a history has seen.
#[derive(Debug, Default)]
struct Seen {
    allowed: u64,
    granted: u64,
    denied: u64,
    /// The most units that memory had left beside those that were denied.
    idle: u64,
}

/// A random history of a client. Memory takes what was admitted; never is it asked for more than it has.
///
/// In a calm one the clock makes no leaps. In a leap, leases expire without being returned.
async fn history(address: &str, seed: u64, limiters: u64, calm: bool) -> Seen {
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
    let mut seen = Seen::default();
    for step in 0..STEPS {
        let passed = match numbers.below(12) {
            0 if !calm => numbers.below(20_000_000),
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
        seen.granted += u64::from(source == Source::Lease);
        if decision.is_allowed() {
            seen.allowed += 1;
            assert!(twin.takes(units), "above the limit: {at}");
        } else {
            seen.denied += 1;
            seen.idle = seen.idle.max(twin.left().saturating_sub(units));
        }
    }
    seen
}

#[tokio::test]
async fn nothing_is_admitted_that_memory_would_deny() {
    let server = RedisServer::start(&[]).await;
    let mut granted = 0;
    for seed in 0..HISTORIES {
        let seen = history(&server.url(), seed, 1 + seed % 3, false).await;
        assert!(seen.allowed > 0, "seed {seed}: {seen:?}");
        granted += seen.granted;
        server.command(&["FLUSHALL"]).await;
    }
    assert!(
        granted > HISTORIES * 10,
        "{granted} requests were answered from leases"
    );
}

/// Units that are in line at once, at most, or were lost there a moment ago.
fn line(quota: &Quota) -> u64 {
    let terms = LeaseTerms::new(quota, 100).expect("it is granted");
    terms.schedule().map_or(0, |schedule| {
        schedule.horizon() * quota.rate() / quota.period().as_micros() as u64
    })
}

/// Whoever asks hands back what it holds. What it does not get back is its turn in the line, or the rest of a lease of a window
/// that is over.
#[tokio::test]
async fn a_client_of_one_limiter_is_denied_what_is_queued_and_a_few_units_too_early_at_most() {
    let server = RedisServer::start(&[]).await;
    for seed in 0..HISTORIES {
        let seen = history(&server.url(), seed, 1, true).await;
        let line = line(&quotas()[seed as usize % quotas().len()]);
        assert!(seen.idle <= line + FEW, "seed {seed}: {seen:?}");
        server.command(&["FLUSHALL"]).await;
    }
}

#[tokio::test]
async fn a_client_of_several_limiters_is_denied_what_the_others_hold_and_a_few_units_more() {
    let server = RedisServer::start(&[]).await;
    for seed in 0..HISTORIES {
        let seen = history(&server.url(), seed, 3, true).await;
        let quota = quotas()[seed as usize % quotas().len()];
        let held = quota.limit() / 10 + 2 * line(&quota);
        assert!(seen.idle <= held + FEW, "seed {seed}: {seen:?}");
        server.command(&["FLUSHALL"]).await;
    }
}
