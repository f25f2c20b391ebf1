//! The layer and its service: one decision for each request.

mod admission;
pub(crate) mod admit;
mod body;
pub(crate) mod config;
pub(crate) mod decide;
pub(crate) mod deny;
mod future;
mod inspection;
mod layer;
mod limits_endpoint;
pub(crate) mod live_config;
mod request_parts;
pub(crate) mod request_rules;
mod route_index;
pub(crate) mod rules_handle;
mod service;
pub(crate) mod settings;
pub(crate) mod slow;
mod top_keys_endpoint;
pub(crate) mod validation;
mod wait_room;

pub use self::{
    admission::{Admission, Denied},
    admit::Refund,
    body::ResponseBody,
    inspection::{Inspection, RuleEffect},
    layer::RateLimitLayer,
    limits_endpoint::LimitsEndpoint,
    request_parts::{PartsDecision, RequestPart},
    rules_handle::{RulesHandle, preview_name},
    service::RateLimit,
    slow::grpc_timeout,
    top_keys_endpoint::TopKeysEndpoint,
};
