//! The keys of a rule that come most often.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering as StdOrdering},
    },
};

use crate::{
    check::Check,
    key::KeyBuf,
    key_prefix::KeyPrefix,
    observe::{
        recent_keys::RecentKeys,
        shown::shown,
        sketch::{Entry, Place, Sketch, known_bits},
    },
    striped::{PerStripe, ThreadNumber, thread_end, thread_number},
    sync::{AtomicU64, Mutex, Ordering, lock, lock_briefly},
    time::Tick,
    top_keys_setting::{LabelFn, TopKeysSetting},
};

/// The labels that a stripe keeps, of the keys in its sketches.
const MOST_LABELS: usize = 1_024;

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

/// The keys of a stripe of threads.
///
/// A stripe has an owner, the first of its threads that comes. What the owner records it writes without a lock: it alone writes
/// these keys. The others of its threads, where there are any, write theirs one after the other.
struct Stripe {
    /// The owner's number. It changes under the lock, and no thread but the owner finds its own number here.
    owner: AtomicU64,
    of_owner: OnceLock<Box<RecentKeys>>,
    /// What other threads have recorded. Written under the lock.
    of_others: OnceLock<Box<RecentKeys>>,
    rest: Mutex<Rest>,
}

#[derive(Clone, Default)]
struct Rest {
    /// Whether the owner has ended, so that another thread can take its place.
    owner_has_ended: Option<Arc<AtomicBool>>,
    labels: HashMap<u64, Arc<str>>,
}

/// Where a key is among those that a thread may write without a lock.
#[derive(Clone, Copy)]
pub(crate) struct Found<'a> {
    keys: &'a RecentKeys,
    key: u64,
    place: Place<'a>,
}

