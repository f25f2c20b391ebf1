//! Requests that wait: how many, for how long, and what becomes of them.

use std::{sync::Arc, time::Duration};

use metrics::{Gauge, counter, gauge, histogram};
use smallvec::SmallVec;

use crate::{
    check::Check,
    decision::Reason,
    observe::names::{WAIT, WAITING, WAITS, describe},
    rule::Rule,
    rule_set::RuleSet,
    wait_queue::rules_to_wait_for,
};

/// What operators are told of a request that waits. If this is dropped before [`ended`](Self::ended) is called, it counts as abandoned.
#[must_use = "dropped, the request counts as abandoned"]
pub(crate) struct WaitReport(SmallVec<[RuleWait; 1]>);

/// A request that waits for one rule, and what has become of it when this is dropped.
struct RuleWait {
    rule: Arc<str>,
    now: Gauge,
    outcome: &'static str,
    waited: Duration,
}

const ADMITTED: &str = "admitted";
const DENIED: &str = "denied";
const QUEUE_FULL: &str = "queue_full";
const WAIT_EXPIRED: &str = "wait_expired";
const ABANDONED: &str = "abandoned";

impl WaitReport {
    /// The wait of a request with these checks: under the rules that let it wait, or else under all that are enforced.
    pub(crate) fn begin(set: &RuleSet, checks: &[Check]) -> Self {
        let rules = rules_to_wait_for(set.rules(), checks);
        let mut rules: SmallVec<[&Rule; 1]> = rules.into_iter().map(|(rule, _)| rule).collect();
        rules.dedup_by_key(|rule| rule.name());
        Self(rules.into_iter().map(RuleWait::begin).collect())
    }

    /// The request was allowed, or denied for a reason.
    pub(crate) fn ended(mut self, denied_for: Option<Reason>, waited: Duration) {
        let outcome = match denied_for {
            None => ADMITTED,
            Some(Reason::QueueFull) => QUEUE_FULL,
            Some(Reason::WaitExpired) => WAIT_EXPIRED,
            Some(_) => DENIED,
        };
        for rule in &mut self.0 {
            (rule.outcome, rule.waited) = (outcome, waited);
        }
    }
}

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

fn count(rule: &Arc<str>, outcome: &'static str, times: u64) {
    counter!(WAITS, "rule" => Arc::clone(rule), "outcome" => outcome).increment(times);
}
