//! The keys of a rule that come most often.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    check::Check,
    key::KeyBuf,
    key_prefix::KeyPrefix,
    observe::{
        shown::shown,
        sketch::{Entry, Recorded, Sketch, known_bits},
    },
    striped::PerStripe,
    sync::{Mutex, lock, lock_briefly},
    time::Tick,
    top_keys_setting::{LabelFn, TopKeysSetting},
};

/// What a sketch covers before the next one begins. Two are kept.
const PERIOD: Duration = Duration::from_secs(150);
/// The labels that a stripe keeps, of the keys in its sketches.
const MOST_LABELS: usize = 1_024;
/// Places for keys that want a label.
const WANTED: usize = 64;

/// A key that came often, in the last minutes.
///
/// Its requests are between [`at_least`](Self::at_least) and [`at_most`](Self::at_most). If all keys of a rule are
/// among the top keys, the two are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TopKey {
    /// The first letters of what stands for it in the store.
    pub key: KeyPrefix,
    /// What the application [calls](crate::Rule::label) it.
    pub label: Option<String>,
    /// Its requests, at least.
    pub at_least: u64,
    /// Its requests, at most.
    pub at_most: u64,
    /// Its denials, at least.
    pub denials: u64,
    /// The units that it asked for, at least.
    pub cost: u64,
}

/// The top keys of a rule, per stripe of threads.
pub(super) struct TopKeys {
    label: Option<Arc<LabelFn>>,
    stripes: PerStripe<Stripe>,
}

struct Stripe {
    /// `None` before the first request.
    kept: Mutex<Option<Box<Kept>>>,
    /// Keys whose next check is to say how they are called; 0 is a free place.
    wanted: Box<[AtomicU64]>,
}

#[derive(Clone)]
struct Kept {
    /// The number of the period of `current`.
    period: u64,
    current: Sketch,
    previous: Sketch,
    labels: HashMap<u64, Arc<str>>,
}

/// A key that makes up much of its rule's traffic.
#[cfg(any(feature = "metrics", feature = "tracing"))]
#[cfg_attr(
    not(feature = "tracing"),
    expect(dead_code, reason = "only an event shows what it is")
)]
#[derive(Debug)]
pub(super) struct HotKey {
    pub(super) key: KeyPrefix,
    pub(super) label: Option<Arc<str>>,
    pub(super) percent: u64,
}

/// A key is hot from this share of its rule's requests on,
#[cfg(any(feature = "metrics", feature = "tracing"))]
const HOT_PERCENT: u64 = 20;
/// and this many of its own, on one stripe and within a period.
#[cfg(any(feature = "metrics", feature = "tracing"))]
const HOT_REQUESTS: u32 = 1_024;

impl TopKeys {
    pub(super) fn new(setting: &TopKeysSetting) -> Self {
        Self {
            label: setting.label().cloned(),
            stripes: PerStripe::new(|_| Stripe::new()),
        }
    }

    /// With what `before` has kept of the same rule.
    pub(super) fn succeeding(setting: &TopKeysSetting, before: &Self) -> Self {
        let mut kept = before
            .stripes
            .iter()
            .map(|stripe| lock(&stripe.kept).clone());
        Self {
            label: setting.label().cloned(),
            stripes: PerStripe::new(|_| Stripe {
                kept: Mutex::new(kept.next().flatten()),
                ..Stripe::new()
            }),
        }
    }

    /// A check was made: calls its key by its name, if that is wanted.
    #[inline]
    pub(super) fn on_check(&self, check: &Check, key: &KeyBuf) {
        let Some(label) = &self.label else { return };
        let bits = known_bits(check.key());
        let stripe = self.stripes.here();
        let wanted = &stripe.wanted[bits as usize % WANTED];
        if wanted.load(Ordering::Relaxed) == bits {
            wanted.store(0, Ordering::Relaxed);
            stripe.set_label(bits, &label(key));
        }
    }

