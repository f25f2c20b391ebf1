//! Counters, gauges and histograms through the `metrics` facade.
//!
//! Labels are rule names and fixed words, so their number is bounded by the code. Handles are created when a rule is first
//! used: one created before the application has installed its recorder would never count.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use metrics::{Counter, Gauge, Histogram, Unit, counter, gauge, histogram};
use tollgate_core::{
    Check, Decision, Mode, Outcome, Rule, RuleSet, Source, Verdict,
    store::{RuleStore, Usage},
};

use crate::observe::timer::Timer;

#[derive(Debug)]
pub(crate) struct Meters {
    rules: Box<[Arc<RuleMeters>]>,
    check_duration: OnceLock<Histogram>,
    preflights: OnceLock<Counter>,
    /// The second in which the store's usage was last read.
    usage_at: AtomicU64,
}

#[derive(Debug)]
struct RuleMeters {
    name: Arc<str>,
    mode: Mode,
    limits: Box<[u64]>,
    handles: OnceLock<Handles>,
}

#[derive(Clone)]
struct Handles {
    allowed: Counter,
    denied: Counter,
    withheld: Counter,
    degraded: Counter,
    error_denied: Counter,
    skipped: Counter,
    no_key: Counter,
    keyless: Counter,
    look_up_failures: Counter,
    refunded: Counter,
    misconfigured: Counter,
    store_failures: Counter,
    fallback: FallbackHandles,
    shadow_allowed: Counter,
    shadow_denied: Counter,
    differs_allowed: Counter,
    differs_denied: Counter,
    near_limit: Counter,
    units_allowed: Counter,
    units_denied: Counter,
    retry_after: Histogram,
    tracked_keys: Gauge,
    tracked_bytes: Gauge,
    evicted_live: Counter,
}

/// The decisions of a rule while its store fails.
#[derive(Clone)]
struct FallbackHandles {
    allowed: Counter,
    denied: Counter,
    passed: Counter,
    refused: Counter,
    units: Counter,
}

impl std::fmt::Debug for Handles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handles(..)")
    }
}

const REQUESTS: &str = "tollgate_requests_total";
const UNITS: &str = "tollgate_cost_units_total";
const NEAR_LIMIT: &str = "tollgate_near_limit_total";
const DIFFERENCES: &str = "tollgate_shadow_differences_total";
const RETRY_AFTER: &str = "tollgate_retry_after_seconds";
const CHECK_DURATION: &str = "tollgate_check_duration_seconds";
const TRACKED_KEYS: &str = "tollgate_tracked_keys";
const TRACKED_BYTES: &str = "tollgate_tracked_bytes";
const EVICTED_LIVE: &str = "tollgate_evicted_live_total";
const STORE_FAILURES: &str = "tollgate_store_failures_total";
const FALLBACK_DECISIONS: &str = "tollgate_fallback_decisions_total";
const ADMITTED_IN_FALLBACK: &str = "tollgate_units_admitted_in_fallback_total";
const MISCONFIGURED: &str = "tollgate_misconfigured_total";
const KEYLESS: &str = "tollgate_keyless_requests_total";
const LOOK_UP_FAILURES: &str = "tollgate_look_up_failures_total";
const REFUNDED: &str = "tollgate_refunded_requests_total";
const PREFLIGHTS: &str = "tollgate_preflights_total";

