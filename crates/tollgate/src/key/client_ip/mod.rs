//! The address of the client: the peer, or the address that trusted proxies report.

mod extractor;
mod forwarded;
mod node;
mod trust;
mod x_forwarded_for;

pub use self::extractor::{ClientIp, client_ip};
pub(crate) use self::trust::{TrustedPeers, network};
