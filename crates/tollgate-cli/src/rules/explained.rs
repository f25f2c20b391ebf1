//! What rules do with a request, for people and programs.

use serde_json::{Value, json};
use tollgate_rules::operators::{Explanation, QuotaOrigin};

use crate::time_text;

/// For programs. The key itself is not part of it.
pub(crate) fn explained_json(explained: &Explanation) -> Value {
    let (until, reason) = match &explained.origin {
        QuotaOrigin::Override { until, reason, .. } => (until.map(time_text::time), reason.clone()),
        _ => (None, None),
    };
    json!({
        "rule": explained.rule,
        "by": explained.by,
        "counts": explained.counts(),
        "outcome": explained.outcome.to_string(),
        "limit": explained.quota.to_string(),
        "limit_from": explained.origin.to_string(),
        "until": until,
        "reason": reason,
        "units": explained.units,
        "waits_seconds": explained.limiter_rule.at_most_wait().map(|at_most| at_most.as_secs_f64()),
        "debt": explained.limiter_rule.debt_of(),
        "takes_credits": explained.limiter_rule.has_credits(),
        "count_if": explained.counts_if,
        "switches": explained.switches,
        "client": explained.key_hash.map(|hash| format!("{hash:032x}")),
        "shares_the_bucket_without_key": explained.is_shared(),
    })
}
