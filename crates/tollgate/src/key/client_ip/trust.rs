//! Which proxies are trusted.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

use crate::key::client_ip::entry::Entry;

/// How many entries of a list are read, from the right.
pub(crate) const MAX_ENTRIES: usize = 64;

/// Which proxies are trusted.
#[derive(Clone, Debug)]
pub(crate) enum Trust {
    /// None.
    NoProxy,
    /// Proxies in these networks.
    Proxies(Vec<IpNet>),
    /// This many proxies in a chain, the peer included.
    Hops(usize),
}

impl Trust {
    /// Whether the peer's header counts.
    pub(crate) fn trusts(&self, peer: IpAddr) -> bool {
        match self {
            Self::NoProxy => false,
            Self::Proxies(networks) => networks.iter().any(|network| network.contains(&peer)),
            Self::Hops(_) => true,
        }
    }

    /// Rejects networks that cover all addresses, such as `0.0.0.0/0`, or its two halves.
    pub(crate) fn validate(&self) -> Result<(), String> {
        let Self::Proxies(networks) = self else {
            return Ok(());
        };
        match IpNet::aggregate(networks)
            .into_iter()
            .find(|network| network.prefix_len() == 0)
        {
            None => Ok(()),
            Some(network) => Err(format!(
                "trusted_proxies(..) covers {network}, which is every client: each could choose its own address; name the \
                 networks of your proxies, \"10.0.0.0/8\" say, or take hops(..) with the number of proxies if clients cannot get \
                 past them"
            )),
        }
    }

    /// The client, from a list that is read from the right: each proxy has appended the address of its peer.
    pub(crate) fn client(&self, peer: IpAddr, entries: impl Iterator<Item = Entry>) -> IpAddr {
        if !self.trusts(peer) {
            return peer;
        }
        match self {
            Self::NoProxy => peer,
            Self::Proxies(_) => self.first_untrusted(peer, entries),
            Self::Hops(hops) => hop(*hops, entries).unwrap_or(peer),
        }
    }

    /// An invalid entry stops the walk: entries to its left may be the client's own.
    fn first_untrusted(&self, peer: IpAddr, entries: impl Iterator<Item = Entry>) -> IpAddr {
        let mut last = peer;
        for entry in entries.take(MAX_ENTRIES) {
            match entry {
                Entry::Address(address) if self.trusts(address) => last = address,
                Entry::Address(address) => return address,
                Entry::Unreadable => return last,
                Entry::Broken => return peer,
            }
        }
        last
    }
}

fn hop(hops: usize, entries: impl Iterator<Item = Entry>) -> Option<IpAddr> {
    let mut entries = entries.take(hops.min(MAX_ENTRIES));
    for _ in 1..hops {
        entries.next().filter(|entry| *entry != Entry::Broken)?;
    }
    match entries.next()? {
        Entry::Address(address) => Some(address),
        Entry::Unreadable | Entry::Broken => None,
    }
}

/// A network, from `10.0.0.0/8` or from a single address. An IPv4-mapped one becomes IPv4.
pub(crate) fn network(text: &str) -> Result<IpNet, String> {
    let single = || text.parse::<IpAddr>().map(IpNet::from);
    let network = text.parse::<IpNet>().or_else(|_| single()).map_err(|_| {
        format!(
            "{text:?} is not a network: take an address or a CIDR, as in \"10.0.0.0/8\", \"192.0.2.1\" or \"2001:db8::/32\""
        )
    })?;
    let network = unmapped(network);
    let meant = network.trunc();
    // A prefix of 0 covers all addresses, which `validate` rejects.
    if meant != network && network.prefix_len() > 0 {
        return Err(format!(
            "{text:?} names an address and a network: take \"{meant}\" for the network, or \"{}\" for this one proxy",
            network.addr()
        ));
    }
    Ok(network)
}

fn unmapped(network: IpNet) -> IpNet {
    let mapped = match network {
        IpNet::V6(v6) if v6.prefix_len() >= 96 => v6
            .addr()
            .to_ipv4_mapped()
            .map(|v4| (v4, v6.prefix_len() - 96)),
        _ => None,
    };
    mapped
        .and_then(|(address, prefix)| Ipv4Net::new(address, prefix).ok())
        .map_or(network, IpNet::V4)
}
