//! What is seen from outside: metrics (feature `metrics`) and events (feature `tracing`).

mod engine_observer;
mod events;
mod labels;
#[cfg(feature = "metrics")]
mod meters;
mod observer;
mod rule_counts;
#[cfg(feature = "metrics")]
mod rule_meters;
mod stopwatch;
#[cfg(feature = "metrics")]
mod striped_count;
#[cfg(feature = "metrics")]
mod traffic_meters;
mod what;

pub(crate) use self::{
    engine_observer::EngineObserver, observer::Observer, rule_counts::RuleCounts,
    stopwatch::Stopwatch, what::CallFor,
};