    /// Counts a request. Returns a key that is found to be hot.
    #[inline]
    pub(super) fn record(&self, check: &Check, denied: bool, at: Tick) -> Option<Hot> {
        let key = known_bits(check.key());
        let stripe = self.stripes.here();
        let mut kept = lock_briefly(&stripe.kept);
        let kept = kept.get_or_insert_with(Kept::boxed);
        let period = at / PERIOD.as_micros() as u64;
        if period != kept.period {
            kept.begin(period);
        }
        let recorded = kept.current.record(key, check.cost(), denied);
        if recorded.wants_label && self.label.is_some() {
            stripe.wanted[key as usize % WANTED].store(key, Ordering::Relaxed);
        }
        kept.hot(key, recorded)
    }

    /// Its memory: fixed for each stripe that had a request, except for a bounded number of labels.
    #[cfg(any(feature = "metrics", all(test, not(tollgate_shuttle))))]
    pub(super) fn bytes(&self) -> usize {
        let of_stripe = |stripe: &Stripe| {
            let kept = lock(&stripe.kept).as_deref().map_or(0, Kept::bytes);
            size_of::<Stripe>() + size_of_val(&*stripe.wanted) + kept
        };
        self.stripes.iter().map(of_stripe).sum()
    }

    /// The heaviest keys, the heaviest first.
    pub(super) fn top(&self, most: usize) -> Vec<TopKey> {
        let stripes = self.stripes.iter();
        let kept: Vec<Box<Kept>> = stripes
            .filter_map(|stripe| lock(&stripe.kept).clone())
            .collect();
        // Those of a stripe that had no request for long are old.
        let newest = kept.iter().map(|kept| kept.period).max().unwrap_or(0);
        let mut sketches: Vec<&Sketch> = Vec::new();
        for kept in &kept {
            if kept.period == newest {
                sketches.extend([&kept.current, &kept.previous]);
            } else if kept.period + 1 == newest {
                sketches.push(&kept.current);
            }
        }
        let mut sums: HashMap<u64, (Entry, usize)> = HashMap::new();
        for sketch in &sketches {
            for entry in sketch.entries() {
                let none = Entry {
                    count: 0,
                    error: 0,
                    denials: 0,
                    cost: 0,
                    ..entry
                };
                let (sum, seen) = sums.entry(entry.key).or_insert((none, 0));
                sum.count += entry.count;
                sum.error += entry.error;
                sum.denials += entry.denials;
                sum.cost = sum.cost.saturating_add(entry.cost);
                *seen += 1;
            }
        }
        let mut top: Vec<(Entry, usize)> = sums.into_values().collect();
        top.sort_by_key(|(entry, _)| (std::cmp::Reverse(entry.count - entry.error), entry.key));
        top.truncate(most);
        let shown = top.into_iter().map(|(entry, seen)| {
            let absent = || {
                sketches
                    .iter()
                    .map(|sketch| missed(sketch, entry.key))
                    .sum()
            };
            let missed: u64 = if seen == sketches.len() { 0 } else { absent() };
            let labels = kept.iter().find_map(|kept| kept.labels.get(&entry.key));
            TopKey {
                key: KeyPrefix::of_high_bits(entry.key),
                label: labels.map(|label| label.to_string()),
                at_least: entry.count - entry.error,
                at_most: entry.count + missed,
                denials: entry.denials,
                cost: entry.cost,
            }
        });
        shown.collect()
    }
}

/// How often a key may have come that the sketch does not have.
fn missed(sketch: &Sketch, key: u64) -> u64 {
    if sketch.entries().any(|entry| entry.key == key) {
        return 0;
    }
    sketch.at_most_if_absent(key)
}

