//! What a recorder of metrics has kept.

use std::collections::BTreeMap;

use metrics::{LocalRecorderGuard, set_default_local_recorder};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

/// Records the metrics of this thread, for as long as it lives.
#[must_use]
pub struct Metrics {
    snapshotter: Snapshotter,
    _guard: LocalRecorderGuard<'static>,
}

impl Metrics {
    /// Starts recording.
    pub fn record() -> Self {
        // The guard borrows its recorder. A test records once, and its process ends soon.
        let recorder: &DebuggingRecorder = Box::leak(Box::default());
        Self {
            snapshotter: recorder.snapshotter(),
            _guard: set_default_local_recorder(recorder),
        }
    }

    /// What was recorded so far. Counters and gauges begin anew after that.
    #[must_use]
    pub fn counted(&self) -> Counted {
        tollgate::observe::flush_metrics();
        self.published()
    }

    /// The same, without what is counted and not published yet.
    #[must_use]
    pub fn published(&self) -> Counted {
        Counted::of(&self.snapshotter)
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// What was counted, by name and labels: `tollgate_requests_total{rule=one,decision=allowed}`.
#[derive(Debug)]
pub struct Counted(BTreeMap<String, DebugValue>);

impl Counted {
    fn of(snapshotter: &Snapshotter) -> Self {
        let taken = snapshotter.snapshot().into_vec().into_iter();
        Self(
            taken
                .map(|(key, _, _, value)| {
                    let key = key.key();
                    let labels: Vec<_> = key
                        .labels()
                        .map(|label| format!("{}={}", label.key(), label.value()))
                        .collect();
                    (format!("{}{{{}}}", key.name(), labels.join(",")), value)
                })
                .collect(),
        )
    }

    /// A counter; 0 if nothing was counted.
    ///
    /// # Panics
    ///
    /// If it is something else.
    #[must_use]
    pub fn count(&self, name: &str) -> u64 {
        match self.0.get(name) {
            None => 0,
            Some(DebugValue::Counter(count)) => *count,
            Some(other) => panic!("{name} is {other:?}"),
        }
    }

    /// A gauge.
    ///
    /// # Panics
    ///
    /// If it is something else, or not there.
    #[must_use]
    pub fn gauge(&self, name: &str) -> f64 {
        match self.0.get(name) {
            Some(DebugValue::Gauge(value)) => value.0,
            other => panic!("{name} is {other:?}"),
        }
    }

    /// What a histogram was given.
    ///
    /// # Panics
    ///
    /// If it is something else.
    #[must_use]
    pub fn recorded(&self, name: &str) -> Vec<f64> {
        match self.0.get(name) {
            None => Vec::new(),
            Some(DebugValue::Histogram(values)) => values.iter().map(|value| value.0).collect(),
            Some(other) => panic!("{name} is {other:?}"),
        }
    }

    /// The requests of a rule with this decision.
    #[must_use]
    pub fn requests(&self, rule: &str, decision: &str) -> u64 {
        let labels = [("rule", rule), ("decision", decision)];
        self.sum("tollgate_requests_total", &labels)
    }

    /// All counters of this name that have these labels, together.
    ///
    /// # Panics
    ///
    /// If one is no counter.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let has = |series: &str, (label, value): &(&str, &str)| {
            let labels = series.trim_end_matches('}').split(['{', ',']);
            labels.skip(1).any(|one| one == format!("{label}={value}"))
        };
        let is_it = |series: &&String| {
            let rest = series.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with('{'))
                && labels.iter().all(|label| has(series, label))
        };
        self.names()
            .filter(is_it)
            .map(|series| self.count(series))
            .sum()
    }

    /// Everything that was counted.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }
}
