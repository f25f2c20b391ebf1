//! The networks of an address family, as ranges of addresses.

use std::{cell::Cell, cmp::Reverse};

use tollgate_core::{Tick, wall_clock};

/// How many ranges a place of the index stands for, if they are spread evenly.
const EACH: usize = 8;

/// Finds the range that an address is in, however many networks there are and of whatever lengths: the first bits of the address lead to
/// a few ranges, which are searched by halves.
#[derive(Default)]
pub(super) struct Networks<T> {
    /// Where each range begins. It ends where the next one begins.
    begins: Box<[T]>,
    /// Until when the addresses of a range are in a network. 0: they are in none.
    ends: Box<[Tick]>,
    /// How many ranges begin before each place of the addresses from the first range on, and how many bits of an address say less than
    /// its place.
    index: Box<[u32]>,
    shift: u32,
    /// How many networks these are.
    pub(super) len: usize,
}

impl<T: Copy + Default + Ord + Into<u128> + TryFrom<u128>> Networks<T> {
    /// Of networks, from their first addresses to their last, with their ends. Of several that hold an address the latest end counts.
    pub(super) fn new(networks: impl Iterator<Item = (u128, u128, Tick)>) -> Self {
        let mut all: Vec<_> = networks.collect();
        // The outer one of two networks that begin at one address comes first, and so does the later end.
        all.sort_unstable_by_key(|(first, last, until)| (*first, Reverse((*last, *until))));
        all.dedup_by_key(|(first, last, _)| (*first, *last));
        let len = all.len();
        let (mut begins, mut ends) = (Vec::<u128>::new(), Vec::<Tick>::new());
        let mut begin = |at, until| {
            if begins.last() == Some(&at) {
                begins.pop();
                ends.pop();
            }
            if ends.last().copied().unwrap_or(0) != until {
                begins.push(at);
                ends.push(until);
            }
        };
        // The last addresses of the networks around the present one, and the latest ends up to each.
        let mut around = Vec::<(u128, Tick)>::new();
        for (first, last, until) in all.into_iter().chain([(u128::MAX, u128::MAX, 0)]) {
            while let Some((before, _)) = around.pop_if(|(last, _)| *last < first) {
                begin(before + 1, around.last().map_or(0, |(_, until)| *until));
            }
            let until = around.last().map_or(until, |(_, outer)| until.max(*outer));
            around.push((last, until));
            begin(first, until);
        }
        // What begins behind the last address begins nowhere.
        let begins: Vec<T> = begins.iter().flat_map(|it| T::try_from(*it)).collect();
        ends.truncate(begins.len());
        let [Some(first), Some(last)] = [begins.first(), begins.last()].map(|it| it.map(bits))
        else {
            return Self::default();
        };
        // Two at least, so that a shift is by less than all bits.
        let places = (begins.len() / EACH).next_power_of_two().max(2);
        let shift = (u128::BITS - (last - first).leading_zeros()).saturating_sub(places.ilog2());
        let (mut index, mut begun) = (Vec::with_capacity(places + 1), 0);
        for at in 0..=places {
            begun += begins[begun..].partition_point(|it| (bits(it) - first) >> shift < at as u128);
            index.push(begun as u32);
        }
        Self {
            begins: begins.into(),
            ends: ends.into(),
            index: index.into(),
            shift,
            len,
        }
    }

    /// Whether networks hold all addresses whose first `known` bits are those of this one.
    pub(super) fn hold(&self, address: u128, known: u8) -> bool {
        let unknown_bits = (size_of::<T>() as u32 * 8).saturating_sub(known.into());
        let unknown = u128::MAX
            .checked_shr(u128::BITS - unknown_bits)
            .unwrap_or(0);
        let (first, last) = (address & !unknown, address | unknown);
        let from = self.begins.first().map(bits);
        let Some(behind) = from.and_then(|from| first.checked_sub(from)) else {
            return false;
        };
        let most = self.index.len() - 2;
        let place = usize::try_from(behind >> self.shift).map_or(most, |place| place.min(most));
        let [begun, end] = [self.index[place], self.index[place + 1]].map(|it| it as usize);
        let few = &self.begins[begun..end];
        // The first range of all begins before it.
        let at = begun + few.partition_point(|it| bits(it) <= first) - 1;
        let mut ranges = self.begins[at..]
            .iter()
            .zip(&self.ends[at..])
            .take_while(|(begin, _)| bits(*begin) <= last);
        ranges.all(|(_, end)| is_before(*end))
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.begins) + size_of_val(&*self.ends) + size_of_val(&*self.index)
    }
}

fn bits<T: Copy + Into<u128>>(address: &T) -> u128 {
    (*address).into()
}

thread_local! {
    /// The time that counts in this thread, if it is not that of the wall clock.
    static NOW: Cell<Option<Tick>> = const { Cell::new(None) };
}

/// Sets the time by which entries of all lists end in this thread: that of a log whose requests are decided again.
pub fn end_lists_by(now: Tick) {
    NOW.set(Some(now));
}

/// Whether it is before the end of an entry.
pub(super) fn is_before(end: Tick) -> bool {
    end == Tick::MAX || NOW.get().unwrap_or_else(wall_clock) < end
}
