//! Parsing what a server says about its limits: pure functions of a response's head and the time.

mod advised_budget;
mod grpc;
mod provider;
mod ratelimit_dictionary;
mod ratelimit_list;
mod retry_after;
mod server_advice;
mod server_limits;
mod structured;
mod time_until;
mod triple;

pub use self::server_limits::ServerLimits;
pub(crate) use self::{advised_budget::AdvisedBudget, server_advice::ServerAdvice};
