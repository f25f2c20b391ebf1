//! Header fields: what a client is told about its quota.
//!
//! A [`HeaderStyle`] says which fields a response carries. `Retry-After` does not depend on it: every denial that knows
//! when the request would pass has one.
//!
//! | style | fields | take it when |
//! | --- | --- | --- |
//! | [`DRAFT_11`](HeaderStyle::DRAFT_11) | `RateLimit`, `RateLimit-Policy` | you are free to choose: it is the only one that tells of every rule |
//! | [`DRAFT_7`](HeaderStyle::DRAFT_7) | the same names, an earlier syntax | your clients read it already |
//! | [`DRAFT_6`](HeaderStyle::DRAFT_6) | `RateLimit-Limit`, `-Remaining`, `-Reset`, `-Policy` | your clients read it already |
//! | [`X_RATELIMIT_EPOCH`](HeaderStyle::X_RATELIMIT_EPOCH) | `X-RateLimit-Limit`, `-Remaining`, `-Reset` | your clients do as GitHub does: the reset is a time |
//! | [`X_RATELIMIT_DELTA`](HeaderStyle::X_RATELIMIT_DELTA) | the same | your clients do as Envoy does: the reset is a number of seconds |
//! | [`NONE`](HeaderStyle::NONE) | none | you do not want to show how much you can bear |
//!
//! The drafts are revisions of the Internet-Draft *RateLimit header fields for HTTP*
//! (draft-ietf-httpapi-ratelimit-headers). It is work in progress and not a standard: a later revision may change the
//! syntax, and then becomes a style of its own here. The `X-` fields are a habit without a specification.
//!
//! # What they say
//!
//! ```text
//! ratelimit-policy: "search";q=100;w=60, "daily";q=1000;w=86400
//! ratelimit: "search";r=0;t=17, "daily";r=901;t=30411
//! retry-after: 17
//! ```
//!
//! - `q`, or the limit: what passes at once when nothing was used. `w`: the seconds in which that comes back, rounded up.
//!   A window of less than a second has no `w` (in draft-6 and draft-7, which require it, `w=1`).
//! - `r`, or remaining: the units left. After a denial this is what is really left: a request for 30 units that was refused
//!   with 20 left says 20.
//! - `t`, or the reset: seconds, rounded up, at least 1. After a denial, and after a request that passed and left less than
//!   it cost, until the same request would pass: a client that has nothing left waits for `t` and no longer. `Retry-After` of a
//!   denial is never less. Otherwise until the quota is whole again. A request of cost 0 that finds nothing left is told when one
//!   unit fits.
//!
//! Each rule has its own `r` and `t`. Both are exact for a client alone on its key, as long as the store has answered. Where a
//! process answers for a shared store from a [lease](crate::Consistency::Leased) or its
//! [own count](crate::Consistency::Eventual), `t` is never too early for such a client, and may be too late.
//!
//! Only rules that deny are told of; shadow rules, marks and unlimited plans are not. Nor is a rule that nobody counted,
//! because the store failed or another rule had denied already. Nor is a denial without a call to a shared store if others may
//! have taken units since: what is left is not known, and only `Retry-After` is told. Where no rule is left there is no field.
//!
//! Draft-6, draft-7 and the `X-` fields have room for one rule. It is the one that denied; among several, and among those
//! that did not deny, the one with the fewest units left, then with the longest reset. Draft-6 and draft-7 tell policies
//! apart by their limit: of two with the same limit only the one with the longer window is listed.
//!
//! Redirects carry no fields, since a client that reads `r=0` may not follow them. Nor do responses whose `Cache-Control` says
//! `public`, `s-maxage`, or `max-age` without `private` or `no-store`: a shared cache would show them to others. Nor does a denial
//! by a [quiet](crate::RateLimitLayer::hide_quota) layer inside, which says no more than when to come back, nor a response that gives
//! back what its request took ([`Refund`](crate::Refund)). Nor does a denial in gRPC by so many rules that its client would not
//! take them all: 8 KiB is what clients take.
//!
//! # Which clients read what
//!
//! Most clients wait for as long as `Retry-After` says, and read nothing else. Few look at what is left before they are
//! denied, and few of those know the newest syntax.
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
//! Where a place is empty the client does not look. Each row comes from the client itself: the first three are tests of this
//! repository, those of npm were run by hand against a server that sends these fields, in November 2026. ky reads a reset
//! only where a 429 has no `Retry-After`; a 429 of this crate has one.
//!
//! - **You write the clients, or do not know them:** [`DRAFT_11`](HeaderStyle::DRAFT_11), the default. Clients that do not
//!   read it wait for `Retry-After` all the same.
//! - **Some do as GitHub's do:** `DRAFT_11 | X_RATELIMIT_EPOCH`.
//! - **Some use ratelimit-header-parser:** `DRAFT_6 | X_RATELIMIT_EPOCH`, and no `DRAFT_11`. The parser looks at `RateLimit`
//!   first, reads it as in draft-7, and gives NaN for draft-11 whatever other fields there are.
//!
//! # Several limiters
//!
//! Where a limiter is around another one, each adds its rules to the lists of draft-11; a rule that is in both is listed once,
//! as it leaves less. Of the fields with room for one rule the ones that leave less stay. The larger `Retry-After` stays. Give both the same style.
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
//! A browser shows scripts only the fields that the server names: see [`exposed_headers`] and, for gRPC-Web,
//! [`grpc_exposed_headers`].

mod applies;
mod dictionary;
mod headers;
pub(crate) mod name;
mod named;
mod numbered;
mod per_quota;
pub(crate) mod retry_after;
mod same_name;
mod seconds;
mod standing;
mod structured;
mod style;
#[cfg(test)]
mod tests;
mod triple;
mod written;

pub(crate) use self::applies::applies;
pub(crate) use self::headers::Headers;
pub use self::{
    name::{
        RATELIMIT, RATELIMIT_LIMIT, RATELIMIT_POLICY, RATELIMIT_REMAINING, RATELIMIT_RESET,
        X_RATELIMIT_LIMIT, X_RATELIMIT_REMAINING, X_RATELIMIT_RESET, exposed_headers,
        grpc_exposed_headers,
    },
    style::HeaderStyle,
};
pub(crate) use self::{per_quota::PerQuota, seconds::whole_seconds};
