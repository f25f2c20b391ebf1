//! The keys of a rule that come most often.

use std::{cell::Cell, collections::HashMap, ptr, sync::Arc, time::Duration};

use crate::{
    check::Check,
    key::{Fingerprint, KeyBuf, KeyPrefix},
    observe::{
        shown::shown,
        space_saving::{Details, SpaceSaving},
    },
    rule::NameFn,
    sync::{BriefMutex, lock_briefly, try_lock},
    time::Tick,
};

/// A key that came often, in the last minutes.
///
/// Its requests are between [`at_least`](Self::at_least) and [`at_most`](Self::at_most), as far as they were
/// [noted](crate::Limiter::top_keys). If all keys of a rule are among the top keys, the two are equal.
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

/// The top keys of a rule. A request never waits for the list: where another has it, it is not noted.
#[derive(Default)]
pub(super) struct TopKeys(BriefMutex<RecentKeys>);

/// What a list covers before the next one begins. Two are kept.
const PERIOD: Tick = Duration::from_secs(150).as_micros() as Tick;

/// The heaviest keys of this period and of the one before.
#[derive(Clone, Default)]
struct RecentKeys {
    /// When this period begins.
    begins: Tick,
    current: SpaceSaving,
    previous: SpaceSaving,
    /// The thread that has written last, and when.
    writer: usize,
    written_at: Tick,
}

/// How long a thread leaves a list alone that it shares with another one, in µs. Longer than the time between two requests only
/// where a thread decides more than 250 000 in a second. Without this they would hand the list to and fro, and wait for it most
/// of the time.
const PAUSE: Tick = 4;

thread_local! {
    /// The list that this thread leaves alone, and until when.
    static PAUSED: Cell<(usize, Tick)> = const { Cell::new((0, 0)) };
}

/// A key that makes up much of its rule's traffic.
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
const HOT_PERCENT: u64 = 20;
/// and this many of its own, within a period.
const HOT_REQUESTS: u64 = 1_024;

/// The bits of a key that a list knows. A place that is free has none.
fn known_bits(key: Fingerprint) -> u64 {
    ((key.bits() >> 64) as u64).max(1)
}

impl TopKeys {
    /// Counts a request. Returns a key that is found to be hot.
    pub(super) fn record(&self, check: &Check, is_denied: bool, at: Tick) -> Option<HotKey> {
        let list = ptr::from_ref(self) as usize;
        let (paused, until) = PAUSED.get();
        if paused == list {
            if (1..=PAUSE).contains(&until.wrapping_sub(at)) {
                return None;
            }
            PAUSED.set((0, 0));
        }
        let Some(mut recent) = try_lock(&self.0) else {
            PAUSED.set((list, at.wrapping_add(PAUSE)));
            return None;
        };
        if recent.is_shared(at) {
            PAUSED.set((list, at.wrapping_add(PAUSE)));
        }
        recent.turn_to(at);
        let key = known_bits(check.key());
        let count = recent.current.record(key, check.cost(), is_denied);
        // Looked at now and then, as the count doubles.
        if count < HOT_REQUESTS || !count.is_power_of_two() {
            return None;
        }
        recent.hot(key, count)
    }

    /// A check was made: calls its key by its name, if it came before and has none.
    pub(super) fn on_key(&self, subject: Fingerprint, key: &KeyBuf, label: &NameFn) {
        if PAUSED.get().0 == ptr::from_ref(self) as usize {
            return;
        }
        let bits = known_bits(subject);
        let is_unlabelled = |details: &mut Details| details.label.is_none();
        let recent = try_lock(&self.0);
        if recent.is_some_and(|mut it| it.current.details(bits).is_some_and(is_unlabelled)) {
            // Without the lock: the application may ask for the top keys.
            let label = shown(&(label.0)(key));
            if let Some(details) = try_lock(&self.0)
                .as_mut()
                .and_then(|it| it.current.details(bits))
            {
                details.label = Some(label.into());
            }
        }
    }

    /// What the key of a check is called, if it is there and nobody else looks.
    #[cfg(feature = "tracing")]
    pub(super) fn label(&self, check: &Check) -> Option<Arc<str>> {
        let mut recent = try_lock(&self.0)?;
        recent
            .current
            .details(known_bits(check.key()))?
            .label
            .clone()
    }

