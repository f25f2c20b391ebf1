//! The series of a rule in the recorder of the application.

use std::{collections::HashMap, sync::Arc};

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use crate::{
    observe::{
        counts::{COMPUTED, Counted, Counts, EVENTS, OTHER},
        names::{
            ADMITTED_IN_FALLBACK, BURST_EXHAUSTED, DIFFERENCES, EVICTED_LIVE, FALLBACK_DECISIONS,
            HOT_KEYS, LAPSED_UNITS, NEAR_LIMIT, NEW_KEYS, REMAINING, REQUESTS, RETRY_AFTER,
            STORE_FAILURES, TRACKED_BYTES, TRACKED_KEYS, UNITS, describe,
        },
        series::{Kind, Series},
        shown::shown,
    },
    rule::{Mode, Rule},
    source::Source,
    store::rule_store::Usage,
};

/// The handles of a rule's series. They are made when a rule is first used: one that was made before the application has
/// installed its recorder would never count.
pub(super) struct Handles {
    rule: Arc<str>,
    algorithm: &'static str,
    subject_type: Arc<str>,
    /// The names of its plans, from plan 1 on.
    plans: Box<[Arc<str>]>,
    /// In the order of the events.
    events: [Counter; EVENTS],
    by_plan: HashMap<(usize, u8), Counter>,
    pub(super) retry_after: Histogram,
    pub(super) remaining: Histogram,
    tracked_keys: Gauge,
    tracked_bytes: Gauge,
    evicted_live: Counter,
    new_keys: Counter,
    /// Of rules whose requests wait.
    lapsed_units: Option<Counter>,
}

impl Handles {
    pub(super) fn new(rule: &Rule) -> Self {
        describe();
        let name = rule.shared_name();
        let of_rule = |metric: &'static str| counter!(metric, "rule" => Arc::clone(name));
        let differs = |enforced: &'static str| counter!(DIFFERENCES, "rule" => Arc::clone(name), "enforced" => enforced);
        let policy = rule.store_error_answer().name();
        let by_policy = |answer: &'static str, policy: &'static str| counter!(FALLBACK_DECISIONS, "rule" => Arc::clone(name), "answer" => answer, "policy" => policy);
        let fallback = |answer: &'static str| by_policy(answer, policy);
        let mut handles = Self {
            algorithm: rule.quota().algorithm().name(),
            subject_type: shown(rule.subject_type_name().unwrap_or("none")).into(),
            plans: rule.plan_names().map(|plan| shown(plan).into()).collect(),
            events: [
                of_rule(NEAR_LIMIT),
                of_rule(BURST_EXHAUSTED),
                of_rule(HOT_KEYS),
                differs("allowed"),
                differs("denied"),
                of_rule(STORE_FAILURES),
                fallback("allowed"),
                fallback("denied"),
                fallback("passed"),
                fallback("refused"),
                of_rule(ADMITTED_IN_FALLBACK),
                by_policy("passed", "allow"),
                by_policy("passed", "degraded"),
                by_policy("refused", "deny"),
            ],
            by_plan: HashMap::new(),
            retry_after: histogram!(RETRY_AFTER, "rule" => Arc::clone(name)),
            remaining: histogram!(REMAINING, "rule" => Arc::clone(name)),
            tracked_keys: gauge!(TRACKED_KEYS, "rule" => Arc::clone(name)),
            tracked_bytes: gauge!(TRACKED_BYTES, "rule" => Arc::clone(name)),
            evicted_live: of_rule(EVICTED_LIVE),
            new_keys: of_rule(NEW_KEYS),
            lapsed_units: rule.at_most_wait().map(|_| of_rule(LAPSED_UNITS)),
            rule: Arc::clone(name),
        };
        handles.begin(rule.mode());
        handles
    }

    /// Makes the series that alerts watch begin at 0: an increase is seen only of a series that was there before.
    fn begin(&mut self, mode: &Mode) {
        let (store, fallback) = (Source::Store, Source::Fallback);
        let enforced = [
            (Kind::Allowed, store),
            (Kind::DeniedQuota, store),
            (Kind::DeniedStoreFailed, fallback),
            (Kind::Degraded, fallback),
        ];
        let reported = [
            (Kind::ShadowAllowed, store),
            (Kind::ShadowDeniedQuota, store),
        ];
        let kinds = match mode {
            Mode::Enforce => &enforced[..],
            _ => &reported,
        };
        for (kind, source) in kinds {
            self.add(0, Counted::Requests(Series::of(*kind, *source)), 0);
        }
    }

    /// Adds what was counted since it was last added.
    pub(super) fn publish(&mut self, counts: &mut Counts) {
        let mut by_plan = Vec::new();
        counts.take(
            |event, times| self.events[event].increment(times),
            |plan, what, count| by_plan.push((plan, what, count)),
        );
        for (plan, what, count) in by_plan {
            self.add(plan, what, count);
        }
    }

    fn add(&mut self, plan: usize, what: Counted, count: u64) {
        let number = match what {
            Counted::Requests(series) => series.place() as u8,
            Counted::UnitsAllowed => u8::MAX,
            Counted::UnitsDenied => u8::MAX - 1,
        };
        let (rule, algorithm) = (&self.rule, self.algorithm);
        let subject_type = &self.subject_type;
        let plan_name = || -> Arc<str> {
            match plan {
                0 => "none".into(),
                COMPUTED => "computed".into(),
                OTHER => "other".into(),
                _ => self.plans.get(plan - 1).map_or("other".into(), Arc::clone),
            }
        };
        let counter = self.by_plan.entry((plan, number)).or_insert_with(|| {
            let units = |decision: &'static str| counter!(UNITS, "rule" => Arc::clone(rule), "algorithm" => algorithm, "plan" => plan_name(), "decision" => decision);
            match what {
                Counted::UnitsAllowed => units("allowed"),
                Counted::UnitsDenied => units("denied"),
                Counted::Requests(series) => counter!(
                    REQUESTS,
                    "rule" => Arc::clone(rule),
                    "algorithm" => algorithm,
                    "subject_type" => Arc::clone(subject_type),
                    "plan" => plan_name(),
                    "decision" => series.decision(),
                    "reason" => series.reason(),
                    "source" => series.source(),
                ),
            }
        });
        counter.increment(count);
    }

    /// Shows what the store keeps of the rule.
    pub(super) fn usage(&self, usage: &Usage) {
        self.tracked_keys.set(usage.keys as f64);
        self.tracked_bytes.set(usage.bytes as f64);
        self.evicted_live.absolute(usage.evicted_live);
        self.new_keys.absolute(usage.new_keys);
    }

    /// Shows how many units of requests that waited for the rule have lapsed so far.
    pub(super) fn lapsed_units(&self, units: u64) {
        if let Some(lapsed_units) = &self.lapsed_units {
            lapsed_units.absolute(units);
        }
    }
}

impl std::fmt::Debug for Handles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handles(..)")
    }
}
