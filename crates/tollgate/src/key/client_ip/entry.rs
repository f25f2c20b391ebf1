//! An entry in a list of proxies.

use std::net::IpAddr;

/// A parsed entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// An address, an IPv4-mapped one as IPv4.
    Address(IpAddr),
    /// `unix:`, as nginx calls a client on a Unix socket.
    Socket,
    /// Not an address: a name, `unknown`, or malformed.
    Unreadable,
    /// The field is malformed here, so the beginning of the entry is unknown.
    Broken,
}

impl From<Option<IpAddr>> for Entry {
    fn from(address: Option<IpAddr>) -> Self {
        address.map_or(Self::Unreadable, Self::Address)
    }
}
