//! The names of the fields.

use http::header::{HeaderName, RETRY_AFTER};

/// `RateLimit`: what is left (draft-7 to draft-11).
pub const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
/// `RateLimit-Policy`: the quotas (draft-6 to draft-11).
pub const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// `RateLimit-Limit` (draft-6).
pub const RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
/// `RateLimit-Remaining` (draft-6).
pub const RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
/// `RateLimit-Reset` (draft-6).
pub const RATELIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
/// `X-RateLimit-Limit`.
pub const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
/// `X-RateLimit-Remaining`.
pub const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
/// `X-RateLimit-Reset`.
pub const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Every field that this crate may add to a response, for `Access-Control-Expose-Headers`.
///
/// A script in a browser sees none of them unless the server exposes them by name. The CORS layer has to be outside the
/// limiter: a denial without `Access-Control-Allow-Origin` is a bare network error to the script.
///
/// ```
/// let names: Vec<_> = tollgate::header::exposed_headers().collect();
/// // With tower-http: CorsLayer::new().expose_headers(names)
/// assert!(names.iter().any(|name| name == "ratelimit-policy"));
/// assert!(names.iter().any(|name| name == "retry-after"));
/// ```
pub fn exposed_headers() -> impl Iterator<Item = HeaderName> {
    [
        RATELIMIT,
        RATELIMIT_POLICY,
        RATELIMIT_LIMIT,
        RATELIMIT_REMAINING,
        RATELIMIT_RESET,
        X_RATELIMIT_LIMIT,
        X_RATELIMIT_REMAINING,
        X_RATELIMIT_RESET,
        RETRY_AFTER,
    ]
    .into_iter()
}
