//! Parsing what a server says about its limits: pure functions of a response's head and the time.

mod advised_budget;
mod grpc;
mod ratelimit;
mod server_advice;
mod time_until;
mod triple;

pub use self::advised_budget::ServerLimits;
pub(crate) use self::{advised_budget::AdvisedBudget, server_advice::ServerAdvice};
