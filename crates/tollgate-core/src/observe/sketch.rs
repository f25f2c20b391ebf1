//! Which keys are heaviest, in fixed memory: the algorithm Space-Saving (Metwally, Agrawal, El Abbadi 2005), in sets of eight.

use std::array;

use crate::{
    key::Fingerprint,
    sync::{AtomicU32, AtomicU64, Ordering, pause},
};

/// The keys in a set. A set is looked through for each request, and lies on few cache lines.
const WAYS: usize = 8;
/// A power of two. Explored schedules see each word that is copied.
const SETS: usize = if cfg!(tollgate_shuttle) { 2 } else { 32 };

/// The heaviest of the keys that came.
///
/// A key belongs to one set of eight. One that is not there takes the place of the lightest in its set, and begins with that
/// one's count, which is its error: it came at most so often before. So no key that came more often than the lightest in its set
/// is missing, and each count is at most its error too high.
///
/// A sketch has one writer at a time. It takes no lock, and no instruction that is locked: it loads, and stores what the next
/// request finds. Others [copy](Self::copied) it meanwhile.
pub(super) struct Sketch {
    sets: [Set; SETS],
}

/// Four cache lines: keys, counts, costs, and what few requests need.
///
/// Writers store with `Release`, and copies load with `Acquire`, whatever they load: a copy that sees anything of a new key also
/// sees that the sequence was odd.
#[repr(C, align(64))]
struct Set {
    /// The highest 64 bits of the fingerprints; 0 is a free place.
    keys: [AtomicU64; WAYS],
    /// The requests, and above [`DENIAL`] the denials since a key has its place.
    counts: [AtomicU64; WAYS],
    /// The units since a key has its place.
    costs: [AtomicU64; WAYS],
    errors: [AtomicU32; WAYS],
    marks: AtomicU64,
    /// Odd while a key takes the place of another. Counting one that is there only adds to its numbers, and leaves it as it is.
    sequence: AtomicU64,
}

/// A denial, in a word of counts.
const DENIAL: u64 = 1 << 32;

/// What its writer notes of a set. Bits of places, and a count.
#[derive(Clone, Copy)]
struct Marks {
    /// What was done about a key since it has its place.
    labelled: u8,
    reported: u8,
    /// The lowest count when that was last looked for. None is lower now,
    least: u32,
    /// and only these places may still have it.
    lightest: u8,
}

/// Where a key is, or that it is not there.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    set: &'a Set,
    key: u64,
    way: Option<usize>,
    /// That of the set, when the key was looked for.
    sequence: u64,
}

/// What became of a request in the sketch.
#[derive(Clone, Copy)]
pub(super) struct Recorded<'a> {
    /// The requests of its key so far, at most.
    pub(super) count: u32,
    set: &'a Set,
    /// Its place, if it was there.
    way: Option<usize>,
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

/// The bits of a key that a sketch knows. A place that is free has none.
#[inline]
pub(super) fn known_bits(key: Fingerprint) -> u64 {
    ((key.bits() >> 64) as u64).max(1)
}

#[inline]
fn set_of(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SETS.trailing_zeros())) as usize
}

#[inline]
fn requests(count: u64) -> u32 {
    count as u32
}

impl Sketch {
    pub(super) fn new() -> Self {
        Self {
            sets: array::from_fn(|_| Set::new()),
        }
    }

    /// Looks for a key, for the writer.
    #[inline]
    pub(super) fn find(&self, key: u64) -> Place<'_> {
        let set = &self.sets[set_of(key)];
        Place {
            set,
            key,
            way: set.way_of(key),
            sequence: set.sequence.load(Ordering::Relaxed),
        }
    }

    /// Notes that a key has its label.
    pub(super) fn set_labelled(&self, key: u64) {
        let set = &self.sets[set_of(key)];
        if let Some(way) = set.way_of(key) {
            let mut marks = set.marks();
            marks.labelled |= 1 << way;
            set.set_marks(marks);
        }
    }

    /// Whether this is the first report of a key since it has its place.
    #[cfg(any(feature = "metrics", feature = "tracing"))]
    pub(super) fn is_first_report(&self, key: u64) -> bool {
        let set = &self.sets[set_of(key)];
        set.way_of(key).is_some_and(|way| {
            let before = set.marks();
            let mut marks = before;
            marks.reported |= 1 << way;
            set.set_marks(marks);
            marks.reported != before.reported
        })
    }

    /// The requests of all keys: a key that takes the place of another takes over its count as well.
    #[cfg(any(feature = "metrics", feature = "tracing"))]
    pub(super) fn total(&self) -> u64 {
        let counts = self.sets.iter().flat_map(|set| &set.counts);
        counts
            .map(|count| u64::from(requests(count.load(Ordering::Relaxed))))
            .sum()
    }

    /// Forgets all keys. Copies that are made meanwhile are neither what was there nor empty.
    pub(super) fn clear(&self) {
        self.sets.iter().for_each(Set::clear);
    }

    /// What is there now, while another thread writes.
    pub(super) fn copied(&self) -> Self {
        Self {
            sets: array::from_fn(|set| self.sets[set].copied()),
        }
    }

    /// The keys that are there, while no thread writes.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> {
        let places = |set| (0..WAYS).filter_map(move |way| Set::entry(set, way));
        self.sets.iter().flat_map(places)
    }

    /// How often a key that is not there may have come, while no thread writes.
    pub(super) fn at_most_if_absent(&self, key: u64) -> u64 {
        u64::from(self.sets[set_of(key)].least())
    }
}

