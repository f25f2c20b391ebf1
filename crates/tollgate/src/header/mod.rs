//! Header fields that report the quota to clients.
//!
//! A [`HeaderStyle`] selects the fields of a response. `Retry-After` does not depend on it: every denial with a known retry time
//! has one.
//!
//! | style | fields | use it if |
//! | --- | --- | --- |
//! | [`DRAFT_11`](HeaderStyle::DRAFT_11) | `RateLimit`, `RateLimit-Policy` | you are free to choose: it is the only one that reports every rule |
//! | [`DRAFT_7`](HeaderStyle::DRAFT_7) | the same names, an earlier syntax | your clients read it already |
//! | [`DRAFT_6`](HeaderStyle::DRAFT_6) | `RateLimit-Limit`, `-Remaining`, `-Reset`, `-Policy` | your clients read it already |
//! | [`X_RATELIMIT_EPOCH`](HeaderStyle::X_RATELIMIT_EPOCH) | `X-RateLimit-Limit`, `-Remaining`, `-Reset` | your clients expect a timestamp as the reset, as GitHub sends it: by the clock of the response, which may not be the store's |
//! | [`X_RATELIMIT_DELTA`](HeaderStyle::X_RATELIMIT_DELTA) | the same | your clients expect seconds as the reset, as Envoy sends them |
//! | [`NONE`](HeaderStyle::NONE) | none | you do not want to reveal your limits |
//!
//! Clients that expect other fields get them by [`header_field`](crate::RateLimitLayer::header_field): each is a text with
//! variables.
//!
//! | a field | as |
//! | --- | --- |
//! | `RateLimit-Limit: 120;window=60` | `"{limit};window={window}"` |
//! | `RateLimit-Reset: 1795784136`, a moment | `"{reset_at}"` |
//! | `X-RateLimit-Used: 17` | `"{used}"` |
//! | `X-RateLimit-Resource: search` | `"{rule}"` |
//!
//! The drafts are revisions of the Internet-Draft *RateLimit header fields for HTTP*
//! (draft-ietf-httpapi-ratelimit-headers). It is work in progress and not a standard: a later revision may change the
//! syntax, and then becomes another style here. The `X-` fields have no specification.
//!
//! # Meaning
//!
//! ```text
//! ratelimit-policy: "search";q=100;w=60, "daily";q=1000;w=86400
//! ratelimit: "search";r=0;t=17, "daily";r=901;t=30411
//! retry-after: 17
//! ```
//!
//! - `q`, or the limit: the units available when none were used. `w`: the seconds in which they are refilled, rounded up.
//!   A window of less than a second has no `w` (in draft-6 and draft-7, which require it, `w=1`). Of a calendar, the longest window: 31
//!   days for a month.
//! - `r`, or remaining: the units left. After a denial they are not zero if the request cost more: a request for 30 units
//!   that was denied with 20 left says 20.
//! - `t`, or the reset: seconds, rounded up, at least 1. After a denial, and after a request that left less than it cost: the time
//!   until the same request would pass, so that a client with nothing left waits exactly `t`. The `Retry-After` of a denial is
//!   never less, unless the units go back with it. Otherwise, and for a cost that never fits: the time until the quota is full. For a
//!   request of cost 0 with nothing left: the time until one unit is available.
//! - `tollgate-ms`, in draft-11: the same as `t` in milliseconds, in responses that are no denials, where nothing is left and `t` is
//!   rounded. With whole seconds alone, a client with ten requests per second would send one. Clients ignore parameters that they do
//!   not know; `tollgate-client` reads this one.
//!
//! A rule that counts something other than requests says so in the policy of draft-11: `qu="tokens"` with
//! [`Rule::unit("tokens")`](crate::Rule::unit), and `qu="units"` without it where requests differ in cost.
//!
//! A rule that limits how many run [at once](crate::Quota::concurrent) has `qu="concurrent-requests"` in place of requests, its free
//! slots as `r`, and neither `w` nor `t`: time does not free a slot. The older styles need both, and leave such a rule out.
//!
//! ```text
//! ratelimit-policy: "exports";q=3;qu="concurrent-requests"
//! ratelimit: "exports";r=2
//! ```
//!
//! Each rule has its own `r` and `t`, which counts from the decision: clients that measure from a slow response wait longer. A
//! moment does not move, and from Redis it is rounded up to a second after the answer came. Both are exact for a client alone on
//! its key, if the store has decided. If a process decides from a [lease](crate::Consistency::Leased) or [local
//! usage](crate::Consistency::Eventual), `t` may be too late, and too early only for a client whose requests reach several
//! processes.
//!
//! Only enforced rules are reported: not shadow rules, thresholds and unlimited plans, nor rules that were not checked, because the
//! store failed or another rule had denied already. A local denial in front of a shared store is not reported either if other
//! processes may have taken units since: the remaining units are unknown, and only `Retry-After` is sent. Without a rule to
//! report there is no field.
//!
//! Draft-6, draft-7 and the `X-` fields report one rule: the one that denied; among several, and if none denied, the one with the
//! fewest units left, then the one with the longest reset. Draft-6 and draft-7 identify policies by their limit: of two with the
//! same limit, only the one with the longer window is listed.
//!
//! The following responses have no quota fields:
//!
//! - redirects, because a client that reads `r=0` may not follow them;
//! - responses that a shared cache may store and serve to other clients (RFC 9111 §3 and §4.2): with `Cache-Control: public`,
//!   `s-maxage` or `max-age`, with an `Expires` in the future, and with a `Last-Modified` where the status lets caches guess; unless
//!   `private` or `no-store` forbids it. Fields for a CDN alone, such as `CDN-Cache-Control` (RFC 9213) and `Surrogate-Control`, count
//!   whatever `Cache-Control` says;
//! - denials by an inner layer that [hides its quota](crate::RateLimitLayer::hide_quota);
//! - responses that are [refunded](crate::service::Refund);
//! - as to one rule, responses that [do not count](crate::RequestRule::count_if) or have
//!   [another cost](crate::RequestRule::cost_by_response);
//! - gRPC responses to requests with too many rules: their fields would exceed the 8 KiB that clients accept. Over HTTP all are sent:
//!   of 300 rules 13 KB, more than many proxies and clients take.
//!
//! # Support by clients
//!
//! Most clients obey `Retry-After` and read nothing else. Few read the remaining units before they are denied, and few of those
//! know the newest syntax.
//!
//! | client | version | `Retry-After` | `DRAFT_11` | `DRAFT_7` | `DRAFT_6` | `X_RATELIMIT_EPOCH` | `X_RATELIMIT_DELTA` |
//! | --- | --- | --- | --- | --- | --- | --- | --- |
//! | `tollgate-client` | 0.1 | yes | yes | yes | yes | yes | yes |
//! | Python: urllib3 (with `Retry`) | 2.8.0 | yes | | | | | |
//! | Python: httpx with httpx-retries | 0.6.0 | yes | | | | | |
//! | npm: got | 16.1.0 | yes | | | | | |
//! | npm: axios with axios-retry | 4.5.0 | yes | | | | | |
//! | npm: ky | 2.1.0 | yes | | | its reset | its reset | its reset |
//! | npm: @octokit/plugin-throttling | 11.0.5 | | | | | yes | wrongly: does not wait |
//! | npm: ratelimit-header-parser | 0.1.0 | | wrongly: NaN | yes | yes | yes | yes |
//!
//! An empty cell means that the client ignores the fields. The first three rows are tests of this repository; those of npm were
//! run by hand against a server that sends these fields, in November 2026. ky reads a reset only if a 429 has no `Retry-After`;
//! a 429 of this crate has one.
//!
//! - **You write the clients, or do not know them:** [`DRAFT_11`](HeaderStyle::DRAFT_11), the default. Other clients
//!   still obey `Retry-After`.
//! - **Some expect GitHub's fields:** `DRAFT_11 | X_RATELIMIT_EPOCH`.
//! - **Some use ratelimit-header-parser:** `DRAFT_6 | X_RATELIMIT_EPOCH`, and no `DRAFT_11`. The parser reads
//!   `RateLimit` first, expects draft-7, and returns NaN for draft-11 even if there are other fields.
//!
//! # Several limiters
//!
//! Nested limiters each add their rules to the lists of draft-11; a rule in both is listed once, as the inner one has it.
//! Fields for one rule keep the fewer remaining units. Give both the same style.
//!
//! `Retry-After` keeps the longer time, also if the request has used up an outer limiter before an inner one denied it, or before the
//! service failed and said when to retry. The body, and in gRPC the details and the pushback, are those of the inner one. A denial of a
//! [handler's own check](crate::Admission::acquire) has the longer time in all of them. Units that a ticket will give back count as used.
//!
//! # Examples
//!
//! The style for new services:
//!
//! ```
//! use tollgate::header::HeaderStyle;
//!
//! let style = HeaderStyle::DRAFT_11;
//! assert_eq!(format!("{style:?}"), "DRAFT_11");
//! ```
//!
//! The same, with fields for clients that know only the older names:
//!
//! ```
//! use tollgate::header::HeaderStyle;
//!
//! const STYLE: HeaderStyle = HeaderStyle::DRAFT_11.and(HeaderStyle::X_RATELIMIT_EPOCH);
//! assert_eq!(STYLE, HeaderStyle::X_RATELIMIT_EPOCH | HeaderStyle::DRAFT_11);
//! ```
//!
//! A browser hides the fields from scripts unless the server exposes them: see [`exposed_headers`] and, for gRPC-Web,
//! [`grpc_exposed_headers`].

mod applies;
mod headers;
pub(crate) mod name;
mod named;
mod older;
mod quota_status;
mod structured;
mod style;
pub(crate) mod template;
#[cfg(test)]
mod tests;
pub(crate) mod times;

pub(crate) use self::{
    applies::applies,
    headers::{Headers, OwnFields},
    quota_status::{PerQuota, unit_of},
    times::whole_seconds,
};
pub use self::{
    name::{exposed_headers, grpc_exposed_headers},
    style::HeaderStyle,
};
