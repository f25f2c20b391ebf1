//! Counters and histograms with the feature `metrics`, events with the feature `tracing`.

mod events;
#[cfg(feature = "metrics")]
mod meters;
mod observer;
mod reported_names;
mod timer;

pub(crate) use self::{observer::Observer, timer::Timer};
