//! What a limiter tells operators.

use std::sync::{Arc, OnceLock};

#[cfg(feature = "tracing")]
use crate::sync::{Mutex, lock};
#[cfg(any(feature = "metrics", feature = "tracing"))]
use crate::time::Tick;
use crate::{
    block::ActiveBlock,
    check::Check,
    decision::{Decision, Outcome, Reason},
    key::{Fingerprint, KeyBuf},
    observe::top_keys::{TopKey, TopKeys},
    rule::Rule,
    rule_set::RuleSet,
    store::rule_store::RuleStore,
};
#[cfg(feature = "tracing")]
use crate::{
    decision::Verdict,
    hold::Source,
    observe::{events, events::DenialSampler, shown::shown},
    time::millis,
};
#[cfg(feature = "metrics")]
use crate::{
    observe::{
        names::CHECK_DURATION,
        rule_counters::{RuleCounters, RuleCounts},
        rule_metrics::{RuleMetrics, show_tracked},
    },
    rule::Mode,
    store::rule_store::Usage,
};

/// What a limiter tells operators: metrics with the feature `metrics`, events with `tracing`, and the top keys of the rules
/// that [keep them](Rule::top_keys). Without any of these it does nothing.
///
/// A [`Limiter`](crate::Limiter) reports its own decisions. This is for those who make a layer of it, and know more about a
/// request: see [`layer`](crate::layer).
pub struct Observer {
    set: Arc<RuleSet>,
    /// Empty if nothing is observed.
    rules: Box<[Arc<RuleObserver>]>,
    has_labels: bool,
    #[cfg(feature = "tracing")]
    outage: Arc<events::Outage>,
    #[cfg(feature = "metrics")]
    check_duration: std::sync::OnceLock<metrics::Histogram>,
    /// The second in which the metrics were last brought up to date.
    #[cfg(feature = "metrics")]
    updated_at: std::sync::atomic::AtomicU64,
}

impl Observer {
    pub(crate) fn new(set: &Arc<RuleSet>, before: Option<&Self>) -> Self {
        let observer = |rule: &Rule| {
            let before = before.and_then(|before| before.rule(before.set.position(rule.name())?));
            match before {
                Some((replaced, observer)) if replaced == rule => Arc::clone(observer),
                Some((_, observer)) => Arc::new(RuleObserver::of(Arc::clone(&observer.history))),
                None => Arc::new(RuleObserver::of(Arc::default())),
            }
        };
        let rules = set.rules();
        let has_top_keys = rules.iter().any(Rule::keeps_top_keys);
        let is_on = cfg!(any(feature = "metrics", feature = "tracing")) || has_top_keys;
        Self {
            set: Arc::clone(set),
            rules: match is_on {
                true => rules.iter().map(observer).collect(),
                false => Box::default(),
            },
            has_labels: has_top_keys && rules.iter().any(|rule| rule.settings.label.is_some()),
            #[cfg(feature = "tracing")]
            outage: before.map_or_else(Default::default, |it| Arc::clone(&it.outage)),
            #[cfg(feature = "metrics")]
            check_duration: before.map_or_else(Default::default, |it| it.check_duration.clone()),
            #[cfg(feature = "metrics")]
            updated_at: std::sync::atomic::AtomicU64::new(0),
        }
    }

    /// Whether it does anything.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Whether it wants to know the keys of checks.
    #[inline]
    pub(crate) fn has_labels(&self) -> bool {
        self.has_labels
    }

    /// A check of this key was made.
    pub(crate) fn on_key(&self, rule: u16, subject: Fingerprint, key: &KeyBuf) {
        if let Some((rule, observer)) = self.rule(usize::from(rule))
            && let Some(label) = &rule.settings.label
            && let Some(top_keys) = observer.top_keys_before(rule)
        {
            top_keys.on_key(subject, key, label);
        }
    }

    fn rule(&self, index: usize) -> Option<(&Rule, &Arc<RuleObserver>)> {
        Some((self.set.rules().get(index)?, self.rules.get(index)?))
    }

    /// The top keys of the rule at this index.
    pub(crate) fn top_keys(&self, rule: usize, most: usize) -> Vec<TopKey> {
        let rule = self.rule(rule);
        let top_keys = rule.and_then(|(rule, observer)| observer.top_keys_before(rule));
        top_keys.map_or_else(Vec::new, |top_keys| top_keys.top(most))
    }

