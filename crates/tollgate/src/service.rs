//! What the services of a [`RateLimitLayer`](crate::RateLimitLayer) have in common, what they read of a response, and their types,
//! for signatures.

pub use crate::rate_limit::{
    LayerDefaults, PartsDecision, RateLimit, Refund, RequestPart, ResponseBody, ResponseFuture,
    grpc_timeout,
};
