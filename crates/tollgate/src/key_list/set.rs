//! One version of a list: two kinds of tables, of hashes of keys and of networks.

use std::{
    hash::{BuildHasher, Hasher as _, RandomState},
    net::IpAddr,
};

use foldhash::{SharedSeed, fast::FoldHasher};
use ipnet::IpNet;
use tollgate_core::{Clock, Tick};

/// The keys and networks of a list.
#[derive(Default)]
pub(super) struct Set {
    keys: Table,
    /// By family, one table for each length of networks: the first bits of an address are found by one look.
    v4: Vec<(u8, Table)>,
    v6: Vec<(u8, Table)>,
}

/// Open addressing, three of four places taken: 32 bytes an entry.
#[derive(Default)]
pub(super) struct Table {
    places: Box<[Place]>,
    seed: u64,
    len: usize,
}

#[derive(Clone, Copy, Default)]
struct Place {
    entry: [u64; 2],
    /// 0 of a place that is free, and the largest number of an entry without an end.
    until: Tick,
}

impl Set {
    /// Of keys by their hashes, and of networks. Each has its end.
    pub(super) fn new(keys: &[(u128, Tick)], networks: &[(IpNet, Tick)]) -> Self {
        let mut lengths: Vec<(bool, u8)> = networks
            .iter()
            .map(|(network, _)| (network.addr().is_ipv4(), network.prefix_len()))
            .collect();
        lengths.sort_unstable();
        lengths.dedup();
        let mut set = Self {
            keys: Table::new(keys),
            ..Self::default()
        };
        for (is_v4, length) in lengths {
            let of_length = networks.iter().filter(|(network, _)| {
                network.addr().is_ipv4() == is_v4 && network.prefix_len() == length
            });
            let of_length: Vec<_> = of_length
                .map(|(network, until)| (bits(network.network()), *until))
                .collect();
            let tables = if is_v4 { &mut set.v4 } else { &mut set.v6 };
            tables.push((length, Table::new(&of_length)));
        }
        set
    }

    pub(super) fn has_key(&self, hash: u128) -> bool {
        self.keys.has(hash)
    }

    /// Whether a network holds this address, of which the first `known` bits are known.
    pub(super) fn has_address(&self, address: IpAddr, known: u8) -> bool {
        let address = address.to_canonical();
        let (tables, width) = match address {
            IpAddr::V4(_) => (&self.v4, 32),
            IpAddr::V6(_) => (&self.v6, 128),
        };
        let bits = bits(address);
        let mut tables = tables.iter().filter(|(length, _)| *length <= known);
        tables.any(|(length, table)| {
            // A length is at least 1.
            let rest = width - u32::from(*length);
            table.has(bits >> rest << rest)
        })
    }

