//! One version of a list: its entries as text, and its keys and networks.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    time::UNIX_EPOCH,
};

use foldhash::fast::RandomState;
use ipnet::IpNet;
use tollgate_core::{Quota, Tick};

use crate::{
    key::network,
    key_list::networks::{Networks, is_before},
};

/// The keys and networks of a list.
#[derive(Default)]
pub(super) struct Set {
    keys: KeyTable,
    v4: Networks<u32>,
    v6: Networks<u128>,
}

impl Set {
    /// Of keys by their hashes, and of networks. Each has its end.
    pub(super) fn new(keys: &[(u64, Tick)], networks: &[(IpNet, Tick)]) -> Self {
        let (v4, v6): (Vec<_>, Vec<_>) = networks
            .iter()
            .partition(|(network, _)| network.addr().is_ipv4());
        let range = |(network, until): &(IpNet, Tick)| {
            (bits(network.network()), bits(network.broadcast()), *until)
        };
        Self {
            keys: KeyTable::new(keys),
            v4: Networks::new(v4.into_iter().map(range)),
            v6: Networks::new(v6.into_iter().map(range)),
        }
    }

    pub(super) fn has_key(&self, hash: u64) -> bool {
        self.keys.has(hash)
    }

    /// Whether networks hold all addresses whose first `known` bits are those of this one.
    pub(super) fn has_address(&self, address: IpAddr, known: u8) -> bool {
        let address = address.to_canonical();
        match address.is_ipv4() {
            true => self.v4.hold(bits(address), known),
            false => self.v6.hold(bits(address), known),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len() + self.v4.len + self.v6.len
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Hashes of 64 bits: with a million keys, one of 2^44 others passes for one of them.
#[derive(Default)]
pub(super) struct KeyTable {
    endless: HashSet<u64, RandomState>,
    ending: HashMap<u64, Tick, RandomState>,
}

impl KeyTable {
    /// Of hashes with their ends. Of two ends the later one counts.
    pub(super) fn new(entries: &[(u64, Tick)]) -> Self {
        let endless = entries.iter().filter(|(_, until)| *until == Tick::MAX);
        let mut table = Self {
            endless: endless.map(|(hash, _)| *hash).collect(),
            ending: HashMap::default(),
        };
        for (hash, until) in entries {
            if !table.endless.contains(hash) {
                let end = table.ending.entry(*hash).or_default();
                *end = (*end).max(*until);
            }
        }
        table.endless.shrink_to_fit();
        table.ending.shrink_to_fit();
        table
    }

    pub(super) fn len(&self) -> usize {
        self.endless.len() + self.ending.len()
    }

    pub(super) fn has(&self, hash: u64) -> bool {
        self.endless.contains(&hash) || self.ending.get(&hash).is_some_and(|end| is_before(*end))
    }
}

/// What a line says.
pub(super) enum Entry<'a> {
    Key(&'a str),
    Network(IpNet),
}

/// What a line says: nothing if it is a comment.
pub(super) fn without_comment(line: &str) -> &str {
    // Some editors begin a file with the mark, which would be a part of the first entry.
    let line = line.trim_start_matches('\u{feff}').trim();
    let comment = match line.starts_with('#') {
        true => Some(0),
        false => line.find(" #").or_else(|| line.find("\t#")),
    };
    line[..comment.unwrap_or(line.len())].trim_end()
}

/// Reads a line. `None`: it says nothing.
pub(super) fn read_entry(line: &str) -> Result<Option<(Entry<'_>, Tick)>, String> {
    let line = without_comment(line);
    if line.is_empty() {
        return Ok(None);
    }
    let (text, until) = match line.rsplit_once(" until ") {
        None => (line, Tick::MAX),
        Some((text, until)) => (text.trim_end(), end(until.trim_start())?),
    };
    // A key that begins as an address, or has only the characters of one, is a network with a mistake.
    let mut words = text.split(|c: char| matches!(c, '/' | ',') || c.is_whitespace());
    let is_address = words.next().is_some_and(|it| it.parse::<IpAddr>().is_ok());
    let is_like_one = || {
        let is_of_one = |byte| matches!(byte, b'0'..=b'9' | b'.' | b'*' | b'/');
        let dots = text.matches('.').count();
        text.bytes().all(is_of_one) && (dots == 3 || dots > 0 && text.contains('/'))
    };
    if !is_address && !is_like_one() {
        return Ok(Some((Entry::Key(text), until)));
    }
    let network = network(text)?;
    if network.prefix_len() == 0 {
        return Err(format!(
            "{text:?} names all addresses; leave the list away, or name networks"
        ));
    }
    Ok(Some((Entry::Network(network), until)))
}

/// The end of an entry, which is read as that of a quota is.
fn end(text: &str) -> Result<Tick, String> {
    let quota: Quota = format!("none until {text}")
        .parse()
        .map_err(|wrong: tollgate_core::types::ParseQuotaError| wrong.message().to_owned())?;
    let end = quota
        .ends_at()
        .and_then(|end| end.duration_since(UNIX_EPOCH).ok())
        .unwrap_or_default()
        .as_micros();
    Ok(Tick::try_from(end).unwrap_or(Tick::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// Addresses and networks that meet: of few bits that differ, at both ends of what there is.
    fn network(is_v4: bool, high: u8, low: u8, length: u8) -> IpNet {
        let high = u128::from(high) << 120;
        let address = match is_v4 {
            true => IpAddr::V4((((high >> 96) as u32) | u32::from(low)).into()),
            false => IpAddr::V6((high | u128::from(low)).into()),
        };
        let most = if is_v4 { 32 } else { 128 };
        let network = IpNet::new(address, length.clamp(1, most)).expect("a length");
        network.trunc()
    }

    prop_compose! {
        fn networks()(
            is_v4: bool,
            high in prop_oneof![Just(0), Just(255), any::<u8>()],
            low in prop_oneof![Just(0), Just(255), any::<u8>()],
            length in prop_oneof![1_u8..10, 20_u8..33, 60_u8..70, 118_u8..=128],
        ) -> IpNet {
            network(is_v4, high, low, length)
        }
    }

    proptest! {
        #[test]
        fn an_address_is_in_a_network_as_ipnet_says(
            list in vec((networks(), prop_oneof![Just(Tick::MAX), Just(1), Just(Tick::MAX - 1)]), 0..60),
            asked in vec((networks(), prop_oneof![Just(128_u8), 1_u8..128]), 40),
        ) {
            let set = Set::new(&[], &list);
            let mut distinct: Vec<_> = list.iter().map(|(network, _)| *network).collect();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(set.len(), distinct.len());
            for (place, known) in asked {
                for address in [place.network(), place.broadcast()] {
                    let has = |address: IpAddr, known: u8| {
                        list.iter().any(|(network, until)| {
                            network.prefix_len() <= known && network.contains(&address) && *until > 1
                        })
                    };
                    let found = set.has_address(address, known);
                    prop_assert!(found || !has(address, known), "{address} {known}");
                    // All addresses may be those of several networks.
                    prop_assert!(!found || has(address, 128), "{address} {known}");
                    prop_assert_eq!(set.has_address(address, 128), has(address, 128), "{}", address);
                }
            }
        }
    }

    #[test]
    fn networks_of_one_place_and_of_any_lengths_take_at_most_52_bytes_each() {
        let mixed = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for spread in [0, 40] {
            // The half of them lies in the other half, with later ends.
            let first = |n: u64| u128::from(mixed(n / 2) >> spread) << 64 | u128::from(n % 2) << 40;
            let range = |n: u64| {
                let rest = u128::MAX >> (64 + 24 * (n % 2));
                (first(n), first(n) | rest, Tick::MAX - 1 + n % 2)
            };
            let networks = Networks::<u128>::new((0..20_000).map(range));
            assert_eq!(networks.len, 20_000);
            assert!(
                networks.bytes() <= 52 * networks.len,
                "{}",
                networks.bytes()
            );
            assert!((0..20_000).all(|n| networks.hold(first(n), 128)));
            assert!(!networks.hold(1 << 103 | 7, 128));
        }
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().expect("an address");
        let of_v4 = ["10.0.0.0/8"].map(|text| (text.parse().expect("a network"), Tick::MAX));
        assert!(Set::new(&[], &of_v4).has_address(mapped, 128));
        assert!(!Set::new(&[], &of_v4).has_address(mapped, 7));
    }

    #[test]
    fn an_address_with_a_mistake_is_no_key() {
        for line in [
            "300.0.113.7",
            "203.0.113.*",
            "10.0.0/8",
            "192.0.2.1, 192.0.2.2",
            "192.0.2.1 unti 2999-12-24T00:00Z",
            "192.0.2.1\tuntil 2999-12-24T00:00Z",
            "::1 x",
        ] {
            assert!(read_entry(line).is_err(), "{line}");
        }
        // As a socket of both families prints it.
        let mapped = read_entry("::ffff:203.0.113.9");
        assert!(matches!(
            mapped,
            Ok(Some((Entry::Network(IpNet::V4(_)), _)))
        ));
        for key in [
            "192",
            "1.2",
            "a/b",
            "2024/05",
            "192.0.2.1:80",
            "acme key 1",
            "1.2.3.4-x",
        ] {
            assert!(
                matches!(read_entry(key), Ok(Some((Entry::Key(_), _)))),
                "{key}"
            );
        }
    }

    #[test]
    fn a_table_has_what_it_was_made_of_and_nothing_else() {
        for hash in [
            |n: u64| n,
            |n| n << 40,
            |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        ] {
            let until = |n| if n % 3 == 0 { 5 } else { Tick::MAX };
            let list: Vec<_> = (1..20_000).map(|n| (hash(n), until(n))).collect();
            let table = KeyTable::new(&[&list[..], &list[..100]].concat());
            let endless: Vec<_> = list.iter().map(|(hash, _)| (*hash, Tick::MAX)).collect();
            let endless = KeyTable::new(&endless);
            assert_eq!((table.len(), endless.len()), (list.len(), list.len()));
            for n in 1..40_000 {
                // What has ended is in no list.
                let is_in = n < 20_000;
                assert_eq!(table.has(hash(n)), is_in && n % 3 > 0, "{n}");
                assert_eq!(endless.has(hash(n)), is_in, "{n}");
            }
        }
        assert!(!KeyTable::new(&[]).has(0));
    }
}