impl<'a> Place<'a> {
    /// Counts a request of the key.
    #[inline]
    pub(super) fn record(self, cost: u64, denied: bool) -> Recorded<'a> {
        let Self { set, key, .. } = self;
        let is_as_it_was = set.sequence.load(Ordering::Relaxed) == self.sequence;
        let way = if is_as_it_was {
            self.way
        } else {
            set.way_of(key)
        };
        let count = match way {
            Some(way) => set.add(way % WAYS, cost, denied),
            None => set.replace(key, cost, denied),
        };
        Recorded { count, set, way }
    }
}

impl Recorded<'_> {
    /// Whether the key was there, and nothing has labelled it.
    #[inline]
    pub(super) fn wants_label(&self) -> bool {
        let is_unlabelled = |way: usize| self.set.marks().labelled & (1 << way) == 0;
        self.way.is_some_and(is_unlabelled)
    }
}

impl Set {
    fn new() -> Self {
        Self {
            keys: array::from_fn(|_| AtomicU64::new(0)),
            counts: array::from_fn(|_| AtomicU64::new(0)),
            costs: array::from_fn(|_| AtomicU64::new(0)),
            errors: array::from_fn(|_| AtomicU32::new(0)),
            marks: AtomicU64::new(0),
            sequence: AtomicU64::new(0),
        }
    }

    /// Where a key is. All places are compared, without a branch that the processor would have to guess.
    #[inline]
    fn way_of(&self, key: u64) -> Option<usize> {
        let mut found = WAYS;
        for way in 0..WAYS {
            let there = self.keys[way].load(Ordering::Relaxed);
            found = if there == key { way } else { found };
        }
        (found < WAYS).then_some(found)
    }

    /// Adds a request to those of a key that is there. Returns their count.
    #[inline]
    fn add(&self, way: usize, cost: u64, denied: bool) -> u32 {
        let (counts, costs) = (&self.counts[way], &self.costs[way]);
        let mut count = counts.load(Ordering::Relaxed);
        // A count that is full stays as it is, and its denials with it.
        if requests(count) != u32::MAX {
            count += 1 + DENIAL * u64::from(denied);
            counts.store(count, Ordering::Release);
        }
        let cost = costs.load(Ordering::Relaxed).saturating_add(cost);
        costs.store(cost, Ordering::Release);
        requests(count)
    }

    /// Gives the lightest key's place to another, which has come once. Returns the count of its requests.
    #[inline(never)]
    fn replace(&self, key: u64, cost: u64, denied: bool) -> u32 {
        let mut marks = self.marks();
        let way = self.next_lightest(&mut marks);
        marks.labelled &= !(1 << way);
        marks.reported &= !(1 << way);
        let error = requests(self.counts[way].load(Ordering::Relaxed));
        let count = error.saturating_add(1);
        let counted = u64::from(count) + DENIAL * u64::from(denied);
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        self.keys[way].store(key, Ordering::Release);
        self.counts[way].store(counted, Ordering::Release);
        self.costs[way].store(cost, Ordering::Release);
        self.errors[way].store(error, Ordering::Release);
        self.set_marks(marks);
        self.sequence.store(sequence + 2, Ordering::Release);
        count
    }

    /// The place of the lightest key. Several are lightest as a rule, and are looked for once.
    fn next_lightest(&self, marks: &mut Marks) -> usize {
        while marks.lightest != 0 {
            let way = marks.lightest.trailing_zeros() as usize % WAYS;
            marks.lightest &= !(1 << way);
            if self.count(way) == marks.least {
                return way;
            }
        }
        marks.least = self.least();
        for way in 0..WAYS {
            marks.lightest |= u8::from(self.count(way) == marks.least) << way;
        }
        let way = marks.lightest.trailing_zeros() as usize % WAYS;
        marks.lightest &= !(1 << way);
        way
    }

