//! What operators see: metrics, events, top keys and records of decisions.
//!
//! A [`Limiter`](crate::Limiter) reports each of its decisions, to a layer, a worker or a client alike. The features
//! choose how, and cost nothing where they are off:
//!
//! | feature | adds |
//! | --- | --- |
//! | `metrics` | counters, gauges and histograms through the [`metrics`](https://docs.rs/metrics) facade; [`flush_metrics`] makes them exact under load |
//! | `tracing` | events of denials, outages and hot keys |
//!
//! Without a feature, rules that [keep them](crate::Rule::top_keys) have [top keys](crate::Limiter::top_keys), and a decision
//! can be turned into [records](crate::Decision::records).
//!
//! Under load each stripe of threads counts for itself, so that no request writes what others write as well.

mod buckets;
#[cfg(feature = "metrics")]
mod counts;
#[cfg(feature = "tracing")]
mod denial_sampler;
#[cfg(feature = "metrics")]
mod flush;
#[cfg(feature = "metrics")]
mod handles;
#[cfg(feature = "metrics")]
mod names;
mod observer;
#[cfg(feature = "tracing")]
mod outage;
mod recent_keys;
mod record;
mod rule_observer;
#[cfg(feature = "metrics")]
mod series;
mod shown;
mod sketch;
#[cfg(feature = "metrics")]
mod table_gauges;
mod timer;
mod top_keys;
mod waiting;

#[cfg(feature = "metrics")]
pub use self::flush::flush_metrics;
pub use self::{
    buckets::{
        BUCKETS, CHECK_DURATION_BUCKETS, REMAINING_BUCKETS, RETRY_AFTER_BUCKETS, WAIT_BUCKETS,
    },
    observer::Observer,
    record::DecisionRecord,
    shown::shown,
    timer::Timer,
    top_keys::TopKey,
    waiting::Waiting,
};
