//! Entries in lists of proxies, how proxies spell addresses, and which proxies are trusted.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::{HeaderMap, HeaderName};
use ipnet::{IpNet, Ipv4Net};

use crate::key::extractor_fn::exactly_one;

/// The longest address with brackets, port and quotes has 49 bytes.
const MAX_ENTRY_BYTES: usize = 128;

pub(crate) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

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

/// The entries of all lines of `X-Forwarded-For`, from the last one of the last line on.
pub(crate) fn x_forwarded_for(headers: &HeaderMap) -> impl Iterator<Item = Entry> {
    let lines = headers.get_all(X_FORWARDED_FOR).iter().rev();
    let entries = lines.flat_map(|line| line.as_bytes().rsplit(|b| *b == b','));
    entries.map(|entry| match entry.trim_ascii() {
        _ if entry.len() > MAX_ENTRY_BYTES => Entry::Broken,
        name if name == SOCKET.as_bytes() => Entry::Socket,
        _ => address(entry).map_or(Entry::Unreadable, Entry::Address),
    })
}

/// The address, if the header occurs once and is an address.
pub(crate) fn only_address(headers: &HeaderMap, name: &HeaderName) -> Option<IpAddr> {
    let value = exactly_one(headers.get_all(name).iter()).ok()?.as_bytes();
    (value.len() <= MAX_ENTRY_BYTES)
        .then(|| address(value))
        .flatten()
}

/// An address in `X-Forwarded-For` or in a header of its own: `192.0.2.1`, `192.0.2.1:443`, `2001:db8::1`,
/// `[2001:db8::1]`, `[2001:db8::1]:443`, each also in quotes.
fn address(text: &[u8]) -> Option<IpAddr> {
    let written = std::str::from_utf8(text.trim_ascii()).ok()?;
    let text = written
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .unwrap_or(written);
    let bare = text.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    bare.or_else(|| with_port(text))
        .map(|address| address.to_canonical())
}

/// The `node` of RFC 7239 §6, if it is an address: `192.0.2.1`, `192.0.2.1:80`, `[2001:db8::1]`, `[2001:db8::1]:80`, or with a port
/// that the proxy hides, `192.0.2.1:_p`.
///
/// A backslash and a colon without a port make it invalid. The first would be legal, but no proxy writes it.
pub(crate) fn node(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let is_hidden = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let address = match text.rsplit_once(":_") {
        Some((name, port)) if !port.is_empty() && port.bytes().all(is_hidden) => without_port(name),
        _ => with_port(text),
    };
    address.map(|address| address.to_canonical())
}

fn without_port(text: &str) -> Option<IpAddr> {
    let in_brackets = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    match in_brackets {
        Some(text) => text.parse().ok().map(IpAddr::V6),
        None => text.parse().ok().map(IpAddr::V4),
    }
}

fn with_port(text: &str) -> Option<IpAddr> {
    without_port(text).or_else(|| {
        let (_, port) = text.rsplit_once(':')?;
        // A zone id is none of ours, and no proxy fills a port up with zeros.
        let is_plain = port.len() <= 5 && !text.contains('%');
        Some(text.parse::<SocketAddr>().ok().filter(|_| is_plain)?.ip())
    })
}

/// How many entries of a list are read, from the right.
pub(crate) const MAX_ENTRIES: usize = 64;

/// A peer on a Unix socket, as nginx spells it.
pub(crate) const SOCKET: &str = "unix:";

/// Peers that are trusted: proxies, gateways.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrustedPeers {
    pub(crate) networks: Vec<IpNet>,
    /// Whether peers without an address are trusted, as those on a Unix socket.
    pub(crate) socket: bool,
}

impl TrustedPeers {
    /// Adds a network from text, or [the socket](SOCKET).
    pub(crate) fn add(&mut self, text: &str) -> Result<(), String> {
        match text {
            SOCKET => self.socket = true,
            text if text.starts_with("unix") || text.starts_with('/') => {
                return Err(format!(
                    "{text:?} is not a network: what comes over a Unix socket has no address, and all sockets of a service are \
                     trusted together; write \"unix:\""
                ));
            }
            text => self.networks.push(network(text)?),
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.networks.is_empty() && !self.socket
    }

    pub(crate) fn trust(&self, peer: Option<IpAddr>) -> bool {
        peer.map_or(self.socket, |peer| {
            self.networks.iter().any(|network| network.contains(&peer))
        })
    }

    /// A network of all addresses, such as `0.0.0.0/0`, which may be trusted as its two halves.
    pub(crate) fn everybody(&self) -> Option<IpNet> {
        let networks = IpNet::aggregate(&self.networks);
        networks
            .into_iter()
            .find(|network| network.prefix_len() == 0)
    }

    /// The client, from a list that is read from the right: each proxy has appended the address of its peer. `peer` is trusted, and
    /// without an address if it is on a Unix socket.
    ///
    /// An invalid entry stops the walk: entries to its left may be the client's own. `None`: neither the peer nor the list has an
    /// address that counts.
    pub(crate) fn first_untrusted(
        &self,
        peer: Option<IpAddr>,
        entries: impl Iterator<Item = Entry>,
    ) -> Option<IpAddr> {
        let mut last = peer;
        for entry in entries.take(MAX_ENTRIES) {
            match entry {
                Entry::Address(address) if self.trust(Some(address)) => last = Some(address),
                Entry::Address(address) => return Some(address),
                Entry::Socket if self.socket => {}
                Entry::Socket | Entry::Unreadable => return last,
                Entry::Broken => return peer,
            }
        }
        last
    }
}

/// The entry that the outermost of this many proxies has appended.
pub(crate) fn hop(hops: usize, entries: impl Iterator<Item = Entry>) -> Option<IpAddr> {
    let mut entries = entries.take(hops.min(MAX_ENTRIES));
    for _ in 1..hops {
        entries.next().filter(|entry| *entry != Entry::Broken)?;
    }
    match entries.next()? {
        Entry::Address(address) => Some(address),
        Entry::Socket | Entry::Unreadable | Entry::Broken => None,
    }
}

/// A network, from `10.0.0.0/8` or from a single address. An IPv4-mapped one becomes IPv4, as the addresses that it is compared with.
///
/// # Errors
///
/// A sentence that repeats the text and says what would be right.
pub fn network(text: &str) -> Result<IpNet, String> {
    let single = || text.parse::<IpAddr>().map(IpNet::from);
    let mut network = text.parse::<IpNet>().or_else(|_| single()).map_err(|_| {
        format!(
            "{text:?} is not a network: take an address or a CIDR, as in \"10.0.0.0/8\", \"192.0.2.1\" or \"2001:db8::/32\""
        )
    })?;
    if let IpNet::V6(v6) = network
        && let Some(v4) = v6.addr().to_ipv4_mapped()
        && let Some(length) = v6.prefix_len().checked_sub(96)
        && let Ok(v4) = Ipv4Net::new(v4, length)
    {
        network = v4.into();
    }
    let meant = network.trunc();
    // A prefix of 0 covers all addresses, which `validate` rejects.
    if meant != network && network.prefix_len() > 0 {
        return Err(format!(
            "{text:?} names an address and a network: take \"{meant}\" for the network, or \"{}\" for this one address",
            network.addr()
        ));
    }
    Ok(network)
}
