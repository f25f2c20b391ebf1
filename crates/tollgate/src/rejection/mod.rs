//! Rejections: the response made from a denial.
//!
//! | [`Rejection`] | body |
//! | --- | --- |
//! | [`problem`](Rejection::problem), the default | `application/problem+json` (RFC 9457), with the problem type of the `RateLimit` drafts |
//! | [`json`](Rejection::json) | a small JSON object |
//! | [`text`](Rejection::text) | a sentence |
//! | [`empty`](Rejection::empty) | nothing |
//! | [`custom`](Rejection::custom) | what your closure makes of the [`Denial`] |
//!
//! # Status
//!
//! | why ([`Denial::reason`]) | status |
//! | --- | --- |
//! | a quota is used up, or the cost never fits | 429, or the one given to the layer |
//! | the store failed, and a rule denies then | 503: the client did nothing wrong |
//! | there is no key, and a rule rejects then | the one given to the rule |
//!
//! # Header fields
//!
//! The layer adds `Retry-After` and the [quota](crate::header) to every rejection, also to one of a closure. Those that
//! are made here carry `Cache-Control: no-store` as well, for caches that would keep a 429 against RFC 6585. The answer to
//! a HEAD request has no body.
//!
//! # What a body says
//!
//! Names and numbers of the rules that were exceeded, and the wait in milliseconds, which is left out where no wait helps.
//! Never the key, the address or a header of the request. On a quiet route, such as a log-in, the wait alone.
//!
//! ```text
//! {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,
//!  "detail":"Policy \"per-min\" allows 100 requests per 60 s.","violated-policies":["per-min"],"retry_after_ms":16001}
//! ```
//!
//! # Examples
//!
//! The default:
//!
//! ```
//! use tollgate::rejection::Rejection;
//!
//! assert_eq!(format!("{:?}", Rejection::default()), "Rejection::problem");
//! ```
//!
//! A page of your own, for browsers:
//!
//! ```
//! use bytes::Bytes;
//! use http::{Response, header::CONTENT_TYPE};
//! use tollgate::rejection::{Denial, Rejection};
//!
//! fn page(denial: &Denial<'_>) -> Response<Bytes> {
//!     let wait = denial.retry_after().map_or(0, |wait| wait.as_secs() + 1);
//!     let mut response = Response::new(format!("<h1>Too fast</h1><p>Come back in {wait} s.").into());
//!     *response.status_mut() = denial.status();
//!     response
//!         .headers_mut()
//!         .insert(CONTENT_TYPE, "text/html; charset=utf-8".parse().expect("a media type"));
//!     response
//! }
//!
//! let rejection = Rejection::custom(page);
//! assert_eq!(format!("{rejection:?}"), "Rejection::custom");
//! ```

mod denial;
mod facts;
mod grpc;
mod http;
mod json;
mod open_body;
mod problem;
mod protobuf;
mod responses;
mod style;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use self::responses::Responses;
pub use self::{denial::Denial, style::Rejection};
