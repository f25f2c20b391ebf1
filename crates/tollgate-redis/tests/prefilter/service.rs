//! A store in this process, by a clock that stands until it is moved: what follows is the same in every run.

use std::time::Duration;

use tollgate_core::{Check, Decision, Key, Limiter, ManualClock, OnStoreError, Rule, Source};
use tollgate_redis::{Keys, RedisStore, RedisStoreBuilder};

use tollgate_test_servers::redis_server::PATIENCE;

/// Longer than the clock is moved and the time that tests take.
const MARGIN: Duration = Duration::from_secs(100_000_000);

pub(crate) const NOW: u64 = 1_790_000_000_000_000;

#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) store: RedisStore,
    pub(crate) clock: ManualClock,
    /// Units admitted and not given back, over all limiters.
    pub(crate) net: u64,
}

impl Service {
    pub(crate) async fn start(address: &str) -> Self {
        Self::start_with(address, Keys::plain(), |builder| builder).await
    }

    pub(crate) async fn start_with(
        address: &str,
        keys: Keys,
        set: impl FnOnce(RedisStoreBuilder) -> RedisStoreBuilder,
    ) -> Self {
        let clock = ManualClock::new(NOW);
        let builder = RedisStore::builder(address, "prefilter", keys);
        let store = set(builder)
            .caller_clock(&clock, MARGIN)
            .deadline(PATIENCE)
            .connect()
            .expect("a valid address");
        store.connected().await;
        Self {
            store,
            clock,
            net: 0,
        }
    }

    pub(crate) fn limiter(&self, rules: impl IntoIterator<Item = Rule>) -> Limiter {
        let rules = rules
            .into_iter()
            .map(|rule| rule.on_store_error(OnStoreError::Deny));
        Limiter::new(self.store.clone(), rules).expect("valid rules")
    }

    /// A millisecond later, asks for so many units.
    pub(crate) async fn take(&mut self, limiter: &Limiter, check: Check, units: u64) -> Decision {
        self.clock.advance(Duration::from_millis(1));
        let decision = limiter.acquire(&[check.with_cost(units)]).await;
        assert_ne!(
            decision.verdicts()[0].source(),
            Source::Fallback,
            "{decision:?}"
        );
        if decision.is_allowed() {
            self.net += units;
        }
        decision
    }

    /// Takes unit by unit until a decision is made by this source.
    pub(crate) async fn take_until(&mut self, limiter: &Limiter, check: Check, source: Source) {
        for _ in 0..200 {
            let decision = self.take(limiter, check, 1).await;
            assert!(decision.is_allowed(), "{decision:?}");
            if decision.verdicts()[0].source() == source {
                return;
            }
        }
        panic!("nothing of 200 requests was decided by {source:?}");
    }

    /// Takes unit by unit until nothing is left.
    pub(crate) async fn drain(&mut self, limiter: &Limiter, check: Check) {
        while self.take(limiter, check, 1).await.is_allowed() {}
    }
}

/// The one client.
pub(crate) fn check(limiter: &Limiter, rule: &str) -> Check {
    let check = limiter.check(rule, &Key::of("client"));
    check.expect("the rule is there")
}
