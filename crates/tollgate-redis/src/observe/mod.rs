//! What is seen from outside: metrics (feature `metrics`) and events (feature `tracing`).

mod events;
#[cfg(feature = "metrics")]
mod meters;
mod observer;
mod timer;

pub(crate) use self::{observer::Observer, timer::Timer};
