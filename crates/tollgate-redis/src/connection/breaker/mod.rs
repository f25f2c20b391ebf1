//! The breaker of a node: while its server is in trouble, requests are told so without I/O.
//!
//! A request reads one word. Only the node's supervisor writes it, after it has told the [`Machine`](machine::Machine) what became of calls
//! and probes.

#[allow(clippy::module_inception, reason = "the file is named after its type")]
mod breaker;
pub(in crate::connection) mod machine;
pub(in crate::connection) mod options;
mod recent;

pub use self::options::BreakerOptions;
pub(super) use self::{breaker::Breaker, machine::Plan};
