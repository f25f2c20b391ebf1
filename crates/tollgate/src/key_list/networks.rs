//! The networks of an address family, in the order of their first addresses.

use tollgate_core::{Clock, Tick};

/// How many networks a place of the index stands for, if they are spread evenly.
const EACH: usize = 8;
/// The parent of a network that lies in no other one.
const NONE: u32 = u32::MAX;

/// Finds the last network that begins at an address or before it, however many lengths there are: the first bits of the address lead to
/// a few networks, which are searched by halves. With ends an IPv4 network takes 21 bytes at most, and one of IPv6 37.
///
/// A network that lies in another one is left out, unless its end is later: then the inner one decides for its addresses.
#[derive(Default)]
pub(super) struct Networks<T> {
    networks: Box<[Prefix<T>]>,
    /// How many networks begin before each place of the addresses from the first network on, and how many bits of an address say less
    /// than its place.
    index: Box<[u32]>,
    shift: u32,
    /// The network in which each one lies; empty if none does.
    parents: Box<[u32]>,
    /// Empty if none has an end.
    ends: Box<[Tick]>,
    /// How many there are, also those that are left out.
    pub(super) len: usize,
}

/// A network whose first bits are these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Prefix<T> {
    pub(super) first: T,
    pub(super) length: u8,
}

/// An address of a family: of IPv6 in halves, whose alignment costs less.
pub(super) trait Address: Copy + Default + Ord {
    const BITS: u8;

    fn bits(self) -> u128;
}

impl Address for u32 {
    const BITS: u8 = 32;

    fn bits(self) -> u128 {
        self.into()
    }
}

impl Address for [u64; 2] {
    const BITS: u8 = 128;

    fn bits(self) -> u128 {
        u128::from(self[0]) << 64 | u128::from(self[1])
    }
}

impl<T: Address> Prefix<T> {
    fn holds(self, address: T) -> bool {
        // A length is at least 1.
        (self.first.bits() ^ address.bits()) >> (T::BITS - self.length) == 0
    }
}

impl<T: Address> Networks<T> {
    /// Of networks with their ends. Of two ends of one the later one counts.
    pub(super) fn new(mut all: Vec<(Prefix<T>, Tick)>) -> Self {
        // The later end comes first, and so does the outer one of two networks that begin at one address.
        all.sort_unstable_by_key(|(network, until)| (*network, Tick::MAX - until));
        all.dedup_by_key(|(network, _)| *network);
        let (len, mut kept) = (all.len(), Vec::<(Prefix<T>, Tick, u32)>::new());
        let mut around = Vec::<u32>::new();
        for (network, until) in all {
            while let Some(last) = around.last()
                && !kept[*last as usize].0.holds(network.first)
            {
                around.pop();
            }
            let parent = around.last().copied();
            if parent.is_none_or(|parent| kept[parent as usize].1 < until) {
                around.push(kept.len() as u32);
                kept.push((network, until, parent.unwrap_or(NONE)));
            }
        }
        let [Some(first), Some(last)] =
            [kept.first(), kept.last()].map(|it| it.map(|(network, ..)| network.first.bits()))
        else {
            return Self::default();
        };
        // Two at least, so that a shift is by less than all bits.
        let places = (kept.len() / EACH).next_power_of_two().max(2);
        let shift = (u128::BITS - (last - first).leading_zeros()).saturating_sub(places.ilog2());
        let place = |network: &Prefix<T>| ((network.first.bits() - first) >> shift) as usize;
        let (mut index, mut begun) = (Vec::with_capacity(places + 1), 0);
        for at in 0..=places {
            begun += kept[begun..].partition_point(|(network, ..)| place(network) < at);
            index.push(begun as u32);
        }
        let has_parents = kept.iter().any(|(.., parent)| *parent != NONE);
        let has_ends = kept.iter().any(|(_, until, _)| *until < Tick::MAX);
        let (parents, ends) = (
            kept.iter().filter(|_| has_parents).map(|it| it.2).collect(),
            kept.iter().filter(|_| has_ends).map(|it| it.1).collect(),
        );
        Self {
            networks: kept.iter().map(|(network, ..)| *network).collect(),
            index: index.into(),
            shift,
            parents,
            ends,
            len,
        }
    }

    /// Whether one holds this address, of which the first `known` bits are known.
    pub(super) fn hold(&self, address: T, known: u8) -> bool {
        let Some(from) = self.networks.first() else {
            return false;
        };
        let Some(behind) = address.bits().checked_sub(from.first.bits()) else {
            return false;
        };
        let last = self.index.len() - 2;
        let place = usize::try_from(behind >> self.shift).map_or(last, |place| place.min(last));
        let [begun, end] = [self.index[place], self.index[place + 1]].map(|it| it as usize);
        let few = &self.networks[begun..end];
        let before = begun + few.partition_point(|network| network.first <= address);
        let Some(mut at) = before.checked_sub(1) else {
            return false;
        };
        loop {
            let network = self.networks[at];
            if network.length <= known && network.holds(address) {
                return self.ends.get(at).is_none_or(|end| is_before(*end));
            }
            match self.parents.get(at) {
                Some(parent) if *parent != NONE => at = *parent as usize,
                _ => return false,
            }
        }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let networks = size_of_val(&*self.networks) + size_of_val(&*self.index);
        networks + size_of_val(&*self.parents) + size_of_val(&*self.ends)
    }
}

/// Whether it is before the end of an entry.
pub(super) fn is_before(end: Tick) -> bool {
    end == Tick::MAX || Clock::system().now() < end
}
