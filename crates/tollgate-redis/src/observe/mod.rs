//! What is seen from outside: metrics (feature `metrics`) and events (feature `tracing`).

mod calls;
mod events;
#[cfg(feature = "metrics")]
mod meters;
mod observer;
mod rule_counts;
#[cfg(feature = "metrics")]
mod traffic_meters;

pub(crate) use self::{
    calls::{CallFor, Stopwatch},
    observer::{EngineObserver, Observer},
    rule_counts::RuleCounts,
};