    /// What was counted of each rule and threshold.
    #[cfg(feature = "metrics")]
    pub(crate) fn counts(&self) -> Vec<RuleCounts> {
        let rules = self.set.rules().iter().zip(&self.rules);
        let counts = rules.map(|(rule, observer)| {
            let counters = observer.history.counters.get();
            RuleCounts {
                rule: rule.name().to_owned(),
                requests: counters.map_or_else(Vec::new, |it| it.counts()),
            }
        });
        counts.collect()
    }

    /// A request was decided. `route` is the pattern of its route, never its path; empty where there is none.
    pub(crate) fn decided(
        &self,
        store: &dyn RuleStore,
        checks: &[Check],
        decision: &Decision,
        timer: Timer,
        route: &str,
    ) {
        let at = match decision.at() {
            // No store has decided.
            0 => store.clock().now(),
            at => at,
        };
        for (index, verdict) in decision.verdicts().iter().enumerate() {
            let Some((rule, observer)) = self.rule(verdict.rule()) else {
                continue;
            };
            let check = checks.get(index);
            #[cfg(feature = "metrics")]
            observer.metrics(rule).count(rule, check, verdict, decision);
            #[cfg(feature = "tracing")]
            if rule.is_enforced() {
                observer.log(rule, check, verdict, decision, route, at);
            }
            let is_denied = verdict.outcome() == Outcome::Deny;
            if rule.keeps_top_keys()
                && (is_denied || verdict.outcome() == Outcome::Allow)
                && let Some(check) = check
                && let Some(hot) = observer.top_keys().record(check, is_denied, at)
            {
                #[cfg(feature = "metrics")]
                observer.metrics(rule).hot_keys.increment(1);
                #[cfg(feature = "tracing")]
                events::hot_key(rule, &hot);
                let _ = hot;
            }
        }
        #[cfg(feature = "tracing")]
        {
            self.outage.decided(&self.set, decision);
            self.record_on_span(decision);
        }
        #[cfg(not(feature = "tracing"))]
        let _ = route;
        #[cfg(feature = "metrics")]
        {
            if let Some(elapsed) = timer.elapsed() {
                self.check_duration
                    .get_or_init(|| metrics::histogram!(CHECK_DURATION))
                    .record(elapsed.as_secs_f64());
            }
            self.update_once_a_second(store, at);
        }
        #[cfg(not(feature = "metrics"))]
        let _ = timer;
    }

    /// Says on the span of the request what was decided.
    #[cfg(feature = "tracing")]
    fn record_on_span(&self, decision: &Decision) {
        let is_allowed = decision.is_allowed();
        if is_allowed && !decision.is_degraded() {
            let word = match decision.is_repeat() {
                true => "repeated",
                false => "allowed",
            };
            return events::record_on_span(word, None, None);
        }
        let decides = |it: &Verdict| match is_allowed {
            true => it.is_degraded(),
            false => it.outcome() == Outcome::Deny,
        };
        let rules = self.set.rules();
        let rule = decision.verdicts().iter().find_map(|it| {
            let rule = rules.get(it.rule()).filter(|rule| rule.is_enforced())?;
            decides(it).then_some(rule.name())
        });
        let (word, reason) = match decision.reason() {
            Some(reason) => ("denied", reason.as_str()),
            None => ("degraded", "store_failed"),
        };
        events::record_on_span(word, rule, Some(reason));
    }

    /// A rule did not check a request, because it does not apply (exempt, unlimited, or without a key), or has denied it:
    /// [`NoKey`](Reason::NoKey), or [`StoreFailed`](Reason::StoreFailed) where the key could not be looked up.
    pub fn unchecked(&self, rule: u16, denied_for: Option<Reason>) {
        let Some((rule, observer)) = self.rule(usize::from(rule)) else {
            return;
        };
        #[cfg(feature = "metrics")]
        observer.metrics(rule).unchecked(rule, denied_for);
        #[cfg(feature = "tracing")]
        if let Some(reason) = denied_for {
            events::record_on_span("denied", Some(rule.name()), Some(reason.as_str()));
            if events::is_denial_logged()
                && let Some(one_in) = observer.logs_denial(events::second())
            {
                events::keyless(rule, one_in);
            }
        }
        let _ = (rule, observer, denied_for);
    }
}

