//! The names of the fields.

use http::header::{HeaderName, RETRY_AFTER};

/// `RateLimit`: what is left (draft-7 to draft-11).
pub(crate) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
/// `RateLimit-Policy`: the quotas (draft-6 to draft-11).
pub(crate) const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// `RateLimit-Limit` (draft-6).
pub(crate) const RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
/// `RateLimit-Remaining` (draft-6).
pub(crate) const RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
/// `RateLimit-Reset` (draft-6).
pub(crate) const RATELIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
/// `X-RateLimit-Limit`.
pub(crate) const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
/// `X-RateLimit-Remaining`.
pub(crate) const X_RATELIMIT_REMAINING: HeaderName =
    HeaderName::from_static("x-ratelimit-remaining");
/// `X-RateLimit-Reset`.
pub(crate) const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

pub(crate) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
pub(crate) const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
pub(crate) const GRPC_STATUS_DETAILS: HeaderName =
    HeaderName::from_static("grpc-status-details-bin");
pub(crate) const GRPC_RETRY_PUSHBACK: HeaderName =
    HeaderName::from_static("grpc-retry-pushback-ms");

/// Every field that this crate may add to a response, for `Access-Control-Expose-Headers`; add the
/// [fields of your own](crate::RateLimitLayer::header_field).
///
/// A script in a browser sees none of them unless the server exposes them. Put the CORS layer outside of the limiter: a denial
/// without `Access-Control-Allow-Origin` is a network error for the script. For gRPC-Web, expose [`grpc_exposed_headers`] as
/// well.
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

/// The fields with the status of a gRPC response, for `Access-Control-Expose-Headers`: those of gRPC and those that this crate
/// adds.
///
/// A denied call has no body, so a gRPC-Web client in a browser reads its status from the header fields. Without access to them
/// it sees a response without a status.
///
/// ```
/// use tollgate::header::{exposed_headers, grpc_exposed_headers};
///
/// let names: Vec<_> = exposed_headers().chain(grpc_exposed_headers()).collect();
/// // With tower-http: CorsLayer::new().expose_headers(names)
/// assert!(names.iter().any(|name| name == "grpc-status"));
/// assert!(names.iter().any(|name| name == "retry-after"));
/// ```
pub fn grpc_exposed_headers() -> impl Iterator<Item = HeaderName> {
    [
        GRPC_STATUS,
        GRPC_MESSAGE,
        GRPC_STATUS_DETAILS,
        GRPC_RETRY_PUSHBACK,
    ]
    .into_iter()
}
