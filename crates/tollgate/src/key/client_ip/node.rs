//! Entries in lists of proxies, and how proxies spell addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A parsed entry in a list of proxies.
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

/// An address in `X-Forwarded-For` or in a header of its own: `192.0.2.1`, `192.0.2.1:443`, `2001:db8::1`,
/// `[2001:db8::1]`, `[2001:db8::1]:443`, each also in quotes.
pub(crate) fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    let text = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .unwrap_or(text);
    let bare = text.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    bare.or_else(|| with_port(text, is_port))
        .map(|address| address.to_canonical())
}

/// The `node` of RFC 7239 §6, if it is an address: `192.0.2.1`, `192.0.2.1:80`, `[2001:db8::1]`, `[2001:db8::1]:80`.
///
/// A backslash makes it invalid. It would be legal, but no proxy escapes a digit.
pub(crate) fn node(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    with_port(text, |port| is_port(port) || is_obfuscated(port))
        .map(|address| address.to_canonical())
}

fn with_port(text: &str, is_port: impl Fn(&str) -> bool) -> Option<IpAddr> {
    if let Some(text) = text.strip_prefix('[') {
        let (address, port) = text.split_once(']')?;
        let ends_well = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return address
            .parse::<Ipv6Addr>()
            .ok()
            .filter(|_| ends_well)
            .map(IpAddr::V6);
    }
    let (address, ends_well) = match text.split_once(':') {
        Some((address, port)) => (address, is_port(port)),
        None => (text, true),
    };
    address
        .parse::<Ipv4Addr>()
        .ok()
        .filter(|_| ends_well)
        .map(IpAddr::V4)
}

fn is_port(text: &str) -> bool {
    (1..=5).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_obfuscated(text: &str) -> bool {
    let name = text.strip_prefix('_').unwrap_or_default();
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}
