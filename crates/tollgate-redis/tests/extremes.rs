//! Rates from one a day to a million a second, to the microsecond, as the script counts them.

mod support;

use std::{num::NonZeroU32, time::Duration};

use tollgate_core::{
    Check, DAY, Decision, HOUR, Key, Limiter, ManualClock, OnStoreError, Quota, Rule,
    RuleErrorKind, SECOND, algorithm::Retry,
};
use tollgate_redis::{Keys, RedisStore};

use crate::support::{
    blocking_server::RedisServer,
    child::{ask, patient_store},
};

/// 2026, in microseconds.
const NOW: u64 = 1_790_000_000_000_000;
const TICK: Duration = Duration::from_micros(1);

/// One rule, by a clock that stands.
struct Counted {
    _server: RedisServer,
    clock: ManualClock,
    limiter: Limiter,
    check: Check,
}

impl Counted {
    async fn under(quota: Quota) -> Self {
        let server = RedisServer::start(&[]);
        let clock = ManualClock::new(NOW);
        // The server's clock goes on while this one stands.
        let margin = HOUR;
        let store =
            RedisStore::builder(format!("redis://{}", server.address()), "x", Keys::plain())
                .caller_clock(clock.clone(), margin)
                .deadline(20 * SECOND)
                .connect()
                .expect("a valid address");
        store.connected().await;
        let rule = Rule::new("rate", quota).on_store_error(OnStoreError::Deny);
        let limiter =
            Limiter::with_instances(store, [rule], NonZeroU32::MIN).expect("a valid rule");
        let check = limiter.check("rate", &Key::of("client"));
        let check = check.expect("the rule is there");
        Self {
            _server: server,
            clock,
            limiter,
            check,
        }
    }

    async fn take(&self, units: u64) -> Decision {
        ask(&self.limiter, &[self.check.with_cost(units)]).await
    }

    /// Waits for exactly as long as a denial of `units` says.
    async fn wait_for(&self, units: u64) -> Duration {
        let denied = self.take(units).await;
        let Retry::After(wait) = denied.verdicts()[0].retry() else {
            panic!("{denied:?} says no time");
        };
        self.clock.advance(wait - TICK);
        assert!(!self.take(units).await.is_allowed(), "a tick too early");
        self.clock.advance(TICK);
        wait
    }
}

#[tokio::test]
async fn one_a_day_is_one_a_day() {
    let counted = Counted::under(Quota::gcra(1, DAY)).await;
    for _ in 0..10 {
        assert!(counted.take(1).await.is_allowed());
        assert_eq!(counted.wait_for(1).await, DAY);
    }
}

#[tokio::test]
async fn a_million_a_second_is_one_each_microsecond() {
    let counted = Counted::under(Quota::gcra(1_000_000, SECOND)).await;
    // The burst passes at once, and no unit more.
    assert!(counted.take(1_000_000).await.is_allowed());
    assert_eq!(counted.wait_for(1).await, TICK);
    assert!(counted.take(1).await.is_allowed());
    assert_eq!(counted.wait_for(999).await, 999 * TICK);
    assert!(counted.take(999).await.is_allowed());
    assert!(!counted.take(1).await.is_allowed());
    counted.clock.advance(DAY);
    // A pause gives a burst and no more.
    assert!(counted.take(1_000_000).await.is_allowed());
    assert!(!counted.take(1).await.is_allowed());
}

#[tokio::test]
async fn a_rate_that_does_not_divide_a_second_loses_nothing_in_the_long_run() {
    for (rate, period, units) in [(7, SECOND, 1), (999_983, SECOND, 1_000)] {
        let counted = Counted::under(Quota::gcra(rate, period).burst(10 * units)).await;
        // A bucket that is never full again wastes no time.
        assert!(counted.take(10 * units).await.is_allowed());
        let began = counted.clock.now();
        const TURNS: u64 = 500;
        for _ in 0..TURNS {
            counted.wait_for(units).await;
            assert!(counted.take(units).await.is_allowed());
        }
        // As long as the units take by the rate, rounded up to the tick once.
        let took = u128::from(counted.clock.now() - began);
        let whole = u128::from(TURNS * units) * period.as_micros();
        assert_eq!(took, whole.div_ceil(u128::from(rate)), "{rate}");
    }
}

#[tokio::test]
async fn a_log_of_seventy_thousand_is_refused_with_what_would_be_right() {
    let server = RedisServer::start(&[]);
    let store = patient_store(&format!("redis://{}", server.address())).await;
    let error = Limiter::new(
        store,
        [Rule::new("codes", Quota::sliding_log(70_000, HOUR))],
    );
    let error = error.expect_err("it would stall the server");
    assert_eq!(error.kind(), RuleErrorKind::Quota);
    for part in ["codes", "70000", "Quota::sliding_buckets"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}
