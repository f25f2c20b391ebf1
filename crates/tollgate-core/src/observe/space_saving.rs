//! The keys that come most often, in fixed memory: the algorithm Space-Saving (Metwally, Agrawal, El Abbadi 2005), in sets of
//! eight.

use std::sync::Arc;

/// The keys in a set. A set is looked through for each request.
const WAYS: usize = 8;
/// A power of two.
const SETS: usize = 32;

/// The heaviest of the keys that came.
///
/// A key belongs to one set of eight. One that is not there takes the place of the lightest in its set, and begins with that
/// one's count, which is its error: it came at most so often before. So no key that came more often than the lightest in its set
/// is missing, and each count is at most its error too high.
#[derive(Clone, Debug)]
pub(super) struct SpaceSaving(Box<[Set]>);

#[derive(Clone, Debug, Default)]
struct Set {
    /// 0 is a free place.
    keys: [u64; WAYS],
    /// The requests of each key, at most.
    counts: [u64; WAYS],
    details: [Details; WAYS],
}

/// What is known of a key besides its count, since it has its place.
#[derive(Clone, Debug, Default)]
pub(super) struct Details {
    /// By how much the count may be too high.
    pub(super) error: u64,
    pub(super) denials: u64,
    pub(super) units: u64,
    pub(super) label: Option<Arc<str>>,
    pub(super) is_reported: bool,
}

impl Default for SpaceSaving {
    fn default() -> Self {
        Self(vec![Set::default(); SETS].into())
    }
}

impl SpaceSaving {
    /// Its memory, without labels.
    #[cfg(test)]
    pub(super) const BYTES: usize = SETS * size_of::<Set>();

    /// Counts a request of a key, which is not 0. Returns how often it came, at most.
    pub(super) fn record(&mut self, key: u64, units: u64, is_denied: bool) -> u64 {
        let set = &mut self.0[set_of(key)];
        let way = set.way_of(key).unwrap_or_else(|| {
            let lightest = set.lightest();
            set.keys[lightest] = key;
            set.details[lightest] = Details {
                error: set.counts[lightest],
                ..Details::default()
            };
            lightest
        });
        let (count, details) = (&mut set.counts[way], &mut set.details[way]);
        *count += 1;
        details.denials += u64::from(is_denied);
        details.units = details.units.saturating_add(units);
        *count
    }

    pub(super) fn details(&mut self, key: u64) -> Option<&mut Details> {
        let set = &mut self.0[set_of(key)];
        let way = set.way_of(key)?;
        Some(&mut set.details[way])
    }

    /// The keys that are there, with their counts.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u64, u64, &Details)> {
        let all = self.0.iter().flat_map(|set| {
            let counts = set.keys.iter().zip(&set.counts).zip(&set.details);
            counts.map(|((key, count), details)| (*key, *count, details))
        });
        all.filter(|(key, ..)| *key != 0)
    }

    /// How often a key may have come that is not there; 0 for one that is.
    pub(super) fn missed(&self, key: u64) -> u64 {
        let set = &self.0[set_of(key)];
        match set.way_of(key) {
            Some(_) => 0,
            None => set.counts[set.lightest()],
        }
    }

    /// The requests of all keys: a key that takes the place of another takes over its count as well.
    pub(super) fn total(&self) -> u64 {
        self.0.iter().flat_map(|set| set.counts).sum()
    }

    pub(super) fn clear(&mut self) {
        self.0.fill(Set::default());
    }
}

fn set_of(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SETS.trailing_zeros())) as usize
}

impl Set {
    /// Where a key is. All places are compared, without a branch that the processor would have to guess.
    fn way_of(&self, key: u64) -> Option<usize> {
        let mut found = WAYS;
        for way in 0..WAYS {
            found = if self.keys[way] == key { way } else { found };
        }
        (found < WAYS).then_some(found)
    }

    fn lightest(&self) -> usize {
        let mut least = (self.counts[0], 0);
        for way in 1..WAYS {
            let other = (self.counts[way], way);
            least = if other.0 < least.0 { other } else { least };
        }
        least.1
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn each_key_came_as_often_as_the_list_says() {
        let mut list = SpaceSaving::default();
        let mut exact: HashMap<u64, u64> = HashMap::new();
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        for request in 0..6_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            // Some come often, and most once or twice.
            let unit = (random >> 11) as f64 / (1_u64 << 53) as f64;
            let key = 1_000_f64.powf(unit) as u64;
            let came = exact.entry(key).or_default();
            *came += 1;
            assert!(list.record(key, 1, false) >= *came);
            if request % 20 > 0 {
                continue;
            }
            for (key, came) in &exact {
                let entry = list.entries().find(|(there, ..)| there == key);
                match entry {
                    Some((_, count, details)) => {
                        let bounds = count - details.error..=count;
                        assert!(bounds.contains(came), "{key}: {bounds:?} {came}");
                    }
                    None => assert!(*came <= list.missed(*key), "{key} {came}"),
                }
            }
        }
        assert!(list.entries().filter(|(_, _, it)| it.error > 0).count() > 8);
    }
}