/// How far a store may be ahead, in seconds.
#[cfg(feature = "metrics")]
const MOST_AHEAD: u64 = 10;

#[cfg(feature = "metrics")]
impl Observer {
    /// The first request of a second brings gauges up to date, and counters that are behind. The store's usage takes the locks of a
    /// rule's shards one after another.
    fn update_once_a_second(&self, store: &dyn RuleStore, at: Tick) {
        use std::sync::atomic::Ordering;
        let (second, updated_at) = (at / 1_000_000, self.updated_at.load(Ordering::Relaxed));
        // The clock of the store may be ahead of that of this process, and both may decide in turn.
        if updated_at.wrapping_sub(second) < MOST_AHEAD
            || self.updated_at.swap(second, Ordering::Relaxed) == second
        {
            return;
        }
        self.show(store, true);
    }

    /// Hands to the recorder what it does not know of, of the rules that were used.
    pub(super) fn flush(&self, store: &dyn RuleStore) {
        self.show(store, false);
    }

    /// Counters, and gauges where these are shown too.
    fn show(&self, store: &dyn RuleStore, shows_gauges: bool) {
        for (index, (rule, observer)) in self.set.rules().iter().zip(&self.rules).enumerate() {
            // Also of a rule that this one has replaced.
            if let Some(counters) = observer.history.counters.get() {
                counters.publish();
            }
            if matches!(rule.mode(), Mode::Threshold { .. }) {
                continue;
            }
            // A rule set has fewer than 65 536 rules.
            let index = index as u16;
            let usage = match shows_gauges {
                true => store.usage(index),
                false => store.usage_counters(index),
            };
            // The series of a rule begin with its first key.
            if let Some(usage) = usage.filter(|_| shows_gauges)
                && (usage != Usage::default() || observer.metrics.get().is_some())
            {
                observer.metrics(rule);
                show_tracked(rule, usage);
            }
            if let Some(metrics) = observer.metrics.get() {
                metrics.show_counted(usage, store.lapsed_units(index));
            }
        }
    }
}

crate::debug_fields!(Observer);

// Blocks: what operators are told when one begins, or has to go early.

/// A block of a key has begun: for stores, once for each.
pub fn block_began(rule: &Rule, key: Fingerprint, block: ActiveBlock) {
    #[cfg(feature = "metrics")]
    super::rule_metrics::blocks_of(rule, block.level).increment(1);
    #[cfg(feature = "tracing")]
    super::events::blocked(rule, key, block);
    let _ = (rule, key, block);
}

/// Blocks in force had to go early: this many so far in a part of the rule's table. Told at each power of two.
pub(crate) fn blocks_evicted(rule: &Rule, evicted: u64) {
    #[cfg(feature = "tracing")]
    if evicted.is_power_of_two() {
        super::events::block_evicted(rule, evicted);
    }
    let _ = (rule, evicted);
}

// What is kept of one rule for metrics, the log and its top keys.

/// It costs little before the rule is used.
#[derive(Debug)]
pub(super) struct RuleObserver {
    history: Arc<RuleHistory>,
    #[cfg(feature = "metrics")]
    metrics: OnceLock<Box<RuleMetrics>>,
}

/// What stays when another rule of the same name takes the place of one.
#[derive(Debug, Default)]
struct RuleHistory {
    #[cfg(feature = "metrics")]
    counters: OnceLock<Arc<RuleCounters>>,
    #[cfg(feature = "tracing")]
    denials: Mutex<DenialSampler>,
    top_keys: OnceLock<Box<TopKeys>>,
}

impl RuleObserver {
    fn of(history: Arc<RuleHistory>) -> Self {
        Self {
            history,
            #[cfg(feature = "metrics")]
            metrics: OnceLock::new(),
        }
    }

    /// The top keys, from the first use on.
    fn top_keys(&self) -> &TopKeys {
        self.history.top_keys.get_or_init(Box::default)
    }

    /// The same, if the rule keeps them and there was a request.
    fn top_keys_before(&self, rule: &Rule) -> Option<&TopKeys> {
        let top_keys = self.history.top_keys.get().map(|it| &**it);
        top_keys.filter(|_| rule.keeps_top_keys())
    }

