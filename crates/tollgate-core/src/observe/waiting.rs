//! Requests that wait: how many, for how long, and what becomes of them.

#[cfg(feature = "metrics")]
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "metrics")]
use metrics::{Gauge, counter, gauge, histogram};
#[cfg(feature = "metrics")]
use smallvec::SmallVec;

use crate::{
    check::Check,
    decision::{Decision, Reason},
    rule_set::RuleSet,
};
#[cfg(feature = "metrics")]
use crate::{
    observe::names::{WAIT, WAITING, WAITS, describe},
    rule::Rule,
    wait_queue::rules_to_wait_for,
};

/// A request that waits, for metrics: made by [`Observer::waiting`](crate::observe::Observer::waiting) when it begins to wait.
/// If it is dropped before [`ended`](Self::ended) is called, the request counts as abandoned.
#[must_use = "dropped, the request counts as abandoned"]
pub struct Waiting {
    #[cfg(feature = "metrics")]
    rules: SmallVec<[RuleWait; 1]>,
}

/// A request that waits for one rule, and what has become of it when this is dropped.
#[cfg(feature = "metrics")]
struct RuleWait {
    rule: Arc<str>,
    now: Gauge,
    outcome: Outcome,
    waited: Duration,
}

/// What became of a request that waited.
type Outcome = &'static str;

const ADMITTED: Outcome = "admitted";
const DENIED: Outcome = "denied";
const QUEUE_FULL: Outcome = "queue_full";
const WAIT_EXPIRED: Outcome = "wait_expired";
#[cfg(feature = "metrics")]
const ABANDONED: Outcome = "abandoned";

impl Waiting {
    /// The wait of a request with these checks: under the rules that let it wait, or else under all that are enforced.
    #[cfg(feature = "metrics")]
    pub(super) fn begin(set: &RuleSet, checks: &[Check]) -> Self {
        let rules = rules_to_wait_for(set.rules(), checks);
        let mut rules: SmallVec<[&Rule; 1]> = rules.into_iter().map(|(rule, _)| rule).collect();
        rules.dedup_by_key(|rule| rule.name());
        Self {
            rules: rules.into_iter().map(RuleWait::begin).collect(),
        }
    }

    #[cfg(not(feature = "metrics"))]
    pub(super) fn begin(_set: &RuleSet, _checks: &[Check]) -> Self {
        Self {}
    }

    /// The request was decided after it had waited.
    pub fn ended(self, decision: &Decision, waited: Duration) {
        let outcome = match decision.reason() {
            _ if decision.is_allowed() => ADMITTED,
            Some(Reason::QueueFull) => QUEUE_FULL,
            Some(Reason::WaitExpired) => WAIT_EXPIRED,
            _ => DENIED,
        };
        self.end(outcome, waited);
    }

    /// It was turned away, because the queue was full.
    pub(crate) fn turned_away(self) {
        self.end(QUEUE_FULL, Duration::ZERO);
    }

    /// It has waited in vain.
    pub(crate) fn expired(self) {
        self.end(WAIT_EXPIRED, Duration::ZERO);
    }

    #[cfg(feature = "metrics")]
    fn end(mut self, outcome: Outcome, waited: Duration) {
        for rule in &mut self.rules {
            (rule.outcome, rule.waited) = (outcome, waited);
        }
    }

    #[cfg(not(feature = "metrics"))]
    fn end(self, _outcome: Outcome, _waited: Duration) {}
}

#[cfg(feature = "metrics")]
impl RuleWait {
    /// The series of alerts begin at 0.
    fn begin(rule: &Rule) -> Self {
        describe();
        let rule = rule.shared_name();
        for outcome in [ADMITTED, DENIED, QUEUE_FULL, WAIT_EXPIRED, ABANDONED] {
            count(rule, outcome, 0);
        }
        let now = gauge!(WAITING, "rule" => Arc::clone(rule));
        now.increment(1.0);
        Self {
            rule: Arc::clone(rule),
            now,
            outcome: ABANDONED,
            waited: Duration::ZERO,
        }
    }
}

#[cfg(feature = "metrics")]
impl Drop for RuleWait {
    fn drop(&mut self) {
        self.now.decrement(1.0);
        count(&self.rule, self.outcome, 1);
        if self.outcome == ADMITTED {
            let waits = histogram!(WAIT, "rule" => Arc::clone(&self.rule));
            waits.record(self.waited.as_secs_f64());
        }
    }
}

#[cfg(feature = "metrics")]
fn count(rule: &Arc<str>, outcome: Outcome, times: u64) {
    counter!(WAITS, "rule" => Arc::clone(rule), "outcome" => outcome).increment(times);
}

crate::debug_fields!(Waiting);
