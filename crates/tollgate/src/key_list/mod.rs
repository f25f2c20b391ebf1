//! Lists of keys and networks: revoked API keys, abusive networks, partners who are never limited.
//!
//! A list is made once, given to the rules that ask it, and [set](KeyList::set) anew whenever it changes, also while requests are
//! decided: each look-up sees the whole of one version. With [`Quota::none`](crate::Quota::none) it denies, and in
//! [`exempt`](crate::RequestRule::exempt) it lets pass.
//!
//! ```
//! use http::StatusCode;
//! use tollgate::{
//!     MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, condition::in_list, key::{client_ip, header},
//!     key_list::KeyList,
//! };
//!
//! let revoked = KeyList::new("revoked");
//! let abusive = KeyList::new("abusive");
//! let partners = KeyList::new("partners");
//! let layer = RateLimitLayer::new(MemoryStore::new(), [
//!     Rule::new("revoked", Quota::none())
//!         .by(header("x-api-key"))
//!         .when_listed(&revoked)
//!         .blocked_status(StatusCode::UNAUTHORIZED),
//!     Rule::new("abusive", Quota::none()).by(client_ip()).when_listed(&abusive),
//!     Rule::new("per-ip", Quota::gcra(60, MINUTE))
//!         .by(client_ip())
//!         .exempt(in_list(header("x-api-key"), &partners)),
//! ])?;
//! revoked.set(["acme-key-1"])?;
//! abusive.set(["203.0.113.0/24 until 2026-12-24T00:00Z", "2001:db8:7::/48", "# by hand", "192.0.2.7"])?;
//! assert_eq!((revoked.len(), abusive.len(), partners.len()), (1, 3, 0));
//!
//! let wrong = abusive.set(["203.0.113.5/24"]).unwrap_err().to_string();
//! assert!(wrong.starts_with("list \"abusive\", line 1: \"203.0.113.5/24\" names an address and a network"), "{wrong}");
//! assert_eq!(abusive.len(), 3);
//! # Ok::<(), tollgate::RuleError>(())
//! ```
//!
//! # Entries
//!
//! One a line, as text:
//!
//! - **A key of one part**, as the application writes it: the value of a header, the name of a tenant. It is compared with the keys
//!   of rules that have one part, whatever that is of.
//! - **A network**: an address or a CIDR. It is compared with the client's whole address, as [`client_ip`](crate::key::client_ip())
//!   finds it and before it is cut to a /64. An address with a mistake, such as `203.0.113.*`, is refused.
//! - Either may have an end in UTC: `acme-key-1 until 2026-12-24T00:00Z`.
//! - A line that begins with `#` is a comment, and so is what follows ` #`.
//!
//! A [hashed](KeyList::hashed) list holds hashes of its keys instead, 32 hexadecimal digits each.
//!
//! # Cost
//!
//! A key takes 10 to 21 bytes, whatever its length, and 20 to 39 where it has an end; a network up to 26, of IPv6 up to 52. To look up a key or an address among a
//! million takes less than 100 ns, whatever lengths the networks have: `benches/` has the figures.

mod list;
mod networks;
mod set;

pub use self::list::KeyList;
#[doc(hidden)]
pub use self::networks::end_lists_by;
