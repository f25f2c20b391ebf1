//! What is seen from outside: metrics (feature `metrics`) and events (feature `tracing`).

mod calls;
#[cfg(feature = "metrics")]
mod handles;
#[cfg(feature = "metrics")]
mod names;
mod observer;
mod rule_counts;
#[cfg(feature = "tracing")]
mod standing;

pub(crate) use self::{
    calls::{CallFor, Stopwatch},
    observer::Observer,
    rule_counts::RuleCounts,
};
