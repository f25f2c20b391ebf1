//! The breaker of a node: while its server fails, requests fail at once, without I/O.
//!
//! A request reads one word. Only the node's supervisor writes it, after it has passed the outcome of calls and probes to the
//! [`Machine`](machine::Machine).

#[allow(clippy::module_inception, reason = "the file is named after its type")]
mod breaker;
mod machine;

pub(super) use self::breaker::Breaker;
pub(crate) use self::machine::BreakerOptions;
pub use self::machine::BreakerState;