fn describe() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        metrics::describe_counter!(REQUESTS, Unit::Count, "Requests by rule and decision.");
        metrics::describe_counter!(UNITS, Unit::Count, "Requested units, by rule and decision.");
        metrics::describe_counter!(
            NEAR_LIMIT,
            Unit::Count,
            "Allowed requests that left a fifth of the limit or less."
        );
        metrics::describe_counter!(
            DIFFERENCES,
            Unit::Count,
            "Requests that a shadow rule or a threshold would have decided differently, by the enforced decision."
        );
        metrics::describe_histogram!(
            RETRY_AFTER,
            Unit::Seconds,
            "Retry time of denied requests."
        );
        metrics::describe_histogram!(CHECK_DURATION, Unit::Seconds, "Time from head to decision.");
        metrics::describe_gauge!(TRACKED_KEYS, Unit::Count, "Keys with a state.");
        metrics::describe_gauge!(TRACKED_BYTES, Unit::Bytes, "Memory held for states.");
        metrics::describe_counter!(
            EVICTED_LIVE,
            Unit::Count,
            "Live states evicted because of the memory limit."
        );
        metrics::describe_counter!(
            STORE_FAILURES,
            Unit::Count,
            "Checks that the store could not decide."
        );
        metrics::describe_counter!(
            FALLBACK_DECISIONS,
            Unit::Count,
            "Checks decided by a rule's fallback, by answer."
        );
        metrics::describe_counter!(
            ADMITTED_IN_FALLBACK,
            Unit::Count,
            "Units admitted while the store failed, which the store does not count."
        );
        metrics::describe_counter!(
            MISCONFIGURED,
            Unit::Count,
            "Requests without a key because the service is misconfigured."
        );
        metrics::describe_counter!(
            KEYLESS,
            Unit::Count,
            "Requests without a key, whatever the rule does with them."
        );
        metrics::describe_counter!(
            LOOK_UP_FAILURES,
            Unit::Count,
            "Requests whose key look-up failed or timed out."
        );
        metrics::describe_counter!(
            REFUNDED,
            Unit::Count,
            "Requests refunded because the service did not serve them, or because their response does not count."
        );
        metrics::describe_counter!(PREFLIGHTS, Unit::Count, "CORS preflights passed uncounted.");
    });
}

impl Handles {
    fn new(name: &Arc<str>) -> Self {
        describe();
        let requests = |decision: &'static str| counter!(REQUESTS, "rule" => name.clone(), "decision" => decision);
        let units = |decision: &'static str| counter!(UNITS, "rule" => name.clone(), "decision" => decision);
        let differs = |enforced: &'static str| counter!(DIFFERENCES, "rule" => name.clone(), "enforced" => enforced);
        Self {
            allowed: requests("allowed"),
            denied: requests("denied"),
            withheld: requests("withheld"),
            degraded: requests("degraded"),
            error_denied: requests("error_denied"),
            skipped: requests("skipped"),
            no_key: requests("no_key"),
            shadow_allowed: requests("shadow_allowed"),
            shadow_denied: requests("shadow_denied"),
            differs_allowed: differs("allowed"),
            differs_denied: differs("denied"),
            units_allowed: units("allowed"),
            units_denied: units("denied"),
            store_failures: counter!(STORE_FAILURES, "rule" => name.clone()),
            fallback: FallbackHandles::new(name),
            keyless: counter!(KEYLESS, "rule" => name.clone()),
            look_up_failures: counter!(LOOK_UP_FAILURES, "rule" => name.clone()),
            refunded: counter!(REFUNDED, "rule" => name.clone()),
            misconfigured: counter!(MISCONFIGURED, "rule" => name.clone()),
            near_limit: counter!(NEAR_LIMIT, "rule" => name.clone()),
            retry_after: histogram!(RETRY_AFTER, "rule" => name.clone()),
            tracked_keys: gauge!(TRACKED_KEYS, "rule" => name.clone()),
            tracked_bytes: gauge!(TRACKED_BYTES, "rule" => name.clone()),
            evicted_live: counter!(EVICTED_LIVE, "rule" => name.clone()),
        }
    }

