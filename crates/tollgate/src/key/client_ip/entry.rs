//! One hop in a list that proxies write.

use std::net::IpAddr;

/// An entry of a list, as far as it can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// An address, an IPv4-mapped one as IPv4.
    Address(IpAddr),
    /// No address: a name, `unknown`, nothing, nonsense.
    Unreadable,
    /// The field breaks its grammar here: it is not known where an entry begins.
    Broken,
}

impl From<Option<IpAddr>> for Entry {
    fn from(address: Option<IpAddr>) -> Self {
        address.map_or(Self::Unreadable, Self::Address)
    }
}
