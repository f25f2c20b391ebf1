//! Which keys are heaviest, in fixed memory: the algorithm Space-Saving (Metwally, Agrawal, El Abbadi 2005), in sets of eight.

use crate::key::Fingerprint;

/// The keys in a set. A set is looked through for each request, and lies on few cache lines.
const WAYS: usize = 8;
/// A power of two.
const SETS: usize = 32;

/// The heaviest of the keys that came.
///
/// A key belongs to one set of eight. One that is not there takes the place of the lightest in its set, and begins with that
/// one's count, which is its error: it came at most so often before. So no key that came more often than the lightest in its set
/// is missing, and each count is at most its error too high.
#[derive(Clone)]
pub(super) struct Sketch {
    sets: Box<[Set; SETS]>,
    /// The requests of all keys.
    pub(super) total: u64,
}

#[derive(Clone, Copy)]
struct Set {
    /// The highest 64 bits of the fingerprints; 0 is a free place.
    keys: [u64; WAYS],
    counts: [u32; WAYS],
    errors: [u32; WAYS],
    denials: [u32; WAYS],
    costs: [u64; WAYS],
    /// Bits: what was done about a key since it has its place.
    labelled: u8,
    reported: u8,
}

/// What became of a request in the sketch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recorded {
    /// The requests of its key so far, at most.
    pub(super) count: u32,
    /// Whether the key was there, and nothing has labelled it.
    pub(super) wants_label: bool,
}

/// What is known of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) key: u64,
    /// Its requests, at most.
    pub(super) count: u64,
    /// By how much that may be too high.
    pub(super) error: u64,
    /// Its denials since it has its place.
    pub(super) denials: u64,
    /// Its units since it has its place.
    pub(super) cost: u64,
}

const EMPTY: Set = Set {
    keys: [0; WAYS],
    counts: [0; WAYS],
    errors: [0; WAYS],
    denials: [0; WAYS],
    costs: [0; WAYS],
    labelled: 0,
    reported: 0,
};

/// The bits of a key that a sketch knows. A place that is free has none.
#[inline]
pub(super) fn known_bits(key: Fingerprint) -> u64 {
    ((key.bits() >> 64) as u64).max(1)
}

#[inline]
fn set_of(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SETS.trailing_zeros())) as usize
}

impl Sketch {
    /// The bytes that its box has.
    #[cfg(any(feature = "metrics", all(test, not(tollgate_shuttle))))]
    pub(super) const BYTES: usize = size_of::<[Set; SETS]>();

    pub(super) fn new() -> Self {
        Self {
            sets: Box::new([EMPTY; SETS]),
            total: 0,
        }
    }

    /// Counts a request.
    #[inline]
    pub(super) fn record(&mut self, key: u64, cost: u64, denied: bool) -> Recorded {
        self.total += 1;
        let set = &mut self.sets[set_of(key)];
        let found = set.way_of(key);
        let way = match found {
            Some(way) => way,
            None => set.replace(key),
        };
        let count = set.counts[way].saturating_add(1);
        set.counts[way] = count;
        set.denials[way] = set.denials[way].saturating_add(u32::from(denied));
        set.costs[way] = set.costs[way].saturating_add(cost);
        Recorded {
            count,
            wants_label: found.is_some() && set.labelled & (1 << way) == 0,
        }
    }

    /// Notes that a key has its label.
    pub(super) fn set_labelled(&mut self, key: u64) {
        let set = &mut self.sets[set_of(key)];
        if let Some(way) = set.keys.iter().position(|there| *there == key) {
            set.labelled |= 1 << way;
        }
    }

    /// Whether this is the first report of a key since it has its place.
    #[cfg(any(feature = "metrics", feature = "tracing"))]
    pub(super) fn is_first_report(&mut self, key: u64) -> bool {
        let set = &mut self.sets[set_of(key)];
        let way = set.keys.iter().position(|there| *there == key);
        way.is_some_and(|way| {
            let before = set.reported;
            set.reported |= 1 << way;
            set.reported != before
        })
    }

    /// The keys that are there.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> {
        let of_set = |set: &Set| {
            (0..WAYS)
                .filter_map(|way| set.entry(way))
                .collect::<Vec<_>>()
        };
        self.sets.iter().flat_map(of_set)
    }

    /// How often a key that is not there may have come.
    pub(super) fn at_most_if_absent(&self, key: u64) -> u64 {
        let set = &self.sets[set_of(key)];
        set.counts.iter().copied().min().map_or(0, u64::from)
    }
}

impl Set {
    /// Where a key is. All places are compared, without a branch that the processor would have to guess.
    #[inline]
    fn way_of(&self, key: u64) -> Option<usize> {
        let mut found = WAYS;
        for way in 0..WAYS {
            found = if self.keys[way] == key { way } else { found };
        }
        (found < WAYS).then_some(found)
    }

    /// Gives the lightest key's place to another.
    #[inline]
    fn replace(&mut self, key: u64) -> usize {
        // A place in the low bits: the least of all is the first of the lightest.
        let place = |way: usize| u64::from(self.counts[way]) << 3 | way as u64;
        let lightest = (1..WAYS).fold(place(0), |least, way| least.min(place(way)));
        let lightest = lightest as usize % WAYS;
        self.keys[lightest] = key;
        self.errors[lightest] = self.counts[lightest];
        self.denials[lightest] = 0;
        self.costs[lightest] = 0;
        self.labelled &= !(1 << lightest);
        self.reported &= !(1 << lightest);
        lightest
    }

    fn entry(&self, way: usize) -> Option<Entry> {
        (self.keys[way] != 0).then(|| Entry {
            key: self.keys[way],
            count: u64::from(self.counts[way]),
            error: u64::from(self.errors[way]),
            denials: u64::from(self.denials[way]),
            cost: self.costs[way],
        })
    }
}