    pub(super) fn len(&self) -> usize {
        let networks = self.v4.iter().chain(&self.v6);
        self.keys.len + networks.map(|(_, table)| table.len).sum::<usize>()
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl Table {
    fn new(entries: &[(u128, Tick)]) -> Self {
        if entries.is_empty() {
            return Self::default();
        }
        let mut table = Self {
            places: vec![Place::default(); entries.len() * 4 / 3 + 1].into(),
            seed: RandomState::new().hash_one(0_u8),
            len: 0,
        };
        for (entry, until) in entries {
            let entry = halves(*entry);
            let place = table.place(entry);
            let place = &mut table.places[place];
            table.len += usize::from(place.until == 0);
            place.entry = entry;
            // Of two ends the later counts.
            place.until = place.until.max((*until).max(1));
        }
        table
    }

    /// The index of the place of this entry, or of the free one that it would have. There always is a free one.
    fn place(&self, entry: [u64; 2]) -> usize {
        let mixed =
            u128::from(entry[0] ^ self.seed) * u128::from(entry[1] ^ self.seed.rotate_left(32) | 1);
        let mixed = (mixed as u64 ^ (mixed >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // A multiplication in place of a division.
        let mut index = (u128::from(mixed) * self.places.len() as u128 >> 64) as usize;
        while self.places[index].until != 0 && self.places[index].entry != entry {
            index = (index + 1) % self.places.len();
        }
        index
    }

    fn has(&self, entry: u128) -> bool {
        if self.len == 0 {
            return false;
        }
        match self.places[self.place(halves(entry))].until {
            0 => false,
            Tick::MAX => true,
            until => Clock::system().now() < until,
        }
    }
}

fn halves(entry: u128) -> [u64; 2] {
    [entry as u64, (entry >> 64) as u64]
}

/// Hashes of keys that no other process has: its two halves have no seed in common.
pub(super) struct Hasher([(u64, SharedSeed); 2]);

impl Hasher {
    pub(super) fn hash(&self, key: &[u8]) -> u128 {
        let [low, high] = self.0.each_ref().map(|(seed, shared)| {
            let mut hasher = FoldHasher::with_seed(*seed, shared);
            hasher.write(key);
            u128::from(hasher.finish())
        });
        low | high << 64
    }
}

impl Default for Hasher {
    fn default() -> Self {
        let random = RandomState::new();
        let half = |n: u8| {
            (
                random.hash_one(n),
                SharedSeed::from_u64(random.hash_one(n + 2)),
            )
        };
        Self([half(0), half(1)])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_table_has_what_it_was_made_of_and_nothing_else_at_forty_bytes_an_entry() {
        let entries: HashMap<u128, Tick> = (0..100_000_u128)
            .map(|n| (n * n << (n % 90), if n % 3 == 0 { 5 } else { Tick::MAX }))
            .collect();
        let list: Vec<_> = entries
            .iter()
            .map(|(entry, until)| (*entry, *until))
            .collect();
        let table = Table::new(&list);
        assert_eq!(table.len, entries.len());
        assert!(table.places.len() * size_of::<Place>() <= 40 * table.len);
        for n in 0..200_000_u128 {
            let entry = n * n << (n % 90);
            // What has ended is in no list.
            let expected = entries.get(&entry) == Some(&Tick::MAX);
            assert_eq!(table.has(entry), expected, "{entry}");
        }
        assert!(!Table::new(&[]).has(0));
    }

    #[test]
    fn an_address_is_in_a_network_as_ipnet_says() {
        let networks = [
            "10.0.0.0/8",
            "10.1.0.0/16",
            "192.0.2.7/32",
            "128.0.0.0/1",
            "2001:db8::/32",
            "2001:db8:1:2:3::/80",
            "::1/128",
            "8000::/1",
        ];
        let networks = networks.map(|text| text.parse::<IpNet>().expect("a network"));
        let set = Set::new(&[], &networks.map(|network| (network, Tick::MAX)));
        assert_eq!(set.len(), networks.len());
        for address in [
            "10.255.0.1",
            "10.1.2.3",
            "11.0.0.0",
            "192.0.2.7",
            "192.0.2.8",
            "127.255.255.255",
            "0.0.0.0",
            "::ffff:10.0.0.1",
            "2001:db8:ffff::",
            "2001:db9::",
            "::1",
            "::2",
            "ffff::",
            "7fff::",
        ] {
            let address: IpAddr = address.parse().expect("an address");
            let expected = networks
                .iter()
                .any(|network| network.contains(&address.to_canonical()));
            assert_eq!(set.has_address(address, 128), expected, "{address}");
        }
        // Of a client that is known by its /64, longer networks say nothing.
        let cut = "2001:db9::".parse().expect("an address");
        let of_host = ["2001:db9::/96"].map(|text| (text.parse().expect("a network"), Tick::MAX));
        assert!(!Set::new(&[], &of_host).has_address(cut, 64));
        assert!(Set::new(&[], &of_host).has_address(cut, 128));
    }
}
