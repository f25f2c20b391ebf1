//! The types of the services that a [`RateLimitLayer`](crate::RateLimitLayer) makes, for signatures.

pub use crate::rate_limit::{
    PartsDecision, RateLimit, RequestPart, ResponseBody, ResponseFuture, grpc_timeout,
};