impl Stripe {
    fn new() -> Self {
        Self {
            kept: Mutex::new(None),
            wanted: (0..WANTED).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    #[cold]
    fn set_label(&self, key: u64, label: &str) {
        let label = shown(label);
        let mut kept = lock(&self.kept);
        let kept = kept.get_or_insert_with(Kept::boxed);
        kept.current.set_labelled(key);
        if kept.labels.len() >= MOST_LABELS {
            kept.forget_labels();
        }
        kept.labels.insert(key, label.into());
    }
}

#[cfg(any(feature = "metrics", feature = "tracing"))]
pub(super) type Hot = HotKey;
#[cfg(not(any(feature = "metrics", feature = "tracing")))]
pub(super) type Hot = std::convert::Infallible;

impl Kept {
    #[cfg(any(feature = "metrics", all(test, not(tollgate_shuttle))))]
    fn bytes(&self) -> usize {
        let labels = self
            .labels
            .values()
            .map(|label| 2 * size_of::<usize>() + label.len());
        let table = self.labels.capacity() * size_of::<(u64, Arc<str>)>();
        size_of::<Self>() + table + labels.sum::<usize>()
    }

    #[cold]
    fn boxed() -> Box<Self> {
        Box::new(Self {
            period: 0,
            current: Sketch::new(),
            previous: Sketch::new(),
            labels: HashMap::new(),
        })
    }

    /// Begins another period. A clock that goes back begins anew.
    #[cold]
    fn begin(&mut self, period: u64) {
        std::mem::swap(&mut self.current, &mut self.previous);
        self.current = Sketch::new();
        if period != self.period.wrapping_add(1) {
            self.previous = Sketch::new();
        }
        self.period = period;
        self.forget_labels();
    }

    /// Forgets the labels of keys that are in no sketch.
    fn forget_labels(&mut self) {
        let both = self.current.entries().chain(self.previous.entries());
        let there: std::collections::HashSet<u64> = both.map(|entry| entry.key).collect();
        self.labels.retain(|key, _| there.contains(key));
    }

    /// Reports a key once in a period.
    #[cfg(any(feature = "metrics", feature = "tracing"))]
    #[inline]
    fn hot(&mut self, key: u64, recorded: Recorded) -> Option<Hot> {
        let count = recorded.count;
        // Looked at now and then, as the count doubles.
        if count < HOT_REQUESTS || !count.is_power_of_two() {
            return None;
        }
        let percent = u64::from(count) * 100 / self.current.total.max(1);
        let is_hot = percent >= HOT_PERCENT && self.current.is_first_report(key);
        is_hot.then(|| HotKey {
            key: KeyPrefix::of_high_bits(key),
            label: self.labels.get(&key).cloned(),
            percent,
        })
    }

    #[cfg(not(any(feature = "metrics", feature = "tracing")))]
    #[inline]
    fn hot(&self, _: u64, _: Recorded) -> Option<Hot> {
        None
    }
}

impl fmt::Debug for TopKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopKeys").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(tollgate_shuttle)))]
mod tests {
    use super::*;
    use crate::{key::Fingerprint, key_part, striped::on_each_stripe};

    fn check(key: u64) -> Check {
        let bits = u128::from(key.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64;
        Check::new(0, Fingerprint::from_bits(bits), 2)
    }

    fn prefix(key: u64) -> KeyPrefix {
        check(key).key().prefix()
    }

    fn top_keys() -> TopKeys {
        TopKeys::new(&TopKeysSetting::default())
    }

    const KEYS: u64 = 1_000_000;

    /// A stream in which the n-th key comes in proportion to 1/n.
    fn zipf(requests: u64) -> impl Iterator<Item = u64> {
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        (0..requests).map(move |_| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let unit = (random >> 11) as f64 / (1_u64 << 53) as f64;
            (KEYS as f64).powf(unit) as u64
        })
    }

    #[test]
    fn of_ten_million_requests_the_ten_heaviest_keys_are_named_with_counts_within_the_error() {
        let top_keys = top_keys();
        let mut exact = vec![0_u64; KEYS as usize + 1];
        let requests: Vec<u32> = zipf(10_000_000).map(|key| key as u32).collect();
        for key in &requests {
            exact[*key as usize] += 1;
        }
        let stripes = top_keys.stripes.iter().len();
        let (next, share) = (AtomicU64::new(0), requests.len() / stripes);
        on_each_stripe(|| {
            let from = next.fetch_add(1, Ordering::Relaxed) as usize * share;
            for (index, key) in requests[from..from + share].iter().enumerate() {
                let _ = top_keys.record(&check(u64::from(*key)), index % 2 == 0, 0);
            }
        });
        for key in &requests[stripes * share..] {
            let _ = top_keys.record(&check(u64::from(*key)), false, 0);
        }

        let top = top_keys.top(10);
        let mut heaviest: Vec<u64> = (0..=KEYS).collect();
        heaviest.sort_by_key(|key| std::cmp::Reverse(exact[*key as usize]));
        for (found, key) in top.iter().zip(&heaviest[..10]) {
            let times = exact[*key as usize];
            assert_eq!(found.key, prefix(*key));
            assert!(
                (found.at_least..=found.at_most).contains(&times),
                "{found:?} {times}"
            );
            assert!(found.at_most - found.at_least < times / 10, "{found:?}");
            let half = times / 2;
            assert!(found.denials.abs_diff(half) < times / 10, "{found:?}");
            assert!(
                found.cost <= 2 * times && found.cost > 2 * times - times / 5,
                "{found:?}"
            );
        }
        assert_eq!(top.len(), 10);
        // Those that are less heavy have the bounds that are theirs.
        let all = top_keys.top(usize::MAX);
        let by_prefix: HashMap<KeyPrefix, u64> = (1..=KEYS).map(|key| (prefix(key), key)).collect();
        for found in &all {
            let times = exact[by_prefix[&found.key] as usize];
            assert!(
                (found.at_least..=found.at_most).contains(&times),
                "{found:?} {times}"
            );
            assert!(found.denials <= times && found.cost <= 2 * times);
        }
        assert!(all.len() <= 256 * stripes, "{}", all.len());
    }

    #[test]
    fn the_memory_is_fixed_however_many_keys_come() {
        let top_keys = top_keys();
        let stripes = top_keys.stripes.iter().len();
        on_each_stripe(|| {
            let _ = top_keys.record(&check(1), false, 0);
        });
        let bytes = top_keys.bytes();
        // About 15 KB for each processor, as the guide says.
        assert!((14_000..16_384).contains(&(bytes / stripes)), "{bytes}");
        on_each_stripe(|| {
            for key in 2..100_000 {
                let _ = top_keys.record(&check(key), false, key * 1_000);
            }
        });
        assert_eq!(top_keys.bytes(), bytes);
    }

    #[test]
    fn few_keys_are_counted_exactly() {
        let top_keys = top_keys();
        for key in 1..=20 {
            for _ in 0..key {
                let _ = top_keys.record(&check(key), key == 7, 0);
            }
        }
        let top = top_keys.top(100);
        assert_eq!(top.len(), 20);
        for (found, key) in top.iter().zip((1..=20).rev()) {
            let denials = if key == 7 { 7 } else { 0 };
            assert_eq!(
                (found.key, found.at_least, found.at_most),
                (prefix(key), key, key)
            );
            assert_eq!((found.denials, found.cost), (denials, 2 * key));
        }
    }

    #[test]
    fn what_is_older_than_two_periods_is_forgotten() {
        let period = PERIOD.as_micros() as u64;
        let top_keys = top_keys();
        let _ = top_keys.record(&check(1), false, 7 * period);
        let counts = |at| {
            let _ = top_keys.record(&check(2), false, at);
            let top = top_keys.top(9);
            let of = |key| {
                top.iter()
                    .find(|top| top.key == prefix(key))
                    .map(|top| top.at_most)
            };
            (of(1), of(2))
        };
        assert_eq!(counts(8 * period - 1), (Some(1), Some(1)));
        assert_eq!(counts(8 * period), (Some(1), Some(2)));
        assert_eq!(counts(9 * period), (None, Some(2)));
        assert_eq!(counts(11 * period), (None, Some(1)));
        // A clock that goes back.
        assert_eq!(counts(3 * period), (None, Some(1)));
    }

    #[test]
    fn a_key_that_comes_often_gets_its_label_and_others_cost_nothing() {
        let calls = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&calls);
        let setting = TopKeysSetting::labelled(move |key| {
            counted.fetch_add(1, Ordering::Relaxed);
            let (_, part) = key.parts().next().expect("one part");
            format!("client\n{}", part.len())
        });
        let top_keys = TopKeys::new(&setting);
        let mut key = KeyBuf::new();
        key_part::KeyPart::add_to("ada", &mut key, crate::key::PartKind::VALUE);
        for n in 0..10_000 {
            let check = check(if n % 2 == 0 { 1 } else { n });
            top_keys.on_check(&check, &key);
            let _ = top_keys.record(&check, false, 0);
        }
        let top = top_keys.top(1);
        assert_eq!(top[0].label.as_deref(), Some("client\u{fffd}3"));
        assert!(calls.load(Ordering::Relaxed) < 100, "{calls:?}");
    }
}
