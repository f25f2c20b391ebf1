//! Requests that wait: how many, for how long, and what becomes of them.

use std::{fmt, time::Duration};

#[cfg(feature = "metrics")]
use metrics::{Gauge, counter, gauge, histogram};
#[cfg(feature = "metrics")]
use smallvec::SmallVec;

use crate::{
    check::Check,
    decision::{Decision, Reason},
    rule_set::RuleSet,
};
#[cfg(feature = "metrics")]
use crate::{
    observe::names::{WAIT, WAITING, WAITS, describe_waiting},
    rule::Rule,
    wait_queue::rules_to_wait_for,
};

/// A request that waits, for metrics: made by [`Observer::waiting`](crate::observe::Observer::waiting) when it begins to wait.
/// If it is dropped before [`ended`](Self::ended) is called, the request counts as abandoned.
#[must_use = "dropped, the request counts as abandoned"]
pub struct Waiting {
    #[cfg(feature = "metrics")]
    rules: SmallVec<[RuleWait; 1]>,
    #[cfg(not(feature = "metrics"))]
    _private: (),
}

/// A request that waits for one rule.
#[cfg(feature = "metrics")]
struct RuleWait {
    rule: std::sync::Arc<str>,
    now: Gauge,
}

/// What became of a request that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitOutcome {
    Admitted,
    Denied,
    QueueFull,
    WaitExpired,
    #[cfg(feature = "metrics")]
    Abandoned,
}

#[cfg(feature = "metrics")]
impl WaitOutcome {
    const ALL: [Self; 5] = [
        Self::Admitted,
        Self::Denied,
        Self::QueueFull,
        Self::WaitExpired,
        Self::Abandoned,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Denied => "denied",
            Self::QueueFull => "queue_full",
            Self::WaitExpired => "wait_expired",
            Self::Abandoned => "abandoned",
        }
    }
}

impl Waiting {
    /// The wait of a request with these checks: under the rules that let it wait, or else under all that are enforced.
    pub(super) fn begin(set: &RuleSet, checks: &[Check]) -> Self {
        #[cfg(feature = "metrics")]
        {
            let rules = rules_to_wait_for(set.rules(), checks);
            let mut rules: SmallVec<[&Rule; 1]> = rules.into_iter().map(|(rule, _)| rule).collect();
            rules.dedup_by_key(|rule| rule.name());
            Self {
                rules: rules.into_iter().map(RuleWait::begin).collect(),
            }
        }
        #[cfg(not(feature = "metrics"))]
        {
            let _ = (set, checks);
            Self { _private: () }
        }
    }

    /// The request was decided after it had waited.
    pub fn ended(self, decision: &Decision, waited: Duration) {
        let outcome = match decision.reason() {
            _ if decision.is_allowed() => WaitOutcome::Admitted,
            Some(Reason::QueueFull) => WaitOutcome::QueueFull,
            Some(Reason::WaitExpired) => WaitOutcome::WaitExpired,
            _ => WaitOutcome::Denied,
        };
        self.end(outcome, waited);
    }

    /// It was turned away, because the queue was full.
    pub(crate) fn turned_away(self) {
        self.end(WaitOutcome::QueueFull, Duration::ZERO);
    }

    /// It has waited in vain.
    pub(crate) fn expired(self) {
        self.end(WaitOutcome::WaitExpired, Duration::ZERO);
    }

    #[cfg_attr(not(feature = "metrics"), expect(unused_mut, reason = "of metrics"))]
    fn end(mut self, outcome: WaitOutcome, waited: Duration) {
        #[cfg(feature = "metrics")]
        for rule in self.rules.drain(..) {
            rule.end(outcome, waited);
        }
        #[cfg(not(feature = "metrics"))]
        let _ = (outcome, waited);
    }
}

#[cfg(feature = "metrics")]
impl Drop for Waiting {
    fn drop(&mut self) {
        for rule in self.rules.drain(..) {
            rule.end(WaitOutcome::Abandoned, Duration::ZERO);
        }
    }
}

