//! What is seen from outside: metrics (feature `metrics`) and events (feature `tracing`).

#[cfg(feature = "metrics")]
mod handles;
#[cfg(feature = "metrics")]
mod names;
mod observer;
mod rule_counts;
#[cfg(feature = "tracing")]
mod standing;

pub(crate) use self::{
    observer::{CallFor, Observer, Stopwatch},
    rule_counts::RuleCounts,
};