    /// An enforced rule's verdict on `cost` units.
    fn enforced(&self, verdict: &Verdict, cost: u64, allowed: bool, limit: u64) {
        match verdict.outcome() {
            Outcome::Allow if verdict.is_degraded() => self.degraded.increment(1),
            Outcome::Allow if allowed => {
                self.allowed.increment(1);
                self.units_allowed.increment(cost);
                if verdict.remaining() <= limit / 5 {
                    self.near_limit.increment(1);
                }
            }
            Outcome::Allow => self.withheld.increment(1),
            Outcome::Deny => {
                self.units_denied.increment(cost);
                if verdict.has_numbers() {
                    self.denied.increment(1);
                } else {
                    self.error_denied.increment(1);
                }
                if let Some(delay) = verdict.retry().delay() {
                    self.retry_after.record(delay.as_secs_f64());
                }
            }
            _ => {}
        }
    }

    /// The verdict of a shadow or a threshold.
    fn reported(&self, verdict: &Verdict, allowed: bool) {
        let would_allow = match verdict.outcome() {
            Outcome::Allow => true,
            Outcome::Deny => false,
            _ => return,
        };
        if would_allow {
            self.shadow_allowed.increment(1);
        } else {
            self.shadow_denied.increment(1);
        }
        match (allowed, would_allow) {
            (true, false) => self.differs_allowed.increment(1),
            (false, true) => self.differs_denied.increment(1),
            _ => {}
        }
    }
}

impl FallbackHandles {
    fn new(name: &Arc<str>) -> Self {
        let answers = |answer: &'static str| counter!(FALLBACK_DECISIONS, "rule" => name.clone(), "answer" => answer);
        Self {
            allowed: answers("allowed"),
            denied: answers("denied"),
            passed: answers("passed"),
            refused: answers("refused"),
            units: counter!(ADMITTED_IN_FALLBACK, "rule" => name.clone()),
        }
    }

    /// An enforced rule's verdict on `cost` units while the store fails.
    fn decided(&self, verdict: &Verdict, cost: u64, allowed: bool) {
        let answer = match verdict.outcome() {
            Outcome::Allow if verdict.is_degraded() => &self.passed,
            Outcome::Allow => &self.allowed,
            Outcome::Deny if verdict.has_numbers() => &self.denied,
            Outcome::Deny => &self.refused,
            _ => return,
        };
        answer.increment(1);
        if allowed && verdict.outcome() == Outcome::Allow {
            self.units.increment(cost);
        }
    }
}

impl Meters {
    pub(crate) fn new(rules: &RuleSet) -> Self {
        Self {
            rules: rules
                .rules()
                .iter()
                .map(|rule| Arc::new(RuleMeters::new(rule, OnceLock::new())))
                .collect(),
            check_duration: OnceLock::new(),
            preflights: OnceLock::new(),
            usage_at: AtomicU64::new(0),
        }
    }

    /// Of rules that take the place of `replaced`: those of the same name have the same handles.
    pub(crate) fn succeeding(rules: &RuleSet, before: &Self, replaced: &RuleSet) -> Self {
        let meters = |(index, rule): (usize, &Rule)| {
            if let Some(there) = rules.unchanged_in(index, replaced)
                && let Some(unchanged) = before.rules.get(there)
            {
                return Arc::clone(unchanged);
            }
            let there = rules.position_in(index, replaced);
            let of_name = there.and_then(|there| before.rules.get(there));
            let handles = of_name.map_or_else(OnceLock::new, |before| before.handles.clone());
            Arc::new(RuleMeters::new(rule, handles))
        };
        Self {
            rules: rules.rules().iter().enumerate().map(meters).collect(),
            check_duration: before.check_duration.clone(),
            preflights: before.preflights.clone(),
            usage_at: AtomicU64::new(before.usage_at.load(Ordering::Relaxed)),
        }
    }

