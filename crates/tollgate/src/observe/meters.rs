//! Counters of a layer through the `metrics` facade.
//!
//! Labels are rule names, so their number is bounded by the code. Handles are created when a rule is first used: one created
//! before the application has installed its recorder would never count.

use std::sync::{Arc, OnceLock};

use metrics::{Counter, counter};

tollgate_core::metric_names! {
    counter KEYLESS "tollgate_keyless_requests_total" "Requests without a key, whatever the rule does with them."
    counter LOOK_UP_FAILURES "tollgate_look_up_failures_total" "Requests whose key look-up failed or timed out."
    counter REFUNDED "tollgate_refunded_requests_total"
        "Requests refunded because the service did not serve them, or because their response does not count."
    counter MISCONFIGURED "tollgate_misconfigured_total" "Requests without a key because the service is misconfigured."
    counter PREFLIGHTS "tollgate_preflights_total" "CORS preflights passed uncounted."
}

/// In the order of [`Metric`](super::observer::Metric).
const OF_RULE: [&str; 4] = [KEYLESS, LOOK_UP_FAILURES, REFUNDED, MISCONFIGURED];

/// The counters of a rule.
#[derive(Default)]
pub(super) struct RuleMeters(OnceLock<[Counter; 4]>);

impl RuleMeters {
    /// Those of the rule with this name.
    pub(super) fn of(&self, rule: &Arc<str>) -> &[Counter; 4] {
        self.0.get_or_init(|| {
            describe();
            OF_RULE.map(|metric| counter!(metric, "rule" => Arc::clone(rule)))
        })
    }
}

tollgate_core::debug_fields!(RuleMeters);

/// The counter of preflights, which no rule is about.
pub(super) fn preflights() -> Counter {
    describe();
    counter!(PREFLIGHTS)
}
