//! What is counted of a rule's requests: readable in the process, and handed to the recorder of the application.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use metrics::{Counter, counter};
use parking_lot::Mutex;

use crate::{
    observe::{
        names::{REQUESTS, UNITS},
        series::Series,
        shown::shown,
    },
    rule::Rule,
    striped::PerStripe,
    time::Tick,
};

/// What a limiter has counted of a rule: the same numbers as in the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RuleCounts {
    /// The name of the rule.
    pub rule: String,
    /// Its requests, by plan, decision, reason and source. Those that never happened are left out.
    pub requests: Vec<RequestCount>,
}

/// The requests of a rule that were decided in one way. The words are those of the labels of `tollgate_requests_total`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RequestCount {
    /// The plan; `none` for the rule's own quota, `computed` for one that a check brought along.
    pub plan: String,
    /// `allowed`, `denied`, `shadow_denied`, …
    pub decision: &'static str,
    /// `quota`, `never`, …; `none` of what was not denied.
    pub reason: &'static str,
    /// `store`, `deny_cache`, `lease`, `local`, `fallback`, `credits`; `none` of what was not decided.
    pub source: &'static str,
    /// The requests.
    pub requests: u64,
    /// The units that they asked for.
    pub units: u64,
}

impl RuleCounts {
    /// The requests with this decision, such as `allowed`.
    #[must_use]
    pub fn decided(&self, decision: &str) -> u64 {
        let counts = self.requests.iter().filter(|it| it.decision == decision);
        counts.map(|it| it.requests).sum()
    }

    /// The denied requests with this reason, such as `quota`.
    #[must_use]
    pub fn denied_for(&self, reason: &str) -> u64 {
        let denied = self.requests.iter().filter(|it| it.decision == "denied");
        let counts = denied.filter(|it| it.reason == reason);
        counts.map(|it| it.requests).sum()
    }
}

/// The counters of the rules with one name that take the place of each other.
#[derive(Debug, Default)]
pub(super) struct RuleCounters {
    series: Mutex<Vec<Arc<SeriesCounter>>>,
}

/// The requests of one series.
pub(super) struct SeriesCounter {
    /// Once for each stripe of threads: a line that two processors write in turns costs as much as all the rest.
    numbers: PerStripe<Numbers>,
    algorithm: &'static str,
    subject_type: Arc<str>,
    plan: Arc<str>,
    pub(super) series: Series,
    requests: Counter,
    units: Counter,
}

/// All that a request writes.
#[derive(Debug, Default)]
struct Numbers {
    /// Requests of one unit: most are.
    single: AtomicU64,
    others: AtomicU64,
    units_of_others: AtomicU64,
    /// What the recorder knows of.
    published_requests: AtomicU64,
    published_units: AtomicU64,
    /// When, in units of 1 024 µs.
    published_at: AtomicU64,
}

impl Numbers {
    fn requests(&self) -> u64 {
        self.single.load(Ordering::Relaxed) + self.others.load(Ordering::Relaxed)
    }

    fn units(&self) -> u64 {
        let others = self.units_of_others.load(Ordering::Relaxed);
        self.single.load(Ordering::Relaxed).saturating_add(others)
    }
}

/// The first requests of a series are handed over one by one,
const ONE_BY_ONE: u64 = 64;
/// and later ones of a millisecond together, so that not all processors write what the recorder has.
const TOGETHER: u64 = 64;

impl RuleCounters {
    /// The counter of a series. It is made at the first use: one that was made before the application has installed its
    /// recorder would never count.
    pub(super) fn series(&self, rule: &Rule, plan: &str, series: Series) -> Arc<SeriesCounter> {
        let algorithm = rule.quota().algorithm().name();
        let subject_type = shown(rule.subject_type_name().unwrap_or("none"));
        let mut known = self.series.lock();
        let labels = (series, algorithm, plan, &*subject_type);
        let same = known
            .iter()
            .find(|it| (it.series, it.algorithm, &*it.plan, &*it.subject_type) == labels);
        if let Some(same) = same {
            return Arc::clone(same);
        }
        let (subject_type, plan): (Arc<str>, Arc<str>) = (subject_type.into(), plan.into());
        let name = || Arc::clone(rule.shared_name());
        let [decision, reason, source] = series.labels();
        let counter = Arc::new(SeriesCounter {
            requests: counter!(
                REQUESTS,
                "rule" => name(),
                "algorithm" => algorithm,
                "subject_type" => Arc::clone(&subject_type),
                "plan" => Arc::clone(&plan),
                "decision" => decision,
                "reason" => reason,
                "source" => source,
            ),
            units: match series.counts_units() {
                true => {
                    counter!(UNITS, "rule" => name(), "algorithm" => algorithm, "plan" => Arc::clone(&plan), "decision" => decision)
                }
                false => Counter::noop(),
            },
            numbers: PerStripe::new(|_| Numbers::default()),
            algorithm,
            subject_type,
            plan,
            series,
        });
        known.push(Arc::clone(&counter));
        counter
    }

    /// Hands to the recorder what it does not know of.
    pub(super) fn publish(&self) {
        self.series.lock().iter().for_each(|it| it.publish());
    }

    pub(super) fn counts(&self) -> Vec<RequestCount> {
        let series = self.series.lock();
        let counts = series.iter().map(|it| {
            let [decision, reason, source] = it.series.labels();
            RequestCount {
                plan: it.plan.to_string(),
                decision,
                reason,
                source,
                requests: it.numbers.iter().map(Numbers::requests).sum(),
                units: it.numbers.iter().map(Numbers::units).sum(),
            }
        });
        counts.filter(|it| it.requests > 0).collect()
    }
}

impl Drop for RuleCounters {
    fn drop(&mut self) {
        self.publish();
    }
}

impl SeriesCounter {
    /// Counts a request. Returns how many such there were before on this stripe.
    pub(super) fn count(&self, units: u64, at: Tick) -> u64 {
        let numbers = self.numbers.here();
        let before = match units {
            1 => numbers.single.fetch_add(1, Ordering::Relaxed),
            _ => {
                numbers.units_of_others.fetch_add(units, Ordering::Relaxed);
                numbers.others.fetch_add(1, Ordering::Relaxed)
            }
        };
        let time = at >> 10;
        if before < ONE_BY_ONE
            || before.is_multiple_of(TOGETHER)
            || numbers.published_at.load(Ordering::Relaxed) != time
        {
            numbers.published_at.store(time, Ordering::Relaxed);
            self.publish_of(numbers);
        }
        before
    }

    /// Counts a request whose time is not known, and hands it to the recorder: no later one may do that.
    pub(super) fn count_at_once(&self) {
        let numbers = self.numbers.here();
        numbers.others.fetch_add(1, Ordering::Relaxed);
        self.publish_of(numbers);
    }

    fn publish(&self) {
        self.numbers.iter().for_each(|it| self.publish_of(it));
    }

    fn publish_of(&self, numbers: &Numbers) {
        let requests = (&numbers.published_requests, &self.requests);
        let units = (&numbers.published_units, &self.units);
        let counted = [(numbers.requests(), requests), (numbers.units(), units)];
        for (now, (published, recorder)) in counted {
            // Another thread may have published a later one.
            let before = published.fetch_max(now, Ordering::Relaxed);
            if now > before {
                recorder.increment(now - before);
            }
        }
    }
}

crate::debug_fields!(SeriesCounter);