#[cfg(feature = "metrics")]
impl RuleWait {
    /// The series of alerts begin at 0.
    fn begin(rule: &Rule) -> Self {
        describe_waiting();
        let rule = rule.shared_name();
        for outcome in WaitOutcome::ALL {
            count(rule, outcome, 0);
        }
        let now = gauge!(WAITING, "rule" => std::sync::Arc::clone(rule));
        now.increment(1.0);
        Self {
            rule: std::sync::Arc::clone(rule),
            now,
        }
    }

    fn end(self, outcome: WaitOutcome, waited: Duration) {
        self.now.decrement(1.0);
        count(&self.rule, outcome, 1);
        if outcome == WaitOutcome::Admitted {
            histogram!(WAIT, "rule" => self.rule).record(waited.as_secs_f64());
        }
    }
}

#[cfg(feature = "metrics")]
fn count(rule: &std::sync::Arc<str>, outcome: WaitOutcome, times: u64) {
    let rule = std::sync::Arc::clone(rule);
    counter!(WAITS, "rule" => rule, "outcome" => outcome.as_str()).increment(times);
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "metrics", not(tollgate_shuttle)))]
mod tests {
    use std::{
        cell::RefCell,
        collections::BTreeMap,
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering},
        },
    };

    use metrics::{
        Counter, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString,
        Unit, with_local_recorder,
    };

    use super::*;
    use crate::{
        key::Fingerprint,
        quota::Quota,
        sync::{Mutex, lock},
        time::SECOND,
    };

    /// The requests by what became of them, those that wait, and how long those waited that were admitted.
    #[derive(Default)]
    struct Counted {
        outcomes: RefCell<BTreeMap<String, Arc<AtomicU64>>>,
        waiting: Arc<AtomicU64>,
        seconds: Arc<Seconds>,
    }

    type End = fn(Waiting);

    #[derive(Default)]
    struct Seconds(Mutex<Vec<f64>>);

    impl HistogramFn for Seconds {
        fn record(&self, value: f64) {
            lock(&self.0).push(value);
        }
    }

    impl Recorder for Counted {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            let outcome = key.labels().find(|label| label.key() == "outcome");
            let outcome = outcome.expect("it has one").value().to_owned();
            let mut outcomes = self.outcomes.borrow_mut();
            Counter::from_arc(Arc::clone(outcomes.entry(outcome).or_default()))
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            self.waiting.set(0.0);
            Gauge::from_arc(Arc::clone(&self.waiting))
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::from_arc(Arc::clone(&self.seconds))
        }
    }

    #[test]
    fn a_request_that_waited_counts_once_by_what_became_of_it() {
        let rule = Rule::new("rule", Quota::gcra(1, SECOND)).wait(SECOND);
        let rules = RuleSet::new([rule]).expect("a valid rule");
        let check = Check::new(0, Fingerprint::from_bits(1), 1);
        let ends: [(&str, End); 7] = [
            ("admitted", |waiting| {
                waiting.ended(&Decision::unlimited(0), 2 * SECOND);
            }),
            ("denied", |waiting| {
                waiting.ended(&Decision::without_key(), 2 * SECOND);
            }),
            ("queue_full", |waiting| {
                let decision = Decision::without_key().denied_for(Reason::QueueFull);
                waiting.ended(&decision, 2 * SECOND);
            }),
            ("wait_expired", |waiting| {
                let decision = Decision::without_key().denied_for(Reason::WaitExpired);
                waiting.ended(&decision, 2 * SECOND);
            }),
            ("queue_full", Waiting::turned_away),
            ("wait_expired", Waiting::expired),
            ("abandoned", drop),
        ];
        for (outcome, end) in ends {
            let counted = Counted::default();
            let waiting = || f64::from_bits(counted.waiting.load(Ordering::Relaxed));
            with_local_recorder(&counted, || {
                let request = Waiting::begin(&rules, &[check]);
                assert_eq!(waiting(), 1.0);
                end(request);
            });
            assert_eq!(waiting(), 0.0);
            let is_admitted = outcome == "admitted";
            let times: &[f64] = if is_admitted { &[2.0] } else { &[] };
            assert_eq!(*lock(&counted.seconds.0), times);
            let outcomes = counted.outcomes.take();
            assert_eq!(outcomes.len(), WaitOutcome::ALL.len());
            for (found, times) in outcomes {
                let expected = u64::from(found == outcome);
                assert_eq!(times.load(Ordering::Relaxed), expected, "{found}");
            }
        }
    }
}
