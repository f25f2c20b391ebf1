//! What is seen from outside: metrics (feature `metrics`) and events (feature `tracing`).

mod events;
#[cfg(feature = "metrics")]
mod meters;
mod observer;
mod rule_counts;
#[cfg(feature = "metrics")]
mod traffic_meters;

pub(crate) use self::{
    observer::{CallFor, EngineObserver, Observer, Stopwatch},
    rule_counts::RuleCounts,
};
