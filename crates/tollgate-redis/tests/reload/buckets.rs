//! Two versions of one bucket, with bursts and rates of their own.
//!
//! What both are admitted in a time `t` is at most the larger burst, and the faster rate times `t`; what one of them is, at
//! most its own burst and the faster rate times `t`.

use std::time::Duration;

use tokio::task::JoinSet;
use tollgate_core::{
    Check, Key, Limiter, MINUTE, ManualClock, Quota, Rule, SECOND, algorithm::Retry,
};
use tollgate_redis::RedisStore;

use crate::support::{blocking_server::RedisServer, child::ask, numbers::Numbers};

const START: u64 = 1_700_000_010_000_000;

/// The old version and the new one: raised, lowered, and a larger burst at a slower rate. No rate is a multiple of another.
fn changes() -> Vec<[Quota; 2]> {
    let quota = |burst, rate, period| Quota::token_bucket(burst).refill(rate, period);
    let raised = [
        [quota(20, 7, SECOND), quota(60, 11, SECOND)],
        [Quota::gcra(13, MINUTE), Quota::gcra(97, MINUTE)],
        [quota(5, 97, SECOND), quota(300, 997, SECOND)],
        [quota(40, 3, SECOND), quota(40, 7, SECOND)],
        [quota(10, 101, SECOND), quota(70, 7, SECOND)],
        [
            Quota::leaky_bucket(50).leak(3, Duration::from_millis(997)),
            Quota::gcra(19, SECOND),
        ],
    ];
    let lowered = raised.map(|[small, large]| [large, small]);
    raised.into_iter().chain(lowered).collect()
}

/// A process on the server, by the clock of the test.
async fn version(
    server: &RedisServer,
    clock: &ManualClock,
    number: usize,
    quota: Quota,
) -> Limiter {
    let address = format!("redis://{}", server.address());
    let store = RedisStore::builder(&address, "buckets", tollgate_redis::Keys::plain())
        .deadline(Duration::from_secs(20))
        .caller_clock(clock, MINUTE)
        .connect()
        .expect("a valid address");
    store.connected().await;
    let rule = Rule::new(format!("rule-{number}"), quota);
    Limiter::new(store, [rule]).expect("a valid rule")
}

fn check(limiter: &Limiter, cost: u64) -> [Check; 1] {
    let check = limiter.check(limiter.rules().rules()[0].name(), &Key::of("client"));
    [check.expect("the rule is there").with_cost(cost)]
}

/// A bucket that has to hold what was admitted, in whole parts of a unit.
#[derive(Debug)]
struct Bound {
    full: u128,
    /// Parts that leave in a µs, and parts of a unit.
    rate: u128,
    unit: u128,
    used: u128,
    at: u64,
}

impl Bound {
    /// As much at once as this version, at the rate of the faster.
    fn of(quota: &Quota, both: &[Quota; 2]) -> Self {
        let [one, other] = both.map(|quota| (u128::from(quota.rate()), quota.period().as_micros()));
        let unit = one.1 * other.1;
        Self {
            full: u128::from(quota.limit()) * unit,
            rate: (one.0 * other.1).max(other.0 * one.1),
            unit,
            used: 0,
            at: START,
        }
    }

    fn admits(&mut self, now: u64, units: u64) -> bool {
        let back = self.rate * u128::from(now - self.at);
        self.used = self.used.saturating_sub(back) + self.unit * u128::from(units);
        self.at = now;
        self.used <= self.full
    }
}

/// The bounds of the two, and of both together.
fn bounds(both: &[Quota; 2]) -> [Bound; 3] {
    let [old, new] = both;
    let larger = if old.limit() > new.limit() { old } else { new };
    [old, new, larger].map(|quota| Bound::of(quota, both))
}

#[tokio::test]
async fn asked_in_turn_they_admit_the_larger_burst_and_the_faster_rate() {
    let server = RedisServer::start(&[]);
    for (number, both) in changes().into_iter().enumerate() {
        let mut numbers = Numbers(number as u64);
        let clock = ManualClock::new(START);
        let mut versions = Vec::new();
        for quota in both {
            versions.push(version(&server, &clock, number, quota).await);
        }
        let mut bounds = bounds(&both);
        let (mut wait, mut now) = (Duration::ZERO, START);
        for step in 0..400 {
            let by = numbers.below(2) as usize;
            let limit = both[by].limit();
            let cost = numbers.of(&[1, 1, 1, limit / 3 + 1, limit]);
            let decision = ask(&versions[by], &check(&versions[by], cost)).await;
            if decision.is_allowed() {
                for place in [by, 2] {
                    let holds = bounds[place].admits(now, cost);
                    assert!(holds, "step {step}: {:?} of {both:?}", bounds[place]);
                }
            } else if let Retry::After(after) = decision.verdicts()[0].retry() {
                wait = after;
            }
            let time = numbers.of(&[Duration::ZERO, Duration::ZERO, wait / 3, wait]);
            clock.advance(time);
            now += time.as_micros() as u64;
        }
    }
}

#[tokio::test]
async fn asked_at_the_same_time_they_admit_the_larger_burst_and_the_faster_rate() {
    const TASKS: u64 = 60;
    let server = RedisServer::start(&[]);
    for (number, both) in changes().into_iter().enumerate() {
        let clock = ManualClock::new(START);
        let mut versions = Vec::new();
        for quota in both {
            versions.push(version(&server, &clock, number, quota).await);
        }
        let mut bounds = bounds(&both);
        let mut now = START;
        for _ in 0..8 {
            let mut tasks = JoinSet::new();
            for task in 0..TASKS {
                let by = task as usize % 2;
                let limiter = versions[by].clone();
                let cost = 1 + task % 7;
                tasks.spawn(async move {
                    let allowed = ask(&limiter, &check(&limiter, cost)).await.is_allowed();
                    (by, if allowed { cost } else { 0 })
                });
            }
            while let Some(layout) = tasks.join_next().await {
                let (by, units) = layout.expect("a task asks to the end");
                for place in [by, 2] {
                    let holds = bounds[place].admits(now, units);
                    assert!(holds, "{:?} of {both:?}", bounds[place]);
                }
            }
            clock.advance(Duration::from_micros(333_331));
            now += 333_331;
        }
    }
}

#[tokio::test]
async fn a_version_is_told_the_tick_at_which_what_the_other_has_used_is_paid_back() {
    let server = RedisServer::start(&[]);
    for (number, both) in changes().into_iter().enumerate() {
        let clock = ManualClock::new(START);
        let mut versions = Vec::new();
        for quota in both {
            versions.push(version(&server, &clock, number, quota).await);
        }
        let [old, new] = &versions[..] else {
            unreachable!("there are two")
        };
        assert!(ask(old, &check(old, both[0].limit())).await.is_allowed());
        // What does not fit either way.
        let cost = both[1].limit();
        let decision = ask(new, &check(new, cost)).await;
        let Retry::After(wait) = decision.verdicts()[0].retry() else {
            panic!("{decision:?} to {both:?}")
        };
        clock.advance(wait - Duration::from_micros(1));
        let look = new.peek(&check(new, cost)).await;
        assert!(!look.is_allowed(), "{both:?}");
        clock.advance(Duration::from_micros(1));
        assert!(ask(new, &check(new, cost)).await.is_allowed(), "{both:?}");
    }
}
