//! The store under test.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};
use tollgate_core::{
    Check, Decision, Key, Limiter, ManualClock, Outcome, Quota, Rule, RuleError, Source, Store,
    Tick,
};

use crate::quotas::every_algorithm;

/// Where the clock of a case stands at first: not at the start of any window.
const START: Tick = 1_700_000_123_456_789;

/// A new, empty store, and the clock it follows.
#[derive(Debug)]
pub struct Subject {
    store: Arc<dyn Store>,
    clock: ManualClock,
}

impl Subject {
    /// A clock for a new store.
    #[must_use]
    pub fn new_clock() -> ManualClock {
        ManualClock::new(START)
    }

    /// A store that follows `clock`, or, in cases that do not move the time, any other.
    pub fn new(store: impl Store, clock: ManualClock) -> Self {
        Self {
            store: Arc::new(store),
            clock,
        }
    }

    /// The clock.
    #[must_use]
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    pub(crate) fn limiter(&self, rules: impl IntoIterator<Item = Rule>) -> TestLimiter {
        self.replacing(&[], rules)
            .expect("a store serves every algorithm")
    }

    /// A limiter of one rule for each algorithm, with the name of its rule.
    pub(crate) fn each(
        &self,
        limit: u64,
    ) -> impl Iterator<Item = (TestLimiter, &'static str, Quota)> {
        every_algorithm(limit).into_iter().map(|quota| {
            let name = quota.algorithm().name();
            (self.limiter([Rule::new(name, quota)]), name, quota)
        })
    }

    /// A limiter in the place of others, or why there is none.
    pub(crate) fn replacing(
        &self,
        replaced: &[&TestLimiter],
        rules: impl IntoIterator<Item = Rule>,
    ) -> Result<TestLimiter, RuleError> {
        let replaced: Vec<_> = replaced.iter().map(|old| &old.0).collect();
        let limiter = Limiter::replacing(&replaced, Arc::clone(&self.store), rules)?;
        Ok(TestLimiter(limiter))
    }
}

/// A limiter with short methods.
#[derive(Clone, Debug)]
pub(crate) struct TestLimiter(pub(crate) Limiter);

impl TestLimiter {
    pub(crate) fn check(&self, rule: &str, who: &str, cost: u64) -> Check {
        self.0
            .check(rule, &Key::of([who]))
            .expect("the rule is there")
            .with_cost(cost)
    }

    /// The check of a request with an id.
    pub(crate) fn identified(&self, rule: &str, who: &str, cost: u64, id: &str) -> Check {
        let check = self.check(rule, who, cost);
        let check = self.0.with_id(check, &Key::of([id]));
        check.expect("the rule is idempotent")
    }

    pub(crate) fn planned(&self, rule: &str, plan: &str, who: &str, cost: u64) -> Check {
        self.0
            .check_with_plan(rule, plan, &Key::of([who]))
            .expect("the plan is there")
            .with_cost(cost)
    }

    pub(crate) fn with_quota(&self, rule: &str, quota: Quota, who: &str, cost: u64) -> Check {
        let quota = self.0.quota_for(rule, quota);
        let check = self.check(rule, who, cost);
        check.with_quota(quota.expect("a quota that the rule takes"))
    }

    pub(crate) async fn acquire(&self, checks: &[Check]) -> Decision {
        let decision = self.0.acquire(checks).await;
        assert_ne!(decision.outcome(), Outcome::Failed, "{decision:?}");
        // What is counted in this process instead is not what the case is about.
        let mut verdicts = decision.verdicts().iter();
        assert!(
            verdicts.all(|verdict| verdict.source() != Source::Fallback),
            "the store has failed: {decision:?}"
        );
        decision
    }

    pub(crate) async fn peek(&self, checks: &[Check]) -> Decision {
        let decision = self.0.peek(checks).await;
        assert_ne!(decision.outcome(), Outcome::Failed, "{decision:?}");
        decision
    }

    pub(crate) async fn take(&self, rule: &str, who: &str, cost: u64) -> Decision {
        self.acquire(&[self.check(rule, who, cost)]).await
    }

    /// Whether `cost` units of `rule` were taken.
    pub(crate) async fn took(&self, rule: &str, who: &str, cost: u64) -> bool {
        self.take(rule, who, cost).await.is_allowed()
    }

    /// The units that are left.
    pub(crate) async fn left(&self, rule: &str, who: &str) -> u64 {
        self.peek(&[self.check(rule, who, 0)]).await.verdicts()[0].remaining()
    }

    /// Waits until a settlement, which runs in the background, has left `units`.
    pub(crate) async fn settled(
        &self,
        rule: &str,
        who: &str,
        units: u64,
        quota: &dyn std::fmt::Debug,
    ) {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut left = self.left(rule, who).await;
        while left != units {
            assert!(
                Instant::now() < deadline,
                "{left} units are left and not {units}: {quota:?}"
            );
            sleep(Duration::from_millis(1)).await;
            left = self.left(rule, who).await;
        }
    }
}
