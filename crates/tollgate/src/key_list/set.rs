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

/// Open addressing with one place in two taken, or three in five where entries have ends: at most 40 bytes an entry, and mostly one
/// cache line a look.
#[derive(Default)]
pub(super) struct Table {
    /// `[0, 0]` is free.
    places: Box<[[u64; 2]]>,
    /// By place; empty if no entry has an end.
    ends: Box<[Tick]>,
    /// The end of the entry that is written as a free place is. 0: there is none.
    end_of_zero: Tick,
    seed: u64,
    len: usize,
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
        let has_ends = entries.iter().any(|(_, until)| *until < Tick::MAX);
        let places = match has_ends {
            true => entries.len() * 13 / 8 + 2,
            false => entries.len() * 2,
        };
        let mut table = Self {
            places: vec![[0; 2]; places].into(),
            ends: vec![0; if has_ends { places } else { 0 }].into(),
            end_of_zero: 0,
            seed: RandomState::new().hash_one(0_u8),
            len: 0,
        };
        for (entry, until) in entries {
            // Of two ends the later counts.
            let until = (*until).max(1);
            let entry = halves(*entry);
            if entry == [0; 2] {
                table.len += usize::from(table.end_of_zero == 0);
                table.end_of_zero = table.end_of_zero.max(until);
                continue;
            }
            let place = table.place(entry);
            table.len += usize::from(table.places[place] != entry);
            table.places[place] = entry;
            if let Some(end) = table.ends.get_mut(place) {
                *end = (*end).max(until);
            }
        }
        table
    }

    /// The index of the place of this entry, or of the free one that it would have. There always is a free one.
    fn place(&self, entry: [u64; 2]) -> usize {
        let mixed =
            u128::from(entry[0] ^ self.seed) * u128::from(entry[1] ^ self.seed.rotate_left(32) | 1);
        let mixed = (mixed as u64 ^ (mixed >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // A multiplication in place of a division.
        let mut index = ((u128::from(mixed) * self.places.len() as u128) >> 64) as usize;
        while self.places[index] != [0; 2] && self.places[index] != entry {
            index += 1;
            if index == self.places.len() {
                index = 0;
            }
        }
        index
    }

    fn has(&self, entry: u128) -> bool {
        let entry = halves(entry);
        if self.len == 0 {
            return false;
        }
        let end = match entry {
            [0, 0] => self.end_of_zero,
            entry => {
                let place = self.place(entry);
                match self.places[place] == entry {
                    true => self.ends.get(place).copied().unwrap_or(Tick::MAX),
                    false => 0,
                }
            }
        };
        end == Tick::MAX || end > 0 && Clock::system().now() < end
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
            .map(|n| ((n * n) << (n % 90), if n % 3 == 0 { 5 } else { Tick::MAX }))
            .collect();
        let list: Vec<_> = entries
            .iter()
            .map(|(entry, until)| (*entry, *until))
            .collect();
        let table = Table::new(&list);
        assert_eq!(table.len, entries.len());
        assert!(size_of_val(&*table.places) + size_of_val(&*table.ends) <= 40 * table.len);
        let endless: Vec<_> = list.iter().map(|(entry, _)| (*entry, Tick::MAX)).collect();
        let endless = Table::new(&endless);
        assert!(size_of_val(&*endless.places) <= 40 * table.len && endless.ends.is_empty());
        for n in 0..200_000_u128 {
            let entry = (n * n) << (n % 90);
            // What has ended is in no list.
            let expected = entries.get(&entry) == Some(&Tick::MAX);
            assert_eq!(table.has(entry), expected, "{entry}");
            assert_eq!(endless.has(entry), entries.contains_key(&entry), "{entry}");
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
