//! Whom a request counts against.
//!
//! A rule says how much; a *key* says whose. Requests with the same key share one budget. A [`KeyExtractor`] finds the key
//! in the head of the request and adds its parts to a [`KeyBuf`](tollgate_core::KeyBuf). Each part carries its kind and its
//! length, so an API key that is spelled like an address is not that address, and `("ab", "c")` is not `("a", "bc")`. The
//! store keeps a fingerprint only.
//!
//! # Extractors
//!
//! | extractor | counts by |
//! | --- | --- |
//! | [`client_ip()`] | the address of the client: the peer, or what trusted proxies say |
//! | [`header("x-api-key")`](header()) | the value of a header |
//! | [`query("token")`](query()) | a parameter of the query |
//! | [`cookie("session")`](cookie()) | the value of a cookie |
//! | [`extension::<T>()`](extension()), [`extension_with(..)`](extension_with) | what a middleware in front has verified |
//! | [`method()`], [`path()`] | the method, the path |
//! | [`grpc_service()`], [`grpc_method()`] | the service and the method of a gRPC call |
//! | [`metadata("tenant")`](metadata()) | an entry of a gRPC call's metadata, binary ones decoded |
//! | `matched_path()`, `path_parameter("id")` | axum's route and its parameters, with the feature `axum` |
//! | [`authority()`] | the host and port of the request's URI, or the `Host` header, which a client may make up |
//! | [`key_fn(\|head\| ..)`](key_fn()) | what a closure finds in the head |
//! | [`computed(\|head\| ..)`](computed()) | the [`Key`](tollgate_core::Key) that a closure makes |
//! | [`look_up(\|head\| async ..)`](look_up()) | what a future finds |
//! | [`constant("all")`](constant()) | everybody together, or a mark inside of a tuple |
//! | `(a, b)`, up to six | all of them together: one budget for each combination |
//! | [`a.or(b)`](KeyExtractorExt::or) | the first one that finds a key |
//!
//! A budget for each API key, and for each address where there is no key:
//!
//! ```
//! use tollgate::{KeyBuf, key::{Extracted, KeyExtractor, KeyExtractorExt, PeerAddr, client_ip, header}};
//!
//! let whom = header("x-api-key").or(client_ip());
//! let key_of = |request: http::request::Builder| {
//!     let (head, ()) = request.body(()).unwrap().into_parts();
//!     let mut key = KeyBuf::new();
//!     assert!(matches!(whom.extract(&head, &mut key), Extracted::Key));
//!     key
//! };
//! let request = || http::Request::builder().extension(PeerAddr("192.0.2.1:40000".parse().unwrap()));
//!
//! let anonymous = key_of(request());
//! let known = key_of(request().header("x-api-key", "k-1"));
//! let forged = key_of(request().header("x-api-key", "192.0.2.1"));
//! assert_eq!(anonymous, key_of(request()));
//! assert_ne!(anonymous, known);
//! assert_ne!(anonymous, forged);
//! ```
//!
//! # Choosing a key
//!
//! Count by what costs an attacker something. An address costs little, a made-up header nothing: whoever may invent values
//! has a fresh budget for each. Before authentication, count by address; behind it, by the identity that was verified, put
//! into the extensions by the middleware that has verified it. A claim of a token that nobody has checked is a made-up
//! header.
//!
//! Clients behind one address share it: offices, and whole mobile networks behind carrier-grade NAT. Keep limits by address
//! wide, and the narrow ones for identities.
//!
//! # The client's address
//!
//! Without a proxy, the peer of the socket is the client and cannot be forged. axum tells it if the router is served with
//! `into_make_service_with_connect_info::<SocketAddr>()`, tonic's server always (features `axum`, `tonic`);
//! anything else may set [`PeerAddr`]. In tests of a router axum's `MockConnectInfo` does as well, as a layer around it:
//! `app.layer(MockConnectInfo(SocketAddr::from(([192, 0, 2, 1], 40_000))))`.
//!
//! Behind a proxy, the peer is the proxy, and **all clients are one** until you say which header it writes and that you trust
//! it. There is no guessing: of several headers, a client would send the one that your proxy does not overwrite.
//!
//! | in front | it writes | take |
//! | --- | --- | --- |
//! | nginx | `proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;` | `.trusted_proxies(["10.0.0.0/8"]).x_forwarded_for()` |
//! | nginx, one | `proxy_set_header X-Real-IP $remote_addr;` | `.trusted_proxies(["10.0.0.5"]).single_header("x-real-ip")` |
//! | Cloudflare | `CF-Connecting-IP` | `.trusted_proxies(CLOUDFLARE_RANGES).single_header("cf-connecting-ip")` |
//! | AWS ALB | appends to `X-Forwarded-For` | `.trusted_proxies(["10.0.0.0/16"]).x_forwarded_for()` with the CIDR of its subnets, or `.hops(1)` |
//! | CDN, then ALB | both append to `X-Forwarded-For` | `.hops(2)`, if the ALB lets nobody in but the CDN |
//! | HAProxy, PROXY protocol | no header | [`PeerAddr`], set where connections are accepted |
//!
//! ```
//! use tollgate::key::{KeyExtractor, PeerAddr, client_ip};
//!
//! let whom = client_ip().trusted_proxies(["10.0.0.0/8"]).x_forwarded_for();
//! assert!(whom.validate().is_ok());
//!
//! let (head, ()) = http::Request::builder()
//!     .extension(PeerAddr("10.0.0.1:40000".parse().unwrap()))
//!     // The client has made up the first entry; the proxies have added the others.
//!     .header("x-forwarded-for", "6.6.6.6, 203.0.113.9, 10.0.0.2")
//!     .body(())
//!     .unwrap()
//!     .into_parts();
//! assert_eq!(whom.resolve(&head).unwrap().to_string(), "203.0.113.9");
//!
//! // Anybody can write a header, so one without the other is refused.
//! assert!(client_ip().x_forwarded_for().validate().unwrap_err().contains("trusted_proxies"));
//! ```
//!
//! Nothing of a list is read to the left of the first address that is not a trusted proxy, so what a client writes there
//! changes nothing. [`ClientIp::resolve`] gives the same address to your logs. A header from a peer that is not trusted is told
//! once, in an event at warn level: "172.17.0.1 sends x-forwarded-for and is not trusted".
//!
//! ## IPv6
//!
//! One host has a whole /64 (RFC 4291), so single addresses are no limit at all.
//!
//! | prefix | who has one | when |
//! | --- | --- | --- |
//! | /64, the default | one subnet | least harm to neighbours |
//! | /56 | a home, often | sign-ups and logins |
//! | /48 | a site, a business, and many a hosting customer | what is expensive, as a second, wider rule |
//!
//! Several rules with several prefixes may stand side by side, the wider the prefix the larger the limit. Where IPv4 clients
//! arrive translated into IPv6 (SIIT, NAT64: `64:ff9b::/96`), they all are in one /64: take `ipv6_prefix(128)` there.
//!
//! # No key
//!
//! A request may have no key ([`NoKey`]). The rule decides what happens: one bucket shared by all such requests, no limit
//! by this rule, or a rejection. An empty value is no key. A value that is there twice is [`NoKey::Ambiguous`], because the
//! application may read the other one. A service that is not set up for its extractor gives [`NoKey::Misconfigured`], which
//! names the call to add. A look-up that does not end in time gives [`NoKey::LookUpFailed`]. Only a key that is
//! [absent](NoKey::Absent) lets a request [skip](crate::Missing::Skip) a rule.
//!
//! It does not go unnoticed: `tollgate_keyless_requests_total` counts such requests for each rule, and where none of the first
//! hundred requests of a rule had a key, an event at warn level says so. Then the layer stands outside of the authentication, or
//! a name is misspelt.
//!
//! A mistake that can be seen without a request (a CIDR that is none, a header without trusted proxies) is found by
//! [`KeyExtractor::validate`] when the rule is built.

