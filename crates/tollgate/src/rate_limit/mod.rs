//! The layer and its service: one decision for each request.

mod admission;
mod admit;
mod applied;
mod body;
pub(crate) mod config;
pub(crate) mod decide;
mod deny;
mod future;
mod layer;
pub(crate) mod live;
mod look_ups;
mod refund;
pub(crate) mod request_rules;
mod service;

pub use self::{
    admission::{Admission, Denied, RuleVerdict},
    body::ResponseBody,
    future::ResponseFuture,
    layer::RateLimitLayer,
    refund::Refund,
    service::RateLimit,
};
