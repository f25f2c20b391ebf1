//! What operators see: counters and histograms with the feature `metrics`, events with the feature `tracing`.

mod events;
#[cfg(feature = "metrics")]
mod meters;
mod observer;

pub(crate) use self::observer::{Observer, Timer};
