//! The names of the metrics, and what they are.

use metrics::Unit;

pub(super) const REQUESTS: &str = "tollgate_requests_total";
pub(super) const UNITS: &str = "tollgate_cost_units_total";
pub(super) const NEAR_LIMIT: &str = "tollgate_near_limit_total";
pub(super) const BURST_EXHAUSTED: &str = "tollgate_burst_exhausted_total";
pub(super) const HOT_KEYS: &str = "tollgate_hot_keys_total";
pub(super) const DIFFERENCES: &str = "tollgate_shadow_differences_total";
pub(super) const RETRY_AFTER: &str = "tollgate_retry_after_seconds";
pub(super) const REMAINING: &str = "tollgate_remaining_ratio";
pub(super) const CHECK_DURATION: &str = "tollgate_check_duration_seconds";
pub(super) const TRACKED_KEYS: &str = "tollgate_tracked_keys";
pub(super) const TRACKED_BYTES: &str = "tollgate_tracked_bytes";
pub(super) const EVICTED_LIVE: &str = "tollgate_evicted_live_total";
pub(super) const EVICTED_BLOCKS: &str = "tollgate_evicted_blocks_total";
pub(super) const BLOCKS: &str = "tollgate_blocks_total";
pub(super) const NEW_KEYS: &str = "tollgate_new_keys_total";
pub(super) const STORE_FAILURES: &str = "tollgate_store_failures_total";
pub(super) const FALLBACK_DECISIONS: &str = "tollgate_fallback_decisions_total";
pub(super) const ADMITTED_IN_FALLBACK: &str = "tollgate_units_admitted_in_fallback_total";
pub(super) const LAPSED_UNITS: &str = "tollgate_wait_units_lapsed_total";
pub(super) const DEBT_LAPSED: &str = "tollgate_debt_units_lapsed_total";
pub(super) const CREDITS: &str = "tollgate_credit_units_total";
pub(super) const TABLE_KEYS: &str = "tollgate_table_keys";
pub(super) const TABLE_BYTES: &str = "tollgate_table_bytes";
pub(super) const WAITING: &str = "tollgate_waiting";
pub(super) const WAIT: &str = "tollgate_wait_seconds";
pub(super) const WAITS: &str = "tollgate_waits_total";

/// Describes those of requests that wait, once in a process.
pub(super) fn describe_waiting() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        metrics::describe_gauge!(WAITING, Unit::Count, "Requests that wait now.");
        metrics::describe_histogram!(
            WAIT,
            Unit::Seconds,
            "How long requests have waited that were admitted then."
        );
        metrics::describe_counter!(
            WAITS,
            Unit::Count,
            "Requests that have waited, or found the queue full, by outcome."
        );
    });
}

/// Describes them, once in a process.
pub(super) fn describe() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        for (name, unit, text) in COUNTERS {
            metrics::describe_counter!(name, unit, text);
        }
        metrics::describe_gauge!(
            TABLE_KEYS,
            "Keys that the local tables know, of all limiters, by table."
        );
        metrics::describe_gauge!(
            TABLE_BYTES,
            Unit::Bytes,
            "The memory of local tables, of all limiters, by table."
        );
        metrics::describe_histogram!(
            RETRY_AFTER,
            Unit::Seconds,
            "Retry time of denied requests, of one denial in 16."
        );
        metrics::describe_histogram!(
            REMAINING,
            "The share of the limit that a request left, of one request in 16."
        );
        metrics::describe_histogram!(
            CHECK_DURATION,
            Unit::Seconds,
            "Time from the start of a decision to its end, of one decision in 16."
        );
        metrics::describe_gauge!(TRACKED_KEYS, Unit::Count, "Keys with a state.");
        metrics::describe_gauge!(TRACKED_BYTES, Unit::Bytes, "Memory held for states.");
    });
}

const COUNTERS: [(&str, Unit, &str); 16] = [
    (
        REQUESTS,
        Unit::Count,
        "Requests by rule, decision, reason and source.",
    ),
    (UNITS, Unit::Count, "Requested units, by rule and decision."),
    (
        NEAR_LIMIT,
        Unit::Count,
        "Allowed requests that left a fifth of the limit or less.",
    ),
    (
        BURST_EXHAUSTED,
        Unit::Count,
        "Allowed requests that left nothing.",
    ),
    (
        HOT_KEYS,
        Unit::Count,
        "Keys that made up a fifth of their rule's requests or more.",
    ),
    (
        DIFFERENCES,
        Unit::Count,
        "Requests that a shadow rule or a threshold would have decided differently, by the enforced decision.",
    ),
    (
        EVICTED_LIVE,
        Unit::Count,
        "Live states evicted because of the memory limit.",
    ),
    (
        EVICTED_BLOCKS,
        Unit::Count,
        "Blocks in force evicted because of the memory limit: each freed its key early.",
    ),
    (
        BLOCKS,
        Unit::Count,
        "Blocks that began, by rule, level and mode.",
    ),
    (NEW_KEYS, Unit::Count, "States that were created."),
    (
        LAPSED_UNITS,
        Unit::Count,
        "Units of requests that gave up waiting, with others behind them.",
    ),
    (
        DEBT_LAPSED,
        Unit::Count,
        "Units that were charged beyond the debt of a rule, or whose charge is not known to have arrived.",
    ),
    (
        CREDITS,
        Unit::Count,
        "Units of credits that were granted, revoked or used.",
    ),
    (
        STORE_FAILURES,
        Unit::Count,
        "Checks that the store could not decide.",
    ),
    (
        FALLBACK_DECISIONS,
        Unit::Count,
        "Checks decided by a rule's fallback, by answer and policy.",
    ),
    (
        ADMITTED_IN_FALLBACK,
        Unit::Count,
        "Units admitted while the store failed, which the store does not count.",
    ),
];
