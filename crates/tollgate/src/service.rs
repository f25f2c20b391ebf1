//! What the services of a [`RateLimitLayer`](crate::RateLimitLayer) have in common, what they read of a response, and their types,
//! for signatures. [`RequestPart`], [`PartsDecision`] and [`grpc_timeout`] are for servers that decide for other services.

pub use crate::rate_limit::{
    LayerDefaults, PartsDecision, RateLimit, Refund, RequestPart, ResponseBody, ResponseFuture,
    grpc_timeout,
};