    /// Its memory: fixed, except for the labels.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let recent = lock_briefly(&self.0);
        let lists = [&recent.current, &recent.previous].into_iter();
        let labels = lists
            .flat_map(SpaceSaving::entries)
            .filter_map(|(_, _, details)| Some(details.label.as_ref()?.len()));
        size_of::<Self>() + 2 * SpaceSaving::BYTES + labels.sum::<usize>()
    }

    /// The heaviest keys, the heaviest first.
    pub(super) fn top(&self, most: usize) -> Vec<TopKey> {
        let recent = lock_briefly(&self.0).clone();
        let lists = [&recent.current, &recent.previous];
        let mut sums: HashMap<u64, (u64, Details)> = HashMap::new();
        for (key, count, details) in lists.into_iter().flat_map(SpaceSaving::entries) {
            let (counts, sum) = sums.entry(key).or_default();
            *counts += count;
            sum.error += details.error;
            sum.denials += details.denials;
            sum.units = sum.units.saturating_add(details.units);
            sum.label = sum.label.take().or_else(|| details.label.clone());
        }
        let mut top: Vec<_> = sums.into_iter().collect();
        top.sort_by_key(|(key, (count, sum))| (std::cmp::Reverse(count - sum.error), *key));
        top.truncate(most);
        let shown = top.into_iter().map(|(key, (count, sum))| TopKey {
            key: KeyPrefix::of_high_bits(key),
            label: sum.label.map(|label| label.to_string()),
            at_least: count - sum.error,
            at_most: count + lists.iter().map(|list| list.missed(key)).sum::<u64>(),
            denials: sum.denials,
            cost: sum.units,
        });
        shown.collect()
    }
}

impl RecentKeys {
    /// Whether another thread has just written. Notes that this one has.
    fn is_shared(&mut self, at: Tick) -> bool {
        let thread = PAUSED.with(|paused| ptr::from_ref(paused) as usize);
        let has_other = self.writer != thread && self.writer != 0;
        let is_shared = has_other && at.wrapping_sub(self.written_at) < PAUSE;
        (self.writer, self.written_at) = (thread, at);
        is_shared
    }

    /// Begins the period of this time, if it is another one. A clock that goes back begins anew.
    fn turn_to(&mut self, at: Tick) {
        // Replies of a store come in another order than its decisions: one of the period before is of this one.
        let is_just_over = at < self.begins && self.begins - at <= PERIOD;
        if at.wrapping_sub(self.begins) < PERIOD || is_just_over {
            return;
        }
        let begins = at / PERIOD * PERIOD;
        if begins == self.begins + PERIOD {
            std::mem::swap(&mut self.current, &mut self.previous);
        } else {
            self.previous.clear();
        }
        self.current.clear();
        self.begins = begins;
    }

    /// Whether a key is hot, for the first time in a period.
    fn hot(&mut self, key: u64, count: u64) -> Option<HotKey> {
        let percent = count * 100 / self.current.total().max(1);
        let details = self.current.details(key)?;
        let is_hot = percent >= HOT_PERCENT && !details.is_reported;
        details.is_reported |= is_hot;
        is_hot.then(|| HotKey {
            key: KeyPrefix::of_high_bits(key),
            label: details.label.clone(),
            percent,
        })
    }
}

