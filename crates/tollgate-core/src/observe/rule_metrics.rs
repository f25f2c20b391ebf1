//! The metrics of a rule, under the labels that it has.

use std::sync::{Arc, OnceLock};

use metrics::{Counter, Histogram, counter, gauge, histogram};

use crate::{
    check::Check,
    check_policy::OnStoreError,
    decision::{Decision, Outcome, Reason, Verdict},
    hold::Source,
    observe::{
        names::{
            ADMITTED_IN_FALLBACK, BLOCKS, BURST_EXHAUSTED, CREDITS, DEBT_LAPSED, DIFFERENCES,
            EVICTED_BLOCKS, EVICTED_LIVE, FALLBACK_DECISIONS, HOT_KEYS, LAPSED_UNITS, NEAR_LIMIT,
            NEW_KEYS, REMAINING, RETRY_AFTER, STORE_FAILURES, TRACKED_BYTES, TRACKED_KEYS,
            describe,
        },
        rule_counters::{RuleCounters, SeriesCounter},
        series::{Kind, Series},
        shown::shown,
    },
    rule::Rule,
    store::rule_store::Usage,
};

/// One request of a series in this number is a sample for the histograms.
const ONE_IN: u64 = 16;

/// The plans that have a label of their own; the rule's own quota is the first.
const PLANS: usize = 64;

/// The metrics of a rule. The handles are made when it is first used: one that was made before the application has installed its
/// recorder would never count.
pub(super) struct RuleMetrics {
    counters: Arc<RuleCounters>,
    /// By plan, the rule's own quota first; then quotas that checks bring along, and further plans.
    plans: Box<[PlanCounters]>,
    retry_after: Histogram,
    remaining: Histogram,
    near_limit: Counter,
    burst_exhausted: Counter,
    pub(super) hot_keys: Counter,
    /// A shadow would have denied an allowed request, or allowed a denied one.
    differs_allowed: Counter,
    differs_denied: Counter,
    store_failures: Counter,
    /// In the order of [`FALLBACKS`].
    fallback: [Counter; 7],
    admitted_in_fallback: Counter,
    /// What the store counts.
    evicted_live: Counter,
    new_keys: Counter,
    evicted_blocks: Counter,
    lapsed_units: Counter,
}

/// The counters of a plan that requests have used, one after the other: they are few.
#[derive(Default)]
struct PlanCounters(OnceLock<Box<(Arc<SeriesCounter>, Self)>>);

impl PlanCounters {
    fn of(&self, series: Series, make: impl Fn() -> Arc<SeriesCounter>) -> &SeriesCounter {
        let mut here = self;
        loop {
            let (counter, next) = &**here.0.get_or_init(|| Box::new((make(), Self::default())));
            if counter.series == series {
                return counter;
            }
            here = next;
        }
    }
}

/// Decisions while the store fails: what became of a request, and the answer of its check, or the rule's.
const FALLBACKS: [(&str, Option<&str>); 7] = [
    ("allowed", None),
    ("denied", None),
    ("passed", None),
    ("refused", None),
    ("passed", Some("allow")),
    ("passed", Some("degraded")),
    ("refused", Some("deny")),
];

impl RuleMetrics {
    pub(super) fn new(rule: &Rule, counters: &Arc<RuleCounters>) -> Self {
        describe();
        let name = rule.shared_name();
        let of_rule = |metric: &'static str| counter!(metric, "rule" => Arc::clone(name));
        let histogram = |metric: &'static str| histogram!(metric, "rule" => Arc::clone(name));
        let differs = |enforced: &'static str| counter!(DIFFERENCES, "rule" => Arc::clone(name), "enforced" => enforced);
        let own = rule.store_error_answer().name();
        let plans = rule.quotas().min(PLANS) + 2;
        let metrics = Self {
            counters: Arc::clone(counters),
            plans: (0..plans).map(|_| PlanCounters::default()).collect(),
            retry_after: histogram(RETRY_AFTER),
            remaining: histogram(REMAINING),
            near_limit: of_rule(NEAR_LIMIT),
            burst_exhausted: of_rule(BURST_EXHAUSTED),
            hot_keys: of_rule(HOT_KEYS),
            differs_allowed: differs("allowed"),
            differs_denied: differs("denied"),
            store_failures: of_rule(STORE_FAILURES),
            fallback: FALLBACKS.map(|(answer, policy)| {
                let policy = policy.unwrap_or(own);
                counter!(FALLBACK_DECISIONS, "rule" => Arc::clone(name), "answer" => answer, "policy" => policy)
            }),
            admitted_in_fallback: of_rule(ADMITTED_IN_FALLBACK),
            evicted_live: of_rule(EVICTED_LIVE),
            new_keys: of_rule(NEW_KEYS),
            evicted_blocks: match rule.block_setting() {
                Some(_) => of_rule(EVICTED_BLOCKS),
                None => Counter::noop(),
            },
            lapsed_units: match (rule.at_most_wait(), rule.debt_of()) {
                (Some(_), _) => of_rule(LAPSED_UNITS),
                (None, 1..) => of_rule(DEBT_LAPSED),
                (None, 0) => Counter::noop(),
            },
        };
        // The series that alerts watch begin at 0: an increase is seen only of a series that was there before.
        let (store, fallback) = (Source::Store, Source::Fallback);
        let kinds: &[_] = match rule.is_enforced() {
            true => &[
                (Kind::Allowed, store),
                (Kind::Denied(Reason::Quota), store),
                (Kind::Denied(Reason::StoreFailed), fallback),
                (Kind::Degraded, fallback),
            ],
            false => &[
                (Kind::ShadowAllowed, store),
                (Kind::ShadowDenied(Reason::Quota), store),
            ],
        };
        for level in 1..=rule.block_setting().map_or(0, |block| block.times().len()) {
            // There are at most 32 times.
            blocks_of(rule, level as u8).increment(0);
        }
        for &(kind, source) in kinds {
            let source = Some(source);
            metrics.series(rule, 0, Series { kind, source });
        }
        metrics
    }

