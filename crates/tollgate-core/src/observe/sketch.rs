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
    sets: [Set; SETS],
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
    /// The lowest count when that was last looked for. None is lower now,
    least: u32,
    /// and only these places may still have it. Bits.
    lightest: u8,
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
    least: 0,
    lightest: 0,
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
    pub(super) fn new() -> Self {
        Self {
            sets: [EMPTY; SETS],
            total: 0,
        }
    }

    /// Counts a request.
    #[inline]
    pub(super) fn record(&mut self, key: u64, cost: u64, denied: bool) -> Recorded {
        self.total += 1;
        let set = &mut self.sets[set_of(key)];
        let Some(way) = set.way_of(key) else {
            return Recorded {
                count: set.replace(key, cost, denied),
                wants_label: false,
            };
        };
        let count = set.counts[way].saturating_add(1);
        set.counts[way] = count;
        set.denials[way] = set.denials[way].saturating_add(u32::from(denied));
        set.costs[way] = set.costs[way].saturating_add(cost);
        Recorded {
            count,
            wants_label: set.labelled & (1 << way) == 0,
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

    /// Gives the lightest key's place to another, which has come once. Returns the count of its requests.
    #[inline(never)]
    fn replace(&mut self, key: u64, cost: u64, denied: bool) -> u32 {
        let way = self.next_lightest();
        let error = self.counts[way];
        self.keys[way] = key;
        self.counts[way] = error.saturating_add(1);
        self.errors[way] = error;
        self.denials[way] = u32::from(denied);
        self.costs[way] = cost;
        self.labelled &= !(1 << way);
        self.reported &= !(1 << way);
        self.counts[way]
    }

    /// The place of the lightest key. Several are lightest as a rule, and are looked for once.
    fn next_lightest(&mut self) -> usize {
        while self.lightest != 0 {
            let way = self.lightest.trailing_zeros() as usize % WAYS;
            self.lightest &= !(1 << way);
            if self.counts[way] == self.least {
                return way;
            }
        }
        self.least = self.counts.iter().copied().fold(u32::MAX, u32::min);
        for way in 0..WAYS {
            self.lightest |= u8::from(self.counts[way] == self.least) << way;
        }
        let way = self.lightest.trailing_zeros() as usize % WAYS;
        self.lightest &= !(1 << way);
        way
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

#[cfg(all(test, not(tollgate_shuttle)))]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn each_key_came_as_often_as_the_sketch_says_after_each_request() {
        let mut sketch = Sketch::new();
        let mut exact: HashMap<u64, u64> = HashMap::new();
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        for _ in 0..6_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            // Some come often, and most once or twice.
            let unit = (random >> 11) as f64 / (1_u64 << 53) as f64;
            let key = 1_000_f64.powf(unit) as u64;
            let came = exact.entry(key).or_default();
            *came += 1;
            let recorded = sketch.record(key, 1, false);
            assert!(u64::from(recorded.count) >= *came);
            let there: HashMap<u64, Entry> =
                sketch.entries().map(|entry| (entry.key, entry)).collect();
            for (key, came) in &exact {
                match there.get(key) {
                    Some(entry) => {
                        let bounds = entry.count - entry.error..=entry.count;
                        assert!(bounds.contains(came), "{entry:?} {came}");
                    }
                    None => assert!(*came <= sketch.at_most_if_absent(*key), "{key} {came}"),
                }
            }
        }
        let errors = sketch.entries().filter(|entry| entry.error > 0).count();
        assert!(errors > 8, "{errors}");
    }
}
