//! A network as a part of a key.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use crate::{
    key::{KeyBuf, PartKind},
    key_part::KeyPart,
};

/// The network of an address: what stands for a client that is counted by its address.
///
/// IPv4 addresses count whole and IPv6 addresses by their /64, because one host has a whole /64 (RFC 4291).
/// IPv4-mapped IPv6 addresses are IPv4 addresses. An [`IpAddr`] in a key is its network with these prefixes, so
/// `Key::of(address)` is the key that tollgate's `client_ip()` makes. Where `client_ip()` has other prefixes, set the
/// same ones here:
///
/// ```
/// use std::net::IpAddr;
/// use tollgate_core::{Key, Network};
///
/// let client: IpAddr = "2001:db8:1:2::3".parse()?;
/// let neighbour: IpAddr = "2001:db8:1:2::4".parse()?;
/// assert_eq!(Key::of(client), Key::of(neighbour));
///
/// let site = Network::of(client).ipv6_prefix(48);
/// assert_ne!(Key::of(site), Key::of(client));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[must_use]
#[derive(Clone, Copy)]
pub struct Network {
    /// Of the address: the lower 32 where it is an IPv4 address. As a number, which is masked and compared at once.
    bits: u128,
    is_ipv4: bool,
    prefix: u8,
}

impl Network {
    /// The network of this address: an IPv4 address alone, the /64 of an IPv6 address.
    #[inline]
    pub fn of(address: IpAddr) -> Self {
        let (bits, is_ipv4, prefix) = match address.to_canonical() {
            IpAddr::V4(address) => (address.to_bits().into(), true, 32),
            IpAddr::V6(address) => (address.to_bits(), false, 64),
        };
        Self {
            bits,
            is_ipv4,
            prefix,
        }
    }

    /// Counts an IPv4 address by its first `bits` bits. More than 32 are 32.
    #[inline]
    pub fn ipv4_prefix(mut self, bits: u8) -> Self {
        if self.is_ipv4 {
            self.prefix = bits.min(32);
        }
        self
    }

    /// Counts an IPv6 address by its first `bits` bits. More than 128 are 128.
    #[inline]
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        if !self.is_ipv4 {
            self.prefix = bits.min(128);
        }
        self
    }

    /// The first address of the network.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        match self.is_ipv4 {
            true => Ipv4Addr::from_bits(self.first() as u32).into(),
            false => Ipv6Addr::from_bits(self.first()).into(),
        }
    }

    fn first(&self) -> u128 {
        let host = if self.is_ipv4 { 32 } else { 128 } - u32::from(self.prefix);
        self.bits.checked_shr(host).map_or(0, |it| it << host)
    }

    /// The number of bits that the addresses of the network have in common.
    #[must_use]
    pub fn prefix(&self) -> u8 {
        self.prefix
    }
}

/// Equal networks are one key.
impl PartialEq for Network {
    fn eq(&self, other: &Self) -> bool {
        (self.address(), self.prefix()) == (other.address(), other.prefix())
    }
}

impl Eq for Network {}

/// A CIDR, or a whole address: `2001:db8:1:2::/64`, `192.0.2.1`.
impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, prefix) = (self.address(), self.prefix());
        match address {
            IpAddr::V4(_) if prefix == 32 => write!(f, "{address}"),
            IpAddr::V6(_) if prefix == 128 => write!(f, "{address}"),
            _ => write!(f, "{address}/{prefix}"),
        }
    }
}

/// Family, prefix length and network: networks of different prefixes are never one key. The kind is always
/// [`PartKind::ADDRESS`].
impl KeyPart for Network {
    #[inline]
    fn add_to(&self, key: &mut KeyBuf, _: PartKind) {
        if self.is_ipv4 {
            // One number, which is not put together byte by byte.
            let bits = self.bits as u64 & u64::MAX << (32 - self.prefix);
            let first = u64::from((bits as u32).to_be());
            let part = (first << 16 | u64::from(self.prefix) << 8 | 4).to_le_bytes();
            return key.push(PartKind::ADDRESS, &part[..6]);
        }
        let mut part = [0; 18];
        part[..2].copy_from_slice(&[6, self.prefix]);
        part[2..].copy_from_slice(&self.first().to_be_bytes());
        key.push(PartKind::ADDRESS, part);
    }
}

impl KeyPart for IpAddr {
    fn add_to(&self, key: &mut KeyBuf, kind: PartKind) {
        Network::of(*self).add_to(key, kind);
    }
}

impl KeyPart for Ipv4Addr {
    fn add_to(&self, key: &mut KeyBuf, kind: PartKind) {
        IpAddr::from(*self).add_to(key, kind);
    }
}

impl KeyPart for Ipv6Addr {
    fn add_to(&self, key: &mut KeyBuf, kind: PartKind) {
        IpAddr::from(*self).add_to(key, kind);
    }
}

// Shows the prefix only: an address identifies a client.
crate::debug_fields!(Network, it => prefix: it.prefix);

#[cfg(test)]
mod tests {
    use crate::key::Key;

    use super::*;

    fn network(address: &str) -> Network {
        Network::of(address.parse().expect("a test writes an address"))
    }

    #[test]
    fn an_address_counts_by_the_bits_of_its_prefix() {
        let cut = |address, bits| Key::of(network(address).ipv4_prefix(bits).ipv6_prefix(bits));
        for (one, other, common) in [
            ("192.0.2.1", "192.0.2.0", 31),
            ("192.0.2.1", "192.0.130.1", 16),
            ("0.0.0.0", "128.0.0.0", 0),
            ("2001:db8::1", "2001:db8::", 127),
            ("2001:db8:0:1::", "2001:db8::", 63),
            ("::1:0:0:0", "8000::1:0:0:0", 0),
        ] {
            assert_eq!(cut(one, common), cut(other, common), "{one} {other}");
            assert_ne!(
                cut(one, common + 1),
                cut(other, common + 1),
                "{one} {other}"
            );
        }
    }

    #[test]
    fn a_prefix_of_too_many_bits_is_the_whole_address() {
        let [v4, v6] = ["192.0.2.1", "2001:db8::1"].map(network);
        assert_eq!(Key::of(v4.ipv4_prefix(255)), Key::of(v4.ipv4_prefix(32)));
        assert_eq!(Key::of(v6.ipv6_prefix(255)), Key::of(v6.ipv6_prefix(128)));
    }

    #[test]
    fn an_address_is_not_printed() {
        let printed = format!("{:?} {:?}", network("192.0.2.1"), network("2001:db8::1"));
        assert!(
            !printed.contains("192") && !printed.contains("2001"),
            "{printed}"
        );
    }

    #[test]
    fn an_address_is_a_network_whatever_kind_it_is_said_to_be() {
        let mut of_a_look_up = KeyBuf::new();
        Ipv4Addr::LOCALHOST.add_to(&mut of_a_look_up, PartKind::LOOK_UP);
        assert_eq!(Key::of(Ipv4Addr::LOCALHOST), of_a_look_up.into());
        assert_eq!(
            Key::of(Ipv4Addr::LOCALHOST),
            Key::of(Ipv4Addr::LOCALHOST.to_ipv6_mapped())
        );
        // It is not what it prints: that may come from a client.
        assert_ne!(Key::of(Ipv4Addr::LOCALHOST), Key::of("127.0.0.1"));
        assert_eq!(
            Key::of(Ipv6Addr::LOCALHOST),
            Key::of(Network::of(IpAddr::V6(Ipv6Addr::LOCALHOST)))
        );
    }
}