    pub(crate) fn decided(
        &self,
        store: &dyn RuleStore,
        checks: &[Check],
        decision: &Decision,
        timer: Timer,
    ) {
        self.check_duration
            .get_or_init(|| histogram!(CHECK_DURATION))
            .record(timer.elapsed().as_secs_f64());
        for (index, verdict) in decision.verdicts().iter().enumerate() {
            let Some(rule) = self.rules.get(verdict.rule()) else {
                continue;
            };
            let handles = rule.handles();
            if verdict.source() == Source::Fallback || verdict.outcome() == Outcome::Failed {
                handles.store_failures.increment(1);
            }
            if rule.mode == Mode::Enforce {
                let cost = checks.get(index).map_or(0, Check::cost);
                let limit = match rule.limits.get(verdict.plan()) {
                    Some(limit) => *limit,
                    None => brought(store.rules(), verdict),
                };
                handles.enforced(verdict, cost, decision.is_allowed(), limit);
                if verdict.source() == Source::Fallback {
                    let allowed = decision.is_allowed();
                    handles.fallback.decided(verdict, cost, allowed);
                }
            } else {
                handles.reported(verdict, decision.is_allowed());
            }
        }
        let second = decision.at() / 1_000_000;
        if self.usage_at.load(Ordering::Relaxed) != second
            && self.usage_at.swap(second, Ordering::Relaxed) != second
        {
            self.usage(store);
        }
    }

    /// Reads the store's usage, at most once per second: it takes the locks of a rule's shards one after another.
    fn usage(&self, store: &dyn RuleStore) {
        for (index, rule) in self.rules.iter().enumerate() {
            // A rule set has fewer than 65 536 rules.
            let Some(usage) = store.usage(index as u16) else {
                continue;
            };
            // The series of a rule begin with its first key.
            let is_used = usage != Usage::default() || rule.handles.get().is_some();
            if matches!(rule.mode, Mode::Threshold { .. }) || !is_used {
                continue;
            }
            let handles = rule.handles();
            handles.tracked_keys.set(usage.keys as f64);
            handles.tracked_bytes.set(usage.bytes as f64);
            handles.evicted_live.absolute(usage.evicted_live);
        }
    }

    pub(crate) fn skipped(&self, rule: u16) {
        self.with(rule, |handles| handles.skipped.increment(1));
    }

    pub(crate) fn no_key(&self, rule: u16) {
        self.with(rule, |handles| handles.no_key.increment(1));
    }

    pub(crate) fn keyless(&self, rule: u16) {
        self.with(rule, |handles| handles.keyless.increment(1));
    }

    pub(crate) fn look_up_failed(&self, rule: u16) {
        self.with(rule, |handles| handles.look_up_failures.increment(1));
    }

    pub(crate) fn error_denied(&self, rule: u16) {
        self.with(rule, |handles| handles.error_denied.increment(1));
    }

    pub(crate) fn refunded(&self, rule: u16) {
        self.with(rule, |handles| handles.refunded.increment(1));
    }

    pub(crate) fn misconfigured(&self, rule: u16) {
        self.with(rule, |handles| handles.misconfigured.increment(1));
    }

    pub(crate) fn preflight(&self) {
        self.preflights
            .get_or_init(|| {
                describe();
                counter!(PREFLIGHTS)
            })
            .increment(1);
    }

    fn with(&self, rule: u16, count: impl FnOnce(&Handles)) {
        if let Some(rule) = self.rules.get(usize::from(rule)) {
            count(rule.handles());
        }
    }
}

/// The limit of a quota that a check has brought along.
#[cold]
fn brought(rules: &RuleSet, verdict: &Verdict) -> u64 {
    let rule = rules.rules().get(verdict.rule());
    let limit = rule.and_then(|rule| rule.limit_under(verdict.plan()));
    limit.unwrap_or(0)
}

impl RuleMeters {
    fn new(rule: &Rule, handles: OnceLock<Handles>) -> Self {
        Self {
            name: Arc::clone(rule.shared_name()),
            mode: rule.mode().clone(),
            limits: (0..rule.quotas())
                .map(|plan| rule.quota_of(plan).limit())
                .collect(),
            handles,
        }
    }

    fn handles(&self) -> &Handles {
        self.handles.get_or_init(|| Handles::new(&self.name))
    }
}