    fn count(&self, way: usize) -> u32 {
        requests(self.counts[way].load(Ordering::Relaxed))
    }

    fn least(&self) -> u32 {
        (0..WAYS)
            .map(|way| self.count(way))
            .fold(u32::MAX, u32::min)
    }

    fn marks(&self) -> Marks {
        Marks::of_bits(self.marks.load(Ordering::Relaxed))
    }

    fn set_marks(&self, marks: Marks) {
        self.marks.store(marks.bits(), Ordering::Release);
    }

    fn clear(&self) {
        for way in 0..WAYS {
            self.keys[way].store(0, Ordering::Release);
            self.counts[way].store(0, Ordering::Release);
            self.costs[way].store(0, Ordering::Release);
            self.errors[way].store(0, Ordering::Release);
        }
        self.marks.store(0, Ordering::Release);
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 2, Ordering::Release);
    }

    /// A set without a key that is half another's. The writer stores some words and goes on: this waits for it.
    fn copied(&self) -> Self {
        loop {
            let sequence = self.sequence.load(Ordering::Acquire);
            // Costs before counts: what is seen of a request in its costs is in the count as well.
            let copy = Self {
                costs: self.costs.each_ref().map(copied),
                counts: self.counts.each_ref().map(copied),
                keys: self.keys.each_ref().map(copied),
                errors: array::from_fn(|way| {
                    AtomicU32::new(self.errors[way].load(Ordering::Acquire))
                }),
                marks: copied(&self.marks),
                sequence: AtomicU64::new(0),
            };
            if sequence.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == sequence {
                return copy;
            }
            pause();
        }
    }

    fn entry(&self, way: usize) -> Option<Entry> {
        let key = self.keys[way].load(Ordering::Relaxed);
        let count = self.counts[way].load(Ordering::Relaxed);
        (key != 0).then(|| Entry {
            key,
            count: u64::from(requests(count)),
            error: u64::from(self.errors[way].load(Ordering::Relaxed)),
            denials: count / DENIAL,
            cost: self.costs[way].load(Ordering::Relaxed),
        })
    }
}

/// A copy of a word that another thread writes.
pub(super) fn copied(word: &AtomicU64) -> AtomicU64 {
    AtomicU64::new(word.load(Ordering::Acquire))
}

impl Marks {
    #[inline]
    fn of_bits(bits: u64) -> Self {
        let [labelled, reported, lightest, _, least @ ..] = bits.to_le_bytes();
        Self {
            labelled,
            reported,
            least: u32::from_le_bytes(least),
            lightest,
        }
    }

    #[inline]
    fn bits(self) -> u64 {
        u64::from_le_bytes([self.labelled, self.reported, self.lightest, 0, 0, 0, 0, 0])
            | u64::from(self.least) << 32
    }
}

#[cfg(all(test, not(tollgate_shuttle)))]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn each_key_came_as_often_as_the_sketch_says_after_each_request() {
        let sketch = Sketch::new();
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
            let recorded = sketch.find(key).record(1, false);
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

    #[test]
    fn a_key_has_one_place_although_it_was_looked_for_before_it_came() {
        let sketch = Sketch::new();
        let [one, other] = [7, 7].map(|key| sketch.find(key));
        assert_eq!(one.record(1, false).count, 1);
        assert_eq!(other.record(1, false).count, 2);
        assert_eq!(sketch.entries().count(), 1);
    }

    /// The units of a key, in each of its requests. It is denied if they are odd.
    fn units(key: u64) -> u64 {
        1 + key % 1_000
    }

    #[test]
    fn a_copy_never_has_half_of_a_key() {
        let sketch = Sketch::new();
        let is_done = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..2_000_000_u64 {
                    // Most are new, and some come again at once.
                    let key = n / 2 * 0x9e37_79b9;
                    let _ = sketch.find(key).record(units(key), units(key) % 2 == 1);
                }
                is_done.store(1, Ordering::Release);
            });
            let mut copies = 0;
            while is_done.load(Ordering::Acquire) == 0 || copies == 0 {
                copies += 1;
                for entry in sketch.copied().entries() {
                    let came = entry.count - entry.error;
                    let requests = entry.cost / units(entry.key);
                    assert_eq!(entry.cost, requests * units(entry.key), "{entry:?}");
                    assert!((1..=came).contains(&requests), "{entry:?}");
                    let denials = if units(entry.key) % 2 == 1 { came } else { 0 };
                    assert_eq!(entry.denials, denials, "{entry:?}");
                }
            }
        });
    }
}
