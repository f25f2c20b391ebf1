//! What operators see: metrics, events and top keys.
//!
//! A [`Limiter`](crate::Limiter) reports each of its decisions, to a layer, a worker or a client alike. The features
//! choose how, and cost nothing where they are off:
//!
//! | feature | adds |
//! | --- | --- |
//! | `metrics` | counters, gauges and histograms through the [`metrics`](https://docs.rs/metrics) facade; [`flush_metrics`] makes the counters exact |
//! | `tracing` | events of denials, outages and hot keys |
//!
//! Without a feature, rules that [keep them](crate::Rule::top_keys) have [top keys](crate::Limiter::top_keys).
//!
//! Nothing runs in the background: requests do it all. Each rule counts its requests by plan, decision, reason and source
//! (`rule_counters`), readable with [`Limiter::counts`](crate::Limiter::counts), and hands the numbers to the recorder of the
//! application (`rule_metrics`). What is kept under a rule's name stays when another rule takes its place (`observer`).

mod buckets;
#[cfg(feature = "tracing")]
mod events;
#[cfg(feature = "metrics")]
pub(crate) mod flush;
#[cfg(feature = "metrics")]
mod names;
pub(crate) mod observer;
#[cfg(feature = "metrics")]
mod rule_counters;
#[cfg(feature = "metrics")]
mod rule_metrics;
#[cfg(feature = "metrics")]
mod series;
mod shown;
mod space_saving;
mod top_keys;
#[cfg(feature = "metrics")]
pub(crate) mod waiting;
/// Without the feature `metrics` nobody counts the requests that wait.
#[cfg(not(feature = "metrics"))]
pub(crate) mod waiting {
    use std::time::Duration;

    use crate::{check::Check, decision::Reason, rule_set::RuleSet};

    pub(crate) struct WaitReport;

    impl WaitReport {
        pub(crate) fn begin(_: &RuleSet, _: &[Check]) -> Self {
            Self
        }

        pub(crate) fn ended(self, _: Option<Reason>, _: Duration) {}
    }
}

#[cfg(feature = "metrics")]
pub use self::flush::flush_metrics;
#[cfg(feature = "metrics")]
pub use self::rule_counters::{RequestCount, RuleCounts};
#[cfg(feature = "metrics")]
pub(crate) use self::rule_metrics::credits_of;
pub use self::{
    buckets::BUCKETS,
    observer::{Observer, Timer, block_began},
    shown::shown,
    top_keys::TopKey,
};