crate::debug_fields!(TopKeys);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::{key::PartKind, key_part::KeyPart};

    fn check(key: u64) -> Check {
        let bits = u128::from(key.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64;
        Check::new(0, Fingerprint::from_bits(bits), 2)
    }

    fn prefix(key: u64) -> KeyPrefix {
        check(key).key().prefix()
    }

    fn record(top_keys: &TopKeys, key: u64, at: Tick) -> Option<HotKey> {
        top_keys.record(&check(key), key == 7, at)
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
    fn of_a_million_requests_the_ten_heaviest_keys_are_named_with_counts_within_the_error() {
        let top_keys = TopKeys::default();
        let mut exact = vec![0_u64; KEYS as usize + 1];
        for key in zipf(1_000_000) {
            exact[key as usize] += 1;
            let _ = record(&top_keys, key, 0);
        }
        let mut heaviest: Vec<u64> = (0..=KEYS).collect();
        heaviest.sort_by_key(|key| std::cmp::Reverse(exact[*key as usize]));
        let top = top_keys.top(10);
        assert_eq!(top.len(), 10);
        for (found, key) in top.iter().zip(&heaviest) {
            let times = exact[*key as usize];
            assert_eq!(found.key, prefix(*key));
            assert!(found.at_most - found.at_least < times / 10, "{found:?}");
            assert!(found.cost <= 2 * times && found.cost > 2 * times - times / 5);
        }
        let by_prefix: HashMap<KeyPrefix, u64> = (1..=KEYS).map(|key| (prefix(key), key)).collect();
        for found in top_keys.top(usize::MAX) {
            let times = exact[by_prefix[&found.key] as usize];
            let bounds = found.at_least..=found.at_most;
            assert!(bounds.contains(&times), "{found:?} {times}");
            assert!(found.denials <= times && found.cost <= 2 * times);
        }
    }

    #[test]
    fn few_keys_are_counted_exactly_in_memory_that_does_not_grow() {
        let top_keys = TopKeys::default();
        let bytes = top_keys.bytes();
        // About 33 KB, as the guide says.
        assert!((32_768..33_792).contains(&bytes), "{bytes}");
        for key in 1..=20 {
            for _ in 0..key {
                let _ = record(&top_keys, key, 0);
            }
        }
        let top = top_keys.top(99);
        let expected = |key: u64| TopKey {
            key: prefix(key),
            label: None,
            at_least: key,
            at_most: key,
            denials: if key == 7 { 7 } else { 0 },
            cost: 2 * key,
        };
        assert_eq!(top, (1..=20).rev().map(expected).collect::<Vec<_>>());
        for key in 21..100_000 {
            let _ = record(&top_keys, key, key * 1_000);
        }
        assert_eq!(top_keys.bytes(), bytes);
    }

    #[test]
    fn what_is_older_than_two_periods_is_forgotten() {
        let top_keys = TopKeys::default();
        let _ = record(&top_keys, 1, 7 * PERIOD);
        let counts = |at| {
            let _ = record(&top_keys, 2, at);
            let top = top_keys.top(9);
            [1, 2].map(|key| Some(top.iter().find(|top| top.key == prefix(key))?.at_most))
        };
        assert_eq!(counts(8 * PERIOD - 1), [Some(1), Some(1)]);
        assert_eq!(counts(8 * PERIOD), [Some(1), Some(2)]);
        // A late reply is of the period that has begun.
        assert_eq!(counts(8 * PERIOD - 1), [Some(1), Some(3)]);
        assert_eq!(counts(9 * PERIOD), [None, Some(3)]);
        assert_eq!(counts(11 * PERIOD), [None, Some(1)]);
        // A clock that goes back.
        assert_eq!(counts(3 * PERIOD), [None, Some(1)]);
    }

    #[test]
    fn a_key_is_hot_once_from_a_fifth_of_many_requests_on() {
        // One key among others that come once each.
        let reports = |times: u64, every: u64| -> Vec<u64> {
            let top_keys = TopKeys::default();
            let requests = (0..times * every).filter_map(|n| {
                let key = if n % every == 0 { 1 } else { n + 1 };
                record(&top_keys, key, 0)
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
        let calls = AtomicU64::new(0);
        let label = NameFn(Arc::new(move |key: &KeyBuf| {
            assert!(calls.fetch_add(1, Ordering::Relaxed) < 100);
            let (_, part) = key.parts().next().expect("one part");
            format!("client\n{}", part.len())
        }));
        let top_keys = TopKeys::default();
        let mut key = KeyBuf::new();
        KeyPart::add_to("ada", &mut key, PartKind::VALUE);
        for n in 0..10_000 {
            let check = check(if n % 2 == 0 { 1 } else { n });
            top_keys.on_key(check.key(), &key, &label);
            let _ = top_keys.record(&check, false, 0);
        }
        let top = top_keys.top(1);
        assert_eq!(top[0].label.as_deref(), Some("client\u{fffd}3"));
        // It goes with its key.
        let _ = record(&top_keys, 2, PERIOD);
        assert!(top_keys.top(999).iter().any(|top| top.label.is_some()));
        let _ = record(&top_keys, 2, 2 * PERIOD);
        assert!(top_keys.top(999).iter().all(|top| top.label.is_none()));
    }
}
