//! Keys: which budget a request counts against.
//!
//! A rule has a quota; a *key* selects the budget. Requests with the same key share one budget. A [`KeyExtractor`] finds the key
//! in the head of the request and adds its parts to a [`KeyBuf`]. Each part carries its kind and its
//! length, so an API key that is spelled like an address is not that address, and `("ab", "c")` is not `("a", "bc")`. The
//! store keeps a fingerprint only.
//!
//! # Extractors
//!
//! | extractor | counts by |
//! | --- | --- |
//! | [`client_ip()`] | the address of the client: the peer, or the address that trusted proxies report |
//! | [`header("x-api-key")`](header()) | the value of a header |
//! | [`authorization()`] | credentials, in one spelling |
//! | [`query("token")`](query()) | a parameter of the query |
//! | [`cookie("session")`](cookie()) | the value of a cookie |
//! | [`extension::<T>()`](extension()), [`extension_with(..)`](extension_with) | a value that an outer middleware has verified |
//! | [`method()`], [`path()`] | the method, the path |
//! | [`grpc_service()`], [`grpc_method()`] | the service and the method of a gRPC call |
//! | [`metadata("tenant")`](metadata()) | an entry of a gRPC call's metadata, binary ones decoded |
//! | `matched_path()`, `path_parameter("id")` | axum's route and its parameters, with the feature `axum` |
//! | [`computed(\|head\| ..)`](computed()) | the [`Key`](tollgate_core::Key) that a closure computes: `Some(Key::of(&head.extensions.get::<Claims>()?.user))`, say |
//! | [`look_up(\|head\| async ..)`](look_up()) | a value that a future finds |
//! | [`constant("all")`](constant()) | all requests together, or a tag inside of a tuple |
//! | `(a, b)`, up to six | the combination of all |
//! | [`a.or(b)`](KeyExtractor::or) | the first one that finds a key |
//!
//! A budget for each API key, and for each address where there is no key:
//!
//! ```
//! use tollgate::{
//!     Head, key::{Extracted, KeyBuf, KeyExtractor, PeerAddr, client_ip, header},
//! };
//!
//! let extractor = header("x-api-key").or(client_ip());
//! let key_of = |request: http::request::Builder| {
//!     let (head, ()) = request.body(()).unwrap().into_parts();
//!     let mut key = KeyBuf::new();
//!     assert!(matches!(extractor.extract(&Head::from(&head), &mut key), Extracted::Key));
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
//! Count by something that costs an attacker money. An address costs little, an invented header nothing: each invented value has
//! a fresh budget. In front of authentication, count by address. Behind it, count by the verified identity, which the
//! authentication puts into the extensions. A claim of an unverified token is an invented header.
//!
//! Many clients can share an address: offices, and whole mobile networks behind carrier-grade NAT. Use large limits for
//! addresses, and small ones for identities.
//!
//! # The client's address
//!
//! Without a proxy, the peer of the socket is the client and cannot be forged. axum knows it if the router is served with
//! `into_make_service_with_connect_info::<SocketAddr>()`, tonic's server always (features `axum`, `tonic`);
//! other servers may set [`PeerAddr`]. In tests of a router, axum's `MockConnectInfo` works as well, as a layer around it:
//! `app.layer(MockConnectInfo(SocketAddr::from(([192, 0, 2, 1], 40_000))))`.
//!
//! Behind a proxy, the peer is the proxy, and **all clients share one budget** until you configure its header and trust it.
//! tollgate does not guess: a client would send the header that your proxy does not overwrite.
//!
//! | in front | it writes | take |
//! | --- | --- | --- |
//! | nginx | `proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;` | `.trusted_proxies(["10.0.0.0/8"]).x_forwarded_for()` |
//! | nginx, one | `proxy_set_header X-Real-IP $remote_addr;` | `.trusted_proxies(["10.0.0.5"]).single_header("x-real-ip")` |
//! | Cloudflare | `CF-Connecting-IP` | `.trusted_proxies([..]).single_header("cf-connecting-ip")`, with the networks that Cloudflare publishes |
//! | AWS ALB | appends to `X-Forwarded-For` | `.trusted_proxies(["10.0.0.0/16"]).x_forwarded_for()` with the CIDR of its subnets, or `.hops(1)` |
//! | CDN, then ALB | both append to `X-Forwarded-For` | `.hops(2)`, if only the CDN can reach the ALB |
//! | nginx, on a Unix socket | as the first | `.trusted_proxies(["unix:"]).x_forwarded_for()` |
//! | HAProxy, PROXY protocol | no header | [`PeerAddr`], set where connections are accepted |
//!
//! ```
//! use tollgate::key::{KeyExtractor, PeerAddr, client_ip};
//!
//! let extractor = client_ip().trusted_proxies(["10.0.0.0/8"]).x_forwarded_for();
//! assert!(extractor.validate().is_ok());
//!
//! let (head, ()) = http::Request::builder()
//!     .extension(PeerAddr("10.0.0.1:40000".parse().unwrap()))
//!     // The client has made up the first entry; the proxies have added the others.
//!     .header("x-forwarded-for", "6.6.6.6, 203.0.113.9, 10.0.0.2")
//!     .body(())
//!     .unwrap()
//!     .into_parts();
//! assert_eq!(extractor.resolve(&head).unwrap().to_string(), "203.0.113.9");
//!
//! // A header without trusted proxies is an error, because clients can send it.
//! assert!(client_ip().x_forwarded_for().validate().unwrap_err().contains("trusted_proxies"));
//! ```
//!
//! The list is read from the right up to the first address that is not a trusted proxy, so entries that a client adds have no
//! effect. [`ClientIp::address`] returns the same address for your logs, and [`ClientIp::resolve`] its network, as the rule counts it. The first header from an untrusted peer is an event at
//! warn level: "172.17.0.1 sends x-forwarded-for and is not trusted".
//!
//! ## IPv6
//!
//! One host has a whole /64 (RFC 4291), so a limit by single addresses is no limit.
//!
//! | prefix | who has one | when |
//! | --- | --- | --- |
//! | /64, the default | one subnet | least harm to neighbours |
//! | /56 | a home, often | sign-ups and logins |
//! | /48 | a site, a business, and many a hosting customer | what is expensive, as a second, wider rule |
//!
//! You can combine rules with several prefixes: the wider the prefix, the larger the limit. IPv4 clients translated to IPv6
//! (SIIT, NAT64: `64:ff9b::/96`) are all in one /64: use `ipv6_prefix(128)` for them.
//!
//! # No key
//!
//! A request may have no key ([`NoKey`]). The rule decides what happens: one bucket shared by all such requests, no limit
//! by this rule, or a rejection. An empty value is no key. A repeated value is [`NoKey::Ambiguous`], because the application may
//! read the other one. If the service is not set up for the extractor, [`NoKey::Misconfigured`] names the call to add. A look-up
//! that fails or times out is [`NoKey::LookUpFailed`]. Only an [absent](NoKey::Absent) key lets a request
//! [skip](crate::Missing::Skip) a rule.
//!
//! `tollgate_keyless_requests_total` counts such requests per rule. If none of the first hundred requests of a rule has a key, an
//! event at warn level reports it: the layer is outside of the authentication, or a name is misspelt.
//!
//! Mistakes in the settings (an invalid CIDR, a header without trusted proxies) are errors when the rule is built, by
//! [`KeyExtractor::validate`].

mod application;
mod client_ip;
mod extractor;
mod extractor_fn;
pub(crate) mod fields;
mod forwarded;
pub(crate) mod look_ups;
mod peer;
pub(crate) mod target;
pub(crate) mod trust;
mod tuple;

pub use tollgate_core::{KeyBuf, KeyPart, PartKind};

#[cfg(feature = "axum")]
pub use self::target::{matched_path, path_parameter};
pub use self::{
    application::{computed, constant, extension, extension_with, look_up},
    client_ip::{ClientIp, client_ip},
    extractor::{Extracted, KeyExtractor, NoKey},
    fields::{authorization, cookie, header, metadata},
    peer::PeerAddr,
    target::{grpc_method, grpc_service, method, path, query},
};
pub(crate) use self::{
    peer::peer,
    target::service_and_method,
    trust::{TrustedPeers, network},
};
