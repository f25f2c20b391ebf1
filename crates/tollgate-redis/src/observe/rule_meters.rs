//! The metrics of one rule, under one consistency. Labels are names of rules and fixed words.

use std::sync::{Arc, OnceLock};

use metrics::{Counter, counter, gauge};
use tollgate_core::Source;

use crate::observe::labels::Labels;

const DECISIONS: &str = "tollgate_redis_decisions_total";
const NEW_KEYS: &str = "tollgate_redis_new_keys_total";
const NEW_KEYS_REFUSED: &str = "tollgate_redis_new_keys_refused_total";
const BOUND: &str = "tollgate_redis_over_admission_bound_units";
const RESERVE: &str = "tollgate_redis_lease_limit_units";
const FOLLOWED: &str = "tollgate_redis_meter_requests_total";
const OVER: &str = "tollgate_redis_meter_over_admitted_units_total";
const FALSE_REFUSALS: &str = "tollgate_redis_meter_false_refusals_total";
const DROPPED: &str = "tollgate_redis_meter_dropped_total";

/// Handles are created at the first event, after the application has installed its recorder.
#[derive(Default)]
pub(super) struct RuleMeters {
    decisions: OnceLock<Decisions>,
    new_keys: OnceLock<Counter>,
    new_keys_refused: OnceLock<Counter>,
    accuracy: OnceLock<Accuracy>,
}

struct Decisions {
    store: Counter,
    deny_cache: Counter,
    lease: Counter,
    local: Counter,
}

struct Accuracy {
    followed: Counter,
    over: Counter,
    false_refusals: Counter,
    dropped: Counter,
}

impl RuleMeters {
    #[inline]
    pub(super) fn decided(&self, of: &Labels, source: Source) {
        let decisions = self.decisions.get_or_init(|| {
            let from = |source: &'static str| {
                let rule = Arc::clone(&of.rule);
                counter!(DECISIONS, "rule" => rule, "consistency" => of.consistency, "source" => source)
            };
            Decisions {
                store: from("store"),
                deny_cache: from("deny_cache"),
                lease: from("lease"),
                local: from("local"),
            }
        });
        match source {
            Source::Store => &decisions.store,
            Source::DenyCache => &decisions.deny_cache,
            Source::Lease => &decisions.lease,
            Source::Local => &decisions.local,
            _ => return,
        }
        .increment(1);
    }

    pub(super) fn new_key(&self, of: &Labels) {
        // Of the rule: a key has no consistency.
        let counter = || counter!(NEW_KEYS, "rule" => Arc::clone(&of.rule));
        self.new_keys.get_or_init(counter).increment(1);
    }

    pub(super) fn new_key_refused(&self, of: &Labels) {
        let counter = || counter!(NEW_KEYS_REFUSED, "rule" => Arc::clone(&of.rule));
        self.new_keys_refused.get_or_init(counter).increment(1);
    }

    pub(super) fn audited(&self, of: &Labels, requests: u64, over: u64, falsely: u64) {
        let accuracy = self.accuracy(of);
        accuracy.followed.increment(requests);
        accuracy.over.increment(over);
        accuracy.false_refusals.increment(falsely);
    }

    pub(super) fn dropped(&self, of: &Labels, requests: u64) {
        self.accuracy(of).dropped.increment(requests);
    }

    fn accuracy(&self, of: &Labels) -> &Accuracy {
        self.accuracy.get_or_init(|| {
            let count = |name: &'static str| {
                let rule = Arc::clone(&of.rule);
                counter!(name, "rule" => rule, "consistency" => of.consistency)
            };
            Accuracy {
                followed: count(FOLLOWED),
                over: count(OVER),
                false_refusals: count(FALSE_REFUSALS),
                dropped: count(DROPPED),
            }
        })
    }

    /// Seldom, so that handles are looked up.
    pub(super) fn bounds(of: &Labels, bound: u64, reserve: u64) {
        let reported = |name: &'static str, units: u64| {
            let rule = Arc::clone(&of.rule);
            gauge!(name, "rule" => rule, "consistency" => of.consistency).set(units as f64);
        };
        reported(BOUND, bound);
        if reserve > 0 {
            reported(RESERVE, reserve);
        }
    }
}

impl std::fmt::Debug for RuleMeters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RuleMeters(..)")
    }
}

pub(super) fn describe() {
    metrics::describe_counter!(
        DECISIONS,
        "Checks that were decided, by who answered: Redis, or this process alone"
    );
    metrics::describe_counter!(
        NEW_KEYS,
        "Keys that were created: checks and reports that found no usage"
    );
    metrics::describe_counter!(
        NEW_KEYS_REFUSED,
        "Checks of clients beyond the cap on new keys, which share one bucket"
    );
    metrics::describe_gauge!(
        BOUND,
        "Units by which all instances together may be above the limit of a key; 0 for exact and leased"
    );
    metrics::describe_gauge!(
        RESERVE,
        "Units of a key that may sit unused in leases while a request is denied"
    );
    metrics::describe_counter!(
        FOLLOWED,
        "Requests of sampled keys that the accuracy meter has followed"
    );
    metrics::describe_counter!(OVER, "Units of those that were let through above the limit");
    metrics::describe_counter!(
        FALSE_REFUSALS,
        "Those that were refused although they fitted"
    );
    metrics::describe_counter!(
        DROPPED,
        "Requests of sampled keys that the accuracy meter has lost"
    );
}
