//! What a recorder of metrics has kept.

use std::collections::BTreeMap;

use metrics_util::debugging::{DebugValue, Snapshotter};

/// What was counted, by name and labels: `tollgate_requests_total{rule=one,decision=allowed}`.
#[derive(Debug)]
pub struct Counted(BTreeMap<String, DebugValue>);

impl Counted {
    /// What a recorder has kept so far. Counters begin anew after that.
    #[must_use]
    pub fn of(snapshotter: &Snapshotter) -> Self {
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
        self.count(&format!(
            "tollgate_requests_total{{rule={rule},decision={decision}}}"
        ))
    }

    /// Everything that was counted.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }
}