    /// Logs some denials of an enforced rule, and each request that passes although the store failed: with what support needs.
    #[cfg(feature = "tracing")]
    fn log(
        &self,
        rule: &Rule,
        check: Option<&Check>,
        verdict: &Verdict,
        decision: &Decision,
        route: &str,
        at: Tick,
    ) {
        let is_denied = verdict.outcome() == Outcome::Deny;
        let passes = verdict.source() == Source::Fallback && decision.is_allowed();
        if !(is_denied || passes) || !events::is_denial_logged() {
            return;
        }
        let one_in = is_denied.then(|| self.logs_denial(at / 1_000_000));
        if one_in == Some(None) {
            return;
        }
        let top_keys = self.top_keys_before(rule).zip(check);
        let tenant = top_keys.and_then(|(top_keys, check)| top_keys.label(check));
        let plan = rule.plan_name(verdict.plan()).map(shown);
        let subject_type = rule.subject_type_name().map(shown);
        let tenant = tenant.as_deref().map(shown);
        let route = (!route.is_empty()).then(|| shown(route));
        tracing::debug!(
            target: "tollgate",
            rule = rule.name(),
            answer = (!is_denied).then_some(if verdict.is_degraded() { "passed" } else { "allowed" }),
            reason = decision.reason().map(Reason::as_str),
            source = verdict.source().as_str(),
            retry_after_ms = decision.retry_after().map(millis),
            algorithm = rule.quota().algorithm().name(),
            plan = plan.as_deref(),
            subject_type = subject_type.as_deref(),
            tenant = tenant.as_deref(),
            limit = rule.limit_under(verdict.plan()),
            remaining = verdict.knows_remaining().then(|| verdict.remaining()),
            cost = check.map(Check::cost),
            key = check.map(|check| tracing::field::display(check.key().prefix())),
            at_ms = decision.at() / 1_000,
            route = route.as_deref(),
            one_in = one_in.flatten(),
            "{}",
            match is_denied {
                true => "request denied",
                false => "request passed while the store failed",
            }
        );
    }

    /// A denial in this second. `Some`: it is logged, and stands for this number of denials.
    #[cfg(feature = "tracing")]
    fn logs_denial(&self, second: u64) -> Option<u64> {
        lock(&self.history.denials).log(second)
    }

    /// The metrics, from the first use on.
    #[cfg(feature = "metrics")]
    fn metrics(&self, rule: &Rule) -> &RuleMetrics {
        self.metrics.get_or_init(|| {
            let counters = self.history.counters.get_or_init(Arc::default);
            Box::new(RuleMetrics::new(rule, counters))
        })
    }
}

// How long decisions take.

/// The start of a decision, for `tollgate_check_duration_seconds`. The clock is read for one in 16 of a thread's decisions,
/// and only with the feature `metrics`.
#[must_use = "a timer measures up to the report that it is given to"]
#[derive(Clone, Copy, Debug)]
pub struct Timer {
    #[cfg(feature = "metrics")]
    start: Option<std::time::Instant>,
}

/// One decision of a thread in this number is timed.
#[cfg(feature = "metrics")]
const ONE_IN: u32 = 16;

#[cfg(feature = "metrics")]
thread_local! {
    static COUNT: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

impl Timer {
    /// Starts now.
    #[inline]
    pub fn start() -> Self {
        Self {
            #[cfg(feature = "metrics")]
            start: COUNT
                .replace(COUNT.get().wrapping_add(1))
                .is_multiple_of(ONE_IN)
                .then(now),
        }
    }

    /// The time since the start, if this decision is timed.
    #[cfg(feature = "metrics")]
    pub(crate) fn elapsed(self) -> Option<std::time::Duration> {
        Some(self.start?.elapsed())
    }
}

#[cfg(feature = "metrics")]
#[expect(
    clippy::disallowed_methods,
    reason = "a duration for a histogram decides nothing"
)]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

#[cfg(all(test, feature = "metrics"))]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_each_sixteenth_decision_of_a_thread_is_timed() {
        let timed = std::thread::spawn(|| {
            let timed = (0..33).filter(|_| Timer::start().elapsed().is_some());
            timed.count()
        });
        assert_eq!(timed.join().expect("no panic"), 3);
    }
}
