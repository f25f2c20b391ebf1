//! The layer and its service: one decision for each request.

mod admission;
mod admit;
mod body;
pub(crate) mod config;
pub(crate) mod decide;
pub(crate) mod deny;
mod duplicate_detector;
mod future;
mod layer;
mod look_ups;
mod refund;
pub(crate) mod registered_config;
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
