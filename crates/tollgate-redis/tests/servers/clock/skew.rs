//! Two processes tell the time by clocks of their own, which differ.
//!
//! What both are admitted in a time `t`, if their clocks differ by `d`, is at most what one would be in `t + d`, and
//! beyond that:
//!
//! ```text
//! of a fixed or a sliding window           nothing, while d ≤ window
//! of a log or sub-buckets                  as of a window that is shorter by d, while d < window
//! of a bucket                              as if a unit came back earlier by d, while d is less than a unit takes
//! ```
//!
//! The process that is behind takes what the other has written for a clock that went back, and each of its denials repairs
//! it. Where `d` is larger than that, there is no bound.

use std::time::Duration;

use tollgate_core::{AlgorithmKind, Clock, Key, Limiter, MINUTE, ManualClock, Quota, Rule, SECOND};
use tollgate_redis::RedisStore;
use tollgate_test_servers::blocking_server::RedisServer;
use tollgate_test_services::{
    patient::acquire,
    quotas::{every_algorithm, horizon},
};

const LIMIT: u64 = 10;
/// How long both ask, in windows, and how often in each.
const WINDOWS: u32 = 12;
const ROUNDS: u32 = 40;

const START: u64 = 1_700_000_010_000_000;

/// A process with a clock of its own.
struct Process {
    clock: ManualClock,
    limiter: Limiter,
}

impl Process {
    async fn start(server: &RedisServer, now: u64, margin: Duration, rule: Rule) -> Self {
        let clock = ManualClock::new(now);
        let address = format!("redis://{}", server.address());
        let store = RedisStore::builder(&address, "skew", tollgate_redis::Keys::plain())
            .deadline(Duration::from_secs(20))
            .caller_clock(Clock::from(&clock), margin)
            .connect()
            .expect("a valid address");
        store.connected().await;
        let limiter = Limiter::new(store, [rule]).expect("a valid rule");
        Self { clock, limiter }
    }

    /// How many single units it is admitted, until it has so many or is denied.
    async fn takes(&self, most: u64) -> u64 {
        let rule = self.limiter.rules().rules()[0].name();
        let check = self.limiter.check(rule, &Key::of("client"));
        let check = [check.expect("the rule is there")];
        let mut taken = 0;
        while taken < most && acquire(&self.limiter, &check).await.is_allowed() {
            taken += 1;
        }
        taken
    }
}

/// What both may be admitted in `time`, from an instant on at which nothing was used: see above.
fn most(quota: &Quota, time: Duration, ahead: Duration) -> u64 {
    let [window, time, ahead] = [quota.window(), time, ahead].map(|time| time.as_micros());
    let (limit, time) = (u128::from(quota.limit()), time + ahead);
    let most = match quota.algorithm() {
        // As many aligned windows as the time touches. A sliding window has no more in any of them.
        AlgorithmKind::FixedWindow | AlgorithmKind::SlidingWindow => {
            let start = u128::from(START);
            limit * ((start + time) / window - start / window + 1)
        }
        // As many as fit behind each other.
        AlgorithmKind::SlidingLog | AlgorithmKind::SlidingBuckets => {
            limit * (time / (window - ahead) + 1)
        }
        _ => limit + time / (window / limit - ahead),
    };
    u64::try_from(most).expect("a few windows")
}

/// In the first window each takes so many units at a time; if these are not all, four times.
async fn holds_with(ahead: Duration, window: Duration, at_first: u64) {
    let server = RedisServer::start(&[]);
    for (number, quota) in every_algorithm(LIMIT, window).into_iter().enumerate() {
        let rule = || Rule::new(format!("rule-{number}"), quota);
        let early = START + ahead.as_micros() as u64;
        let slow = Process::start(&server, START, ahead, rule()).await;
        let fast = Process::start(&server, early, ahead, rule()).await;
        let (mut admitted, mut time) = (0, Duration::ZERO);
        let step = window / ROUNDS;
        for round in 0..WINDOWS * ROUNDS {
            // Either may be the first to ask.
            let both = if round % 3 == 0 {
                [&fast, &slow]
            } else {
                [&slow, &fast]
            };
            let units = match round {
                ROUNDS.. => LIMIT,
                _ if round % 10 > 0 && at_first < LIMIT => 0,
                _ => at_first,
            };
            for process in both {
                admitted += process.takes(units).await;
            }
            let most = most(&quota, time, ahead);
            assert!(
                admitted <= most,
                "{admitted} of {most} after {time:?}: {quota:?}"
            );
            for process in both {
                process.clock.advance(step);
            }
            time += step;
        }
        // The one that is behind is told to wait by the difference longer, and not for ever.
        slow.clock.advance(horizon(&quota) + ahead);
        assert_eq!(slow.takes(LIMIT).await, LIMIT, "{quota:?}");
    }
}

#[tokio::test]
async fn clocks_that_differ_by_a_second_cost_what_is_stated() {
    holds_with(SECOND, 30 * SECOND, LIMIT).await;
}

#[tokio::test]
async fn clocks_that_differ_by_a_minute_cost_what_is_stated() {
    holds_with(MINUTE, 30 * MINUTE, LIMIT).await;
}

#[tokio::test]
async fn so_do_clocks_that_differ_by_several_sub_buckets_if_clients_come_evenly() {
    holds_with(2 * SECOND, 30 * SECOND, 1).await;
}