    fn series(&self, rule: &Rule, plan: usize, series: Series) -> &SeriesCounter {
        let own_and_named = self.plans.len() - 2;
        let (index, name) = match plan {
            0 => (0, "none"),
            _ if plan < own_and_named => (plan, rule.plan_name(plan).unwrap_or("other")),
            _ if plan >= rule.quotas() => (own_and_named, "computed"),
            _ => (own_and_named + 1, "other"),
        };
        let make = || self.counters.series(rule, &shown(name), series);
        self.plans[index].of(series, make)
    }

    /// Counts what became of a request that the rule did not check.
    pub(super) fn unchecked(&self, rule: &Rule, denied_for: Option<Reason>) {
        let (kind, source) = (denied_for.map_or(Kind::Skipped, Kind::Denied), None);
        let series = self.series(rule, 0, Series { kind, source });
        series.count_at_once();
    }

    /// Counts a verdict.
    pub(super) fn count(
        &self,
        rule: &Rule,
        check: Option<&Check>,
        verdict: &Verdict,
        decision: &Decision,
    ) {
        let (source, outcome) = (verdict.source(), verdict.outcome());
        if source == Source::Fallback || outcome == Outcome::Failed {
            self.store_failures.increment(1);
        }
        let kind = match rule.is_enforced() {
            true => Kind::enforced(verdict, decision, rule.at_most_wait().is_some()),
            false => Kind::reported(verdict),
        };
        let Some(kind) = kind else { return };
        let cost = check.map_or(0, Check::cost);
        let series = Series {
            kind,
            source: Some(source),
        };
        let counter = self.series(rule, verdict.plan(), series);
        let before = counter.count(cost, decision.at());
        if !rule.is_enforced() {
            match (decision.is_allowed(), kind) {
                (true, Kind::ShadowDenied(Reason::Quota | Reason::Never)) => {
                    self.differs_allowed.increment(1);
                }
                (false, Kind::ShadowAllowed) => self.differs_denied.increment(1),
                _ => {}
            }
            return;
        }
        let limit = rule.limit_under(verdict.plan()).unwrap_or(0);
        if kind == Kind::Allowed && verdict.remaining() <= limit / 5 {
            self.near_limit.increment(1);
            if verdict.remaining() == 0 && cost > 0 {
                self.burst_exhausted.increment(1);
            }
        }
        if source == Source::Fallback {
            self.fallback(check, verdict, decision);
        }
        if source == Source::Credits && kind == Kind::Allowed {
            credits_of(rule, "used").increment(cost);
        }
        if !before.is_multiple_of(ONE_IN) {
            return;
        }
        if verdict.knows_remaining() && limit > 0 {
            let share = verdict.remaining() as f64 / limit as f64;
            self.remaining.record(share);
        }
        if let (Kind::Denied(_), Some(delay)) = (kind, verdict.retry().delay()) {
            self.retry_after.record(delay.as_secs_f64());
        }
    }

    /// What the store has counted so far of the rule, where it says so.
    pub(super) fn show_counted(&self, usage: Option<Usage>, lapsed_units: u64) {
        if let Some(usage) = usage {
            self.evicted_live.absolute(usage.evicted_live);
            self.new_keys.absolute(usage.new_keys);
            self.evicted_blocks.absolute(usage.evicted_blocks);
        }
        self.lapsed_units.absolute(lapsed_units);
    }

    /// A rule's answer while its store fails.
    fn fallback(&self, check: Option<&Check>, verdict: &Verdict, decision: &Decision) {
        let answer = check.and_then(|check| check.policy().store_error_answer());
        let index = match (verdict.outcome(), answer) {
            (Outcome::Allow, Some(OnStoreError::Allow)) => 4,
            (Outcome::Allow, Some(OnStoreError::Degraded)) => 5,
            (Outcome::Deny, Some(OnStoreError::Deny)) => 6,
            (Outcome::Allow, _) if verdict.is_degraded() => 2,
            (Outcome::Allow, _) => 0,
            (Outcome::Deny, _) if verdict.has_numbers() => 1,
            (Outcome::Deny, _) => 3,
            _ => return,
        };
        self.fallback[index].increment(1);
        if decision.is_allowed() && verdict.outcome() == Outcome::Allow {
            let units = check.map_or(0, Check::cost);
            self.admitted_in_fallback.increment(units);
        }
    }
}

/// Shows what a store keeps of a rule. That is done once a second, so the handles are made each time.
pub(super) fn show_tracked(rule: &Rule, usage: Usage) {
    let gauge = |metric: &'static str| gauge!(metric, "rule" => Arc::clone(rule.shared_name()));
    gauge(TRACKED_KEYS).set(usage.keys as f64);
    gauge(TRACKED_BYTES).set(usage.bytes as f64);
}

/// The units of credits that were `granted`, `revoked` or `used`.
pub(crate) fn credits_of(rule: &Rule, change: &'static str) -> Counter {
    counter!(CREDITS, "rule" => Arc::clone(rule.shared_name()), "change" => change)
}

/// The blocks of a level that began.
pub(super) fn blocks_of(rule: &Rule, level: u8) -> Counter {
    let mode = match rule.is_enforced() {
        true => "enforce",
        false => "shadow",
    };
    let level = level.to_string();
    counter!(BLOCKS, "rule" => Arc::clone(rule.shared_name()), "level" => level, "mode" => mode)
}

crate::debug_fields!(RuleMetrics);