mod authority;
mod client_ip;
mod computed;
mod constant;
mod cookie;
mod extension;
mod extractor;
mod grpc;
mod header;
mod key_fn;
mod look_up;
#[cfg(feature = "axum")]
mod matched_path;
mod metadata;
mod method;
mod or;
mod path;
#[cfg(feature = "axum")]
mod path_parameter;
mod peer;
mod percent;
mod query;
mod tuple;
mod value;

pub(crate) use self::grpc::service_and_method;
pub use self::{
    authority::{Authority, authority},
    client_ip::{ClientIp, client_ip},
    computed::{Computed, computed},
    constant::{Constant, constant},
    cookie::{Cookie, cookie},
    extension::{Extension, ExtensionWith, extension, extension_with},
    extractor::{Extracted, KeyExtractor, NoKey},
    grpc::{GrpcMethod, GrpcService, grpc_method, grpc_service},
    header::{Header, header},
    key_fn::{KeyFn, key_fn},
    look_up::{LookUp, look_up},
    metadata::{Metadata, metadata},
    method::{Method, method},
    or::{KeyExtractorExt, Or},
    path::{Path, path},
    peer::PeerAddr,
    query::{Query, query},
};
#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
pub use self::{
    matched_path::{MatchedPath, matched_path},
    path_parameter::{PathParameter, path_parameter},
};
