//! What tollgate costs.
//!
//! [`workload`] says who asks, [`check`] and [`layer`] what is asked (of memory, or of a [`fallible`] store), and [`scenario`] puts them together for the benches
//! and for a profiler. How to run them is in `benches/README.md`.

pub mod check;
pub mod fallible;
pub mod layer;
#[cfg(feature = "observe")]
pub mod recorder;
pub mod redis;
pub mod scenario;
pub mod workload;