impl<'a> Found<'a> {
    #[inline(always)]
    fn new(keys: &'a RecentKeys, check: &Check) -> Self {
        let key = known_bits(check.key());
        Self {
            keys,
            key,
            place: keys.current().find(key),
        }
    }
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
        let mut before = before.stripes.iter();
        Self {
            label: setting.label().cloned(),
            // There are as many.
            stripes: PerStripe::new(|_| before.next().map_or_else(Stripe::new, Stripe::succeeding)),
        }
    }

    /// A check was made: calls its key by its name, if that is wanted.
    #[inline]
    pub(super) fn on_check(&self, check: &Check, key: &KeyBuf) {
        let Some(label) = &self.label else { return };
        let (thread, bits) = (thread_number(), known_bits(check.key()));
        let stripe = self.stripes.of(thread);
        let keys = match stripe.owned_by(thread) {
            Some(keys) => Some(keys),
            None => stripe.of_others.get().map(|keys| &**keys),
        };
        if keys.is_some_and(|keys| keys.takes_wanted(bits)) {
            stripe.set_label(thread, bits, &label(key));
        }
    }

    /// Looks for the key of a check that is about to be decided. The processor does that while it waits for the decision.
    #[inline(always)]
    pub(super) fn find(&self, check: &Check) -> Option<Found<'_>> {
        self.find_by(thread_number(), check)
    }

    #[inline(always)]
    fn find_by(&self, thread: ThreadNumber, check: &Check) -> Option<Found<'_>> {
        let keys = self.stripes.of(thread).owned_by(thread)?;
        Some(Found::new(keys, check))
    }

    /// Counts a request, whose key this thread has looked for. Returns a key that is found to be hot.
    #[inline(always)]
    pub(super) fn record(
        &self,
        check: &Check,
        found: Option<Found<'_>>,
        is_denied: bool,
        at: Tick,
    ) -> Option<Hot> {
        let hot = match found {
            Some(found) if found.keys.is_now(at) => self.add(found, check.cost(), is_denied),
            _ => self.record_locked(check, is_denied, at),
        };
        #[cfg(any(feature = "metrics", feature = "tracing"))]
        let hot = hot.map(|hot| self.labelled(check, hot));
        hot
    }

    /// Counts a request in keys that this thread may write.
    #[inline(always)]
    fn add(&self, found: Found<'_>, cost: u64, is_denied: bool) -> Option<Hot> {
        let Found { keys, key, place } = found;
        let recorded = place.record(cost, is_denied);
        if self.label.is_some() && recorded.wants_label() {
            keys.want(key);
        }
        hot(keys.current(), key, recorded.count)
    }

    /// Counts a request of a thread that is not the owner, and the first one of a period.
    #[inline(never)]
    fn record_locked(&self, check: &Check, is_denied: bool, at: Tick) -> Option<Hot> {
        self.record_by(thread_number(), check, is_denied, at)
    }

    fn record_by(
        &self,
        thread: ThreadNumber,
        check: &Check,
        is_denied: bool,
        at: Tick,
    ) -> Option<Hot> {
        let stripe = self.stripes.of(thread);
        let mut rest = lock_briefly(&stripe.rest);
        let keys = stripe.written_by(thread, &mut rest);
        // Replies of a store come in another order than its decisions.
        if !keys.is_now(at) && !keys.is_just_over(at) {
            keys.begin(at);
            stripe.forget_labels(&mut rest);
        }
        self.add(Found::new(keys, check), check.cost(), is_denied)
    }

    #[cfg(any(feature = "metrics", feature = "tracing"))]
    #[cold]
    fn labelled(&self, check: &Check, mut hot: HotKey) -> HotKey {
        hot.label = self.stripes.here().label(known_bits(check.key()));
        hot
    }

    /// Its memory: fixed for each stripe that had a request, except for a bounded number of labels.
    #[cfg(any(feature = "metrics", all(test, not(tollgate_shuttle))))]
    pub(super) fn bytes(&self) -> usize {
        self.stripes.iter().map(Stripe::bytes).sum()
    }

    /// The heaviest keys, the heaviest first.
    pub(super) fn top(&self, most: usize) -> Vec<TopKey> {
        let stripes = self.stripes.iter();
        let kept: Vec<Box<RecentKeys>> = stripes.flat_map(Stripe::copied).collect();
        // Those of a stripe that had no request for long are old.
        let newest = kept.iter().map(|kept| kept.period()).max().unwrap_or(0);
        let mut sketches: Vec<&Sketch> = Vec::new();
        for kept in &kept {
            if kept.period() == newest {
                sketches.extend([kept.current(), kept.previous()]);
            } else if kept.period() + 1 == newest {
                sketches.push(kept.current());
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
            let label = self
                .stripes
                .iter()
                .find_map(|stripe| stripe.label(entry.key));
            TopKey {
                key: KeyPrefix::of_high_bits(entry.key),
                label: label.map(|label| label.to_string()),
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

#[cfg(any(feature = "metrics", feature = "tracing"))]
pub(super) type Hot = HotKey;
#[cfg(not(any(feature = "metrics", feature = "tracing")))]
pub(super) type Hot = std::convert::Infallible;

impl Stripe {
    fn new() -> Self {
        Self {
            owner: AtomicU64::new(ThreadNumber::NONE.bits()),
            of_owner: OnceLock::new(),
            of_others: OnceLock::new(),
            rest: Mutex::default(),
        }
    }

    /// With what `before` has now. The first thread that comes is the owner.
    fn succeeding(before: &Self) -> Self {
        let copied = |keys: &OnceLock<Box<RecentKeys>>| match keys.get() {
            Some(keys) => OnceLock::from(keys.copied()),
            None => OnceLock::new(),
        };
        Self {
            of_owner: copied(&before.of_owner),
            of_others: copied(&before.of_others),
            rest: Mutex::new(Rest {
                // After the keys: one that is labelled there has its label.
                labels: lock(&before.rest).labels.clone(),
                owner_has_ended: None,
            }),
            ..Self::new()
        }
    }

    /// The keys that this thread writes without a lock, if it is the owner.
    #[inline]
    fn owned_by(&self, thread: ThreadNumber) -> Option<&RecentKeys> {
        let is_owner = self.owner.load(Ordering::Relaxed) == thread.bits();
        let keys = if is_owner { self.of_owner.get() } else { None };
        keys.map(|keys| &**keys)
    }

    /// The keys that a thread writes which has the lock. It becomes the owner if there is none.
    fn written_by(&self, thread: ThreadNumber, rest: &mut Rest) -> &RecentKeys {
        let owner = self.owner.load(Ordering::Relaxed);
        if owner == thread.bits() {
            return self.of_owner.get_or_init(RecentKeys::boxed);
        }
        let has_ended = rest.owner_has_ended.as_ref();
        // What the owner has written before it ended is seen.
        let is_free = owner == ThreadNumber::NONE.bits()
            || has_ended.is_some_and(|ended| ended.load(StdOrdering::Acquire));
        if is_free && let Some(end) = thread_end() {
            rest.owner_has_ended = Some(end);
            self.owner.store(thread.bits(), Ordering::Relaxed);
            return self.of_owner.get_or_init(RecentKeys::boxed);
        }
        self.of_others.get_or_init(RecentKeys::boxed)
    }

    /// What is there now, of the owner and of the others.
    fn copied(&self) -> impl Iterator<Item = Box<RecentKeys>> {
        let kept = [&self.of_owner, &self.of_others];
        kept.into_iter()
            .filter_map(|keys| keys.get().map(|keys| keys.copied()))
    }

    fn label(&self, key: u64) -> Option<Arc<str>> {
        lock(&self.rest).labels.get(&key).cloned()
    }

    #[cold]
    fn set_label(&self, thread: ThreadNumber, key: u64, label: &str) {
        let label = shown(label);
        let mut rest = lock(&self.rest);
        if rest.labels.len() >= MOST_LABELS {
            self.forget_labels(&mut rest);
        }
        rest.labels.insert(key, label.into());
        self.written_by(thread, &mut rest)
            .current()
            .set_labelled(key);
    }

    /// Forgets the labels of keys that are in no sketch.
    fn forget_labels(&self, rest: &mut Rest) {
        if rest.labels.is_empty() {
            return;
        }
        let kept: Vec<Box<RecentKeys>> = self.copied().collect();
        let sketches = kept
            .iter()
            .flat_map(|kept| [kept.current(), kept.previous()]);
        let there: HashSet<u64> = sketches
            .flat_map(Sketch::entries)
            .map(|entry| entry.key)
            .collect();
        rest.labels.retain(|key, _| there.contains(key));
    }

    #[cfg(any(feature = "metrics", all(test, not(tollgate_shuttle))))]
    fn bytes(&self) -> usize {
        let kept = [&self.of_owner, &self.of_others];
        let kept = kept.into_iter().filter(|keys| keys.get().is_some());
        let rest = lock(&self.rest);
        let labels = rest
            .labels
            .values()
            .map(|label| 2 * size_of::<usize>() + label.len());
        let table = rest.labels.capacity() * size_of::<(u64, Arc<str>)>();
        size_of::<Self>() + kept.count() * size_of::<RecentKeys>() + table + labels.sum::<usize>()
    }
}

/// Reports a key once in a period.
#[cfg(any(feature = "metrics", feature = "tracing"))]
#[inline(always)]
fn hot(sketch: &Sketch, key: u64, count: u32) -> Option<Hot> {
    // Looked at now and then, as the count doubles.
    if count < HOT_REQUESTS || !count.is_power_of_two() {
        return None;
    }
    hot_if_heavy(sketch, key, count)
}

#[cfg(any(feature = "metrics", feature = "tracing"))]
#[cold]
fn hot_if_heavy(sketch: &Sketch, key: u64, count: u32) -> Option<Hot> {
    let percent = u64::from(count) * 100 / sketch.total().max(1);
    let is_hot = percent >= HOT_PERCENT && sketch.is_first_report(key);
    is_hot.then(|| HotKey {
        key: KeyPrefix::of_high_bits(key),
        label: None,
        percent,
    })
}

#[cfg(not(any(feature = "metrics", feature = "tracing")))]
#[inline(always)]
fn hot(_: &Sketch, _: u64, _: u32) -> Option<Hot> {
    None
}

impl fmt::Debug for TopKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopKeys").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(tollgate_shuttle)))]
mod tests {
    use super::*;
    use crate::{
        key::Fingerprint, key_part, observe::recent_keys::PERIOD, striped::on_each_stripe,
    };

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

    fn record(top_keys: &TopKeys, check: &Check, is_denied: bool, at: Tick) -> Option<Hot> {
        top_keys.record(check, top_keys.find(check), is_denied, at)
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
                let _ = record(&top_keys, &check(u64::from(*key)), index % 2 == 0, 0);
            }
        });
        for key in &requests[stripes * share..] {
            let _ = record(&top_keys, &check(u64::from(*key)), false, 0);
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
            let _ = record(&top_keys, &check(1), false, 0);
        });
        let bytes = top_keys.bytes();
        // About 17 KB for each processor, as the guide says.
        assert!((16_384..17_408).contains(&(bytes / stripes)), "{bytes}");
        on_each_stripe(|| {
            for key in 2..100_000 {
                let _ = record(&top_keys, &check(key), false, key * 1_000);
            }
        });
        assert_eq!(top_keys.bytes(), bytes);
    }

    #[test]
    fn few_keys_are_counted_exactly() {
        let top_keys = top_keys();
        for key in 1..=20 {
            for _ in 0..key {
                let _ = record(&top_keys, &check(key), key == 7, 0);
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
    fn a_decision_that_is_recorded_after_one_of_the_next_period_forgets_nothing() {
        let period = PERIOD.as_micros() as u64;
        let top_keys = top_keys();
        for (key, at) in [(1, 8 * period - 9), (2, 8 * period), (1, 8 * period - 1)] {
            let _ = record(&top_keys, &check(key), false, at);
        }
        let _ = record(&top_keys, &check(2), false, 8 * period + 1);
        let counts: Vec<_> = top_keys.top(9).iter().map(|top| top.at_most).collect();
        assert_eq!(counts, [2, 2]);
    }

    #[test]
    fn what_is_older_than_two_periods_is_forgotten() {
        let period = PERIOD.as_micros() as u64;
        let top_keys = top_keys();
        let _ = record(&top_keys, &check(1), false, 7 * period);
        let counts = |at| {
            let _ = record(&top_keys, &check(2), false, at);
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
    fn keys_of_a_thread_without_requests_are_shown_for_one_more_period() {
        let period = PERIOD.as_micros() as u64;
        let top_keys = top_keys();
        // This thread is the owner of its stripe, and the others go on.
        for (key, at) in [(1, 6 * period), (2, 7 * period)] {
            let _ = record(&top_keys, &check(key), false, at);
        }
        let shown_after = |key, at| {
            on_each_stripe(|| {
                let _ = record(&top_keys, &check(key), false, at);
            });
            let top = top_keys.top(99);
            top.iter().map(|top| top.key).collect::<HashSet<_>>()
        };
        assert_eq!(
            shown_after(3, 8 * period),
            HashSet::from([prefix(2), prefix(3)])
        );
        assert_eq!(
            shown_after(4, 9 * period),
            HashSet::from([prefix(3), prefix(4)])
        );
    }

    #[test]
    fn a_label_is_kept_as_long_as_its_key() {
        let period = PERIOD.as_micros() as u64;
        let top_keys = TopKeys::new(&TopKeysSetting::labelled(|_| "ada".into()));
        for _ in 0..3 {
            top_keys.on_check(&check(1), &KeyBuf::new());
            let _ = record(&top_keys, &check(1), false, 7 * period);
        }
        let has_label = || {
            let label = top_keys.stripes.here().label(known_bits(check(1).key()));
            label.is_some()
        };
        assert!(has_label());
        let _ = record(&top_keys, &check(2), false, 8 * period);
        assert!(has_label());
        let _ = record(&top_keys, &check(2), false, 9 * period);
        assert!(!has_label());
    }

    #[cfg(any(feature = "metrics", feature = "tracing"))]
    #[test]
    fn a_key_is_hot_once_from_a_fifth_of_many_requests_on() {
        // One key among others that come once each.
        let reports = |times: u32, every: u64| -> Vec<u64> {
            let top_keys = top_keys();
            let requests = (0..u64::from(times) * every).filter_map(|n| {
                let key = if n % every == 0 { 1 } else { n + 1 };
                record(&top_keys, &check(key), false, 0)
            });
            let of_key = requests.map(|hot| {
                assert_eq!(hot.key, prefix(1));
                hot.percent
            });
            of_key.collect()
        };
        assert!(reports(HOT_REQUESTS - 1, 1).is_empty());
        assert_eq!(reports(HOT_REQUESTS, 1), [100]);
        assert_eq!(reports(4 * HOT_REQUESTS, 1), [100]);
        assert_eq!(reports(4 * HOT_REQUESTS, 5), [20]);
        assert!(reports(4 * HOT_REQUESTS, 6).is_empty());
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
            let _ = record(&top_keys, &check, false, 0);
        }
        let top = top_keys.top(1);
        assert_eq!(top[0].label.as_deref(), Some("client\u{fffd}3"));
        assert!(calls.load(Ordering::Relaxed) < 100, "{calls:?}");
    }

    /// The keys and requests that are shown, if each is known exactly.
    fn exact(top_keys: &TopKeys) -> Vec<(KeyPrefix, u64)> {
        let of = |top: TopKey| {
            assert_eq!(top.at_least, top.at_most, "{top:?}");
            assert_eq!(top.cost, 2 * top.at_most, "{top:?}");
            (top.key, top.at_most)
        };
        top_keys.top(99).into_iter().map(of).collect()
    }

    /// On each stripe, on a new thread.
    fn on_each_stripe_record(top_keys: &TopKeys, key: u64, times: u64) {
        on_each_stripe(|| {
            for _ in 0..times {
                let _ = record(top_keys, &check(key), false, 0);
            }
        });
    }

    #[test]
    fn what_a_thread_records_that_is_not_the_owner_is_counted_too() {
        let top_keys = top_keys();
        let stripes = top_keys.stripes.iter().len() as u64;
        for _ in 0..5 {
            let _ = record(&top_keys, &check(1), false, 0);
        }
        // One of these threads is on the stripe of this one, which has not ended.
        on_each_stripe_record(&top_keys, 1, 3);
        on_each_stripe_record(&top_keys, 2, 2);
        let here = top_keys.stripes.here();
        assert!(here.owned_by(thread_number()).is_some());
        for stripe in top_keys.stripes.iter() {
            let is_here = std::ptr::eq(stripe, here);
            assert_eq!(stripe.of_others.get().is_some(), is_here);
        }
        let expected = [(prefix(1), 5 + 3 * stripes), (prefix(2), 2 * stripes)];
        assert_eq!(exact(&top_keys), expected);
    }

    #[test]
    fn a_key_that_the_owner_or_the_others_miss_may_have_come_there() {
        let top_keys = top_keys();
        // This thread is the owner of its stripe, and its sets are full of other keys.
        for key in 1_000..3_000 {
            let _ = record(&top_keys, &check(key), false, 0);
        }
        on_each_stripe_record(&top_keys, 1, 50);
        let missed = top_keys.stripes.here().of_owner.get().expect("it recorded");
        let missed = missed
            .current()
            .at_most_if_absent(known_bits(check(1).key()));
        assert!(missed > 0);
        let top = &top_keys.top(1)[0];
        let times = 50 * top_keys.stripes.iter().len() as u64;
        assert_eq!((top.key, top.at_least), (prefix(1), times));
        assert_eq!(top.at_most, times + missed);
    }

    #[test]
    fn the_next_thread_takes_the_place_of_an_owner_that_has_ended() {
        let top_keys = top_keys();
        let stripes = top_keys.stripes.iter().len() as u64;
        for _ in 0..3 {
            on_each_stripe_record(&top_keys, 1, 2);
        }
        assert!(
            top_keys
                .stripes
                .iter()
                .all(|stripe| stripe.of_others.get().is_none())
        );
        assert_eq!(exact(&top_keys), [(prefix(1), 6 * stripes)]);
    }

    #[test]
    fn keys_of_the_owner_and_of_the_others_go_on_under_rules_that_follow() {
        let before = top_keys();
        let stripes = before.stripes.iter().len() as u64;
        let _ = record(&before, &check(1), false, 0);
        on_each_stripe_record(&before, 2, 2);
        let after = TopKeys::succeeding(&TopKeysSetting::default(), &before);
        on_each_stripe_record(&after, 2, 1);
        let _ = record(&before, &check(1), false, 0);
        assert_eq!(exact(&after), [(prefix(2), 3 * stripes), (prefix(1), 1)]);
    }

    #[test]
    fn a_key_gets_its_label_on_a_thread_that_is_not_the_owner() {
        let top_keys = TopKeys::new(&TopKeysSetting::labelled(|_| "ada".into()));
        let _ = record(&top_keys, &check(1), false, 0);
        on_each_stripe(|| {
            for _ in 0..3 {
                top_keys.on_check(&check(2), &KeyBuf::new());
                let _ = record(&top_keys, &check(2), false, 0);
            }
        });
        let top = top_keys.top(1);
        assert_eq!(
            (top[0].key, top[0].label.as_deref()),
            (prefix(2), Some("ada"))
        );
        for stripe in top_keys.stripes.iter() {
            assert!(stripe.label(known_bits(check(2).key())).is_some());
        }
    }
}

#[cfg(all(test, tollgate_shuttle))]
mod schedules {
    use shuttle::{
        Config, Runner,
        scheduler::{PctScheduler, RandomScheduler},
        thread::spawn,
    };

    use super::*;
    use crate::{key::Fingerprint, observe::recent_keys::PERIOD};

    const SCHEDULES: usize = 700;

    /// The sketches are copied on the stack, and each word of theirs is large here.
    fn explore(scenario: impl Fn() + Send + Sync + 'static) {
        let mut config = Config::new();
        config.stack_size = 1 << 20;
        let scenario = Arc::new(scenario);
        let again = Arc::clone(&scenario);
        Runner::new(RandomScheduler::new(SCHEDULES), config.clone()).run(move || again());
        // A thread that stops in the middle of a write, while the others go on for long.
        Runner::new(PctScheduler::new(3, SCHEDULES), config).run(move || scenario());
    }

    /// The highest bit of what is left after the multiplication of a sketch says which of its two sets a key belongs to: 0 for small
    /// keys.
    fn check(key: u64) -> Check {
        let bits = u128::from(key.wrapping_mul(0xf1de_83e1_9937_733d)) << 64;
        Check::new(0, Fingerprint::from_bits(bits), units(key))
    }

    /// The units of a key, in each of its requests. It is denied if they are odd.
    fn units(key: u64) -> u64 {
        key % 1_000
    }

    /// In the other set.
    const OTHER_SET: u64 = 1 << 63;

    fn record(top_keys: &TopKeys, thread: ThreadNumber, key: u64, at: Tick) {
        let (check, is_denied) = (check(key), units(key) % 2 == 1);
        let found = top_keys.find_by(thread, &check);
        let _ = match found.filter(|found| found.keys.is_now(at)) {
            Some(found) => top_keys.add(found, check.cost(), is_denied),
            None => top_keys.record_by(thread, &check, is_denied, at),
        };
    }

    /// The keys that are shown and their bounds. Each has the units and denials that are its own.
    fn shown(top_keys: &TopKeys, keys: &[u64]) -> Vec<(u64, u64, u64)> {
        let of = |top: TopKey| {
            let is_it = |key: &&u64| check(**key).key().prefix() == top.key;
            let key = *keys.iter().find(is_it).expect("it came");
            // What the store of one word shows and that of the next does not yet, is one request.
            let requests = top.cost / units(key).max(1);
            assert_eq!(top.cost, requests * units(key), "{top:?}");
            assert!(requests <= top.at_least, "{top:?}");
            let denials = if units(key) % 2 == 1 { top.at_least } else { 0 };
            assert_eq!(top.denials, denials, "{top:?}");
            (key, top.at_least, top.at_most)
        };
        let mut shown: Vec<_> = top_keys.top(99).into_iter().map(of).collect();
        shown.sort_unstable();
        shown
    }

    #[test]
    fn a_reader_sees_whole_keys_while_the_owner_and_another_thread_record() {
        let keys: Vec<u64> = (1..=11).collect();
        explore(move || {
            let top_keys = Arc::new(TopKeys::new(&TopKeysSetting::default()));
            let [owner, other] = [0, 0].map(ThreadNumber::on_stripe);
            // The set is full.
            for key in 1..=8 {
                record(&top_keys, owner, key, 0);
            }
            let threads = [(owner, [9, 10, 9]), (other, [11, 1, 11])].map(|(thread, keys)| {
                let top_keys = Arc::clone(&top_keys);
                spawn(move || {
                    for key in keys {
                        record(&top_keys, thread, key, 0);
                    }
                })
            });
            for _ in 0..2 {
                for (key, at_least, _) in shown(&top_keys, &keys) {
                    let came = if matches!(key, 1 | 9 | 11) { 2 } else { 1 };
                    assert!(at_least <= came, "{key} {at_least}");
                }
            }
            for thread in threads {
                thread.join().expect("it ends");
            }
            let shown = shown(&top_keys, &keys);
            for (key, came) in [(9, 2), (10, 1), (11, 2)] {
                let found = shown.iter().find(|(shown, ..)| *shown == key);
                let (_, at_least, at_most) = found.expect("it came last");
                assert!((*at_least..=*at_most).contains(&came), "{shown:?}");
            }
        });
    }

    #[test]
    fn a_reader_never_sees_three_periods() {
        let (first, second, third) = (1, 2, OTHER_SET + 3);
        explore(move || {
            let top_keys = Arc::new(TopKeys::new(&TopKeysSetting::default()));
            let owner = ThreadNumber::on_stripe(0);
            record(&top_keys, owner, first, 0);
            let writer = Arc::clone(&top_keys);
            let writer = spawn(move || {
                let period = PERIOD.as_micros() as u64;
                record(&writer, owner, second, period);
                record(&writer, owner, third, 2 * period);
            });
            for _ in 0..3 {
                let shown = shown(&top_keys, &[first, second, third]);
                assert!(
                    shown
                        .iter()
                        .all(|(_, least, most)| (*least, *most) == (1, 1))
                );
                let has = |key| shown.iter().any(|(shown, ..)| *shown == key);
                assert!(!(has(first) && has(third)), "{shown:?}");
            }
            writer.join().expect("it ends");
        });
    }

    #[test]
    fn a_reader_never_misses_the_period_before_while_another_begins() {
        explore(|| {
            let top_keys = Arc::new(TopKeys::new(&TopKeysSetting::default()));
            let [owner, other] = [0, 0].map(ThreadNumber::on_stripe);
            let period = PERIOD.as_micros() as u64;
            record(&top_keys, owner, 1, period);
            record(&top_keys, other, 2, 2 * period);
            let writer = Arc::clone(&top_keys);
            let writer = spawn(move || record(&writer, owner, 3, 2 * period));
            let shown = shown(&top_keys, &[1, 2, 3]);
            for key in [1, 2] {
                assert!(shown.contains(&(key, 1, 1)), "{shown:?}");
            }
            writer.join().expect("it ends");
        });
    }
}
