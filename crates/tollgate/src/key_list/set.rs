//! One version of a list.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use tollgate_core::Tick;

use crate::key_list::{
    key_table::KeyTable,
    networks::{Networks, Prefix},
};

/// The keys and networks of a list.
#[derive(Default)]
pub(super) struct Set {
    keys: KeyTable,
    v4: Networks<u32>,
    v6: Networks<[u64; 2]>,
}

impl Set {
    /// Of keys by their hashes, and of networks. Each has its end.
    pub(super) fn new(keys: &[(u64, Tick)], networks: &[(IpNet, Tick)]) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (network, until) in networks {
            let length = network.prefix_len();
            match network.network() {
                IpAddr::V4(first) => {
                    let first = first.to_bits();
                    v4.push((Prefix { first, length }, *until));
                }
                IpAddr::V6(first) => {
                    let first = halves(first);
                    v6.push((Prefix { first, length }, *until));
                }
            }
        }
        Self {
            keys: KeyTable::new(keys),
            v4: Networks::new(v4),
            v6: Networks::new(v6),
        }
    }

    pub(super) fn has_key(&self, hash: u64) -> bool {
        self.keys.has(hash)
    }

    /// Whether a network holds this address, of which the first `known` bits are known.
    pub(super) fn has_address(&self, address: IpAddr, known: u8) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => self.v4.hold(address.to_bits(), known),
            IpAddr::V6(address) => self.v6.hold(halves(address), known),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len() + self.v4.len + self.v6.len
    }
}

fn halves(address: Ipv6Addr) -> [u64; 2] {
    let bits = address.to_bits();
    [(bits >> 64) as u64, bits as u64]
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
                    // A network that is longer than what is known says nothing.
                    let expected = list.iter().any(|(network, until)| {
                        network.prefix_len() <= known && network.contains(&address) && *until > 1
                    });
                    prop_assert_eq!(set.has_address(address, known), expected, "{} {}", address, known);
                }
            }
        }
    }

    #[test]
    fn networks_of_one_place_and_of_any_lengths_take_at_most_forty_bytes_each() {
        let mixed = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for spread in [0, 40] {
            // The half of them lies in the other half, with later ends.
            let first = |n: u64| [mixed(n / 2) >> spread, (n % 2) << 40];
            let prefix = |n: u64| Prefix {
                first: first(n),
                length: 64 + 24 * (n % 2) as u8,
            };
            let all: Vec<_> = (0..100_000)
                .map(|n| (prefix(n), Tick::MAX - 1 + n % 2))
                .collect();
            let networks = Networks::new(all);
            assert_eq!(networks.len, 100_000);
            assert!(
                networks.bytes() <= 40 * networks.len,
                "{}",
                networks.bytes()
            );
            assert!((0..100_000).all(|n| networks.hold(first(n), 128)));
            assert!(!networks.hold([1 << 39 | 7, 0], 128));
        }
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().expect("an address");
        let of_v4 = ["10.0.0.0/8"].map(|text| (text.parse().expect("a network"), Tick::MAX));
        assert!(Set::new(&[], &of_v4).has_address(mapped, 128));
        assert!(!Set::new(&[], &of_v4).has_address(mapped, 7));
    }
}
