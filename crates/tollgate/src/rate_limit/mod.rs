//! The layer and its service: one decision for each request.

mod admission;
mod admit;
mod at_end;
mod body;
pub(crate) mod config;
pub(crate) mod decide;
pub(crate) mod deny;
mod duplicate_detector;
mod future;
mod layer;
mod layer_rules;
pub(crate) mod live_config;
mod look_ups;
mod refund;
pub(crate) mod request_rules;
pub(crate) mod rules_handle;
mod service;
pub(crate) mod service_config;
mod settlement;
mod wait_room;

pub use self::{
    admission::{Admission, Denied, RuleVerdict},
    body::ResponseBody,
    future::ResponseFuture,
    layer::RateLimitLayer,
    refund::Refund,
    rules_handle::RulesHandle,
    service::RateLimit,
};
