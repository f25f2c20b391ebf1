//! What is seen from outside: metrics (feature `metrics`) and events (feature `tracing`).

#[cfg(feature = "metrics")]
mod metrics;
mod observer;
#[cfg(feature = "tracing")]
mod standing;

pub(crate) use self::observer::{CallFor, Observer};
