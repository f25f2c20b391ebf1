//! A rule for each answer to a store failure, and what has to come out of it.

use tollgate_core::{Decision, MAX_PERIOD, OnStoreError, Quota, Reason, Rule, Source};

/// Units of each rule in ten years: each loss of a state is a fresh quota, and nothing else is.
pub const LIMIT: u64 = 300;
/// Units that an instance lets pass of the rule with a cap.
pub(crate) const CAP: u64 = 40;
/// Instances of the service.
pub const INSTANCES: u64 = 2;

/// How many rules there are.
pub const RULES: usize = 5;

/// One rule for each answer, each of another algorithm.
pub fn rules() -> [Rule; RULES] {
    let cap = OnStoreError::Cap(Quota::fixed_window(CAP, MAX_PERIOD));
    [
        Rule::new("deny", Quota::gcra(LIMIT, MAX_PERIOD)).on_store_error(OnStoreError::Deny),
        Rule::new("allow", Quota::fixed_window(LIMIT, MAX_PERIOD))
            .on_store_error(OnStoreError::Allow),
        Rule::new("cap", Quota::sliding_log(LIMIT, MAX_PERIOD)).on_store_error(cap),
        Rule::new("share", Quota::sliding_window(LIMIT, MAX_PERIOD))
            .on_store_error(OnStoreError::LocalShare),
        Rule::new("degraded", Quota::sliding_buckets(LIMIT, MAX_PERIOD))
            .on_store_error(OnStoreError::Degraded),
    ]
}

/// Who decided a request of one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Redis,
    /// The rule's answer to a store failure.
    Alone,
}

/// Who decided, after a look at whether it is what the rule says.
///
/// # Panics
///
/// The store failed, and what came out is not the rule's answer to that.
pub(crate) fn decided(rule: &Rule, decision: &Decision) -> By {
    let verdict = decision.verdicts()[0];
    if verdict.source() == Source::Store && verdict.has_numbers() {
        return By::Redis;
    }
    let answer = rule.store_error_answer();
    let right = match answer {
        OnStoreError::Deny => decision.reason() == Some(Reason::StoreFailed),
        OnStoreError::Allow | OnStoreError::Degraded => {
            decision.is_allowed() && decision.is_degraded()
        }
        // By counting here, or because nothing is left of a share.
        _ => verdict.source() == Source::Fallback && !decision.is_degraded(),
    };
    assert!(right, "the rule says {answer:?}: {decision:?}");
    By::Alone
}

/// How much may pass of a rule while the store fails, of all instances; `None` where it lets pass.
pub(crate) fn most_alone(rule: &Rule) -> Option<u64> {
    match rule.store_error_answer() {
        OnStoreError::Deny => Some(0),
        OnStoreError::Cap(cap) => Some(cap.limit() * INSTANCES),
        OnStoreError::LocalShare => Some(rule.quota().limit().max(INSTANCES)),
        _ => None,
    }
}
