//! What the services of a [`RateLimitLayer`](crate::RateLimitLayer) have in common, what they read of a response, and their types,
//! for signatures.

pub use crate::{
    inner_response::InnerResponse,
    rate_limit::{LayerDefaults, RateLimit, Refund, ResponseBody},
};
