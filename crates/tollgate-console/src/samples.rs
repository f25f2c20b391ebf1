//! What was counted in the last seconds, minutes and hour.

use std::collections::{HashMap, VecDeque};

use tollgate_core::observe::RuleCounts;

/// How many samples a new tab gets, and how many minutes are kept.
const SECONDS: usize = 120;
const MINUTES: u64 = 60;
const MINUTE: u64 = 60_000_000;

/// The sums of the last hour. A rule without requests keeps nothing.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    rules: HashMap<(usize, String), RuleSamples>,
    /// When each was taken, and what was counted since the one before. The latest comes first.
    pub(crate) seconds: VecDeque<(u64, Tally)>,
    pub(crate) minutes: Minutes,
    sampled_at: u64,
}

#[derive(Debug, Default)]
struct RuleSamples {
    total: Tally,
    last: Tally,
    minutes: Minutes,
}

/// Sums by minute, the last of which goes on.
#[derive(Debug, Default)]
pub(crate) struct Minutes(VecDeque<(u64, Tally)>);

impl Minutes {
    /// Adds to the present minute, and forgets those of more than an hour ago. A clock that is set back begins anew.
    fn add(&mut self, minute: u64, more: &Tally) {
        self.0
            .retain(|(at, _)| *at <= minute && minute - at < MINUTES);
        if more.iter().all(|count| *count == 0) {
            return;
        }
        match self.0.back_mut() {
            Some((last, sum)) if *last == minute => add(sum, more),
            _ => self.0.push_back((minute, *more)),
        }
    }

    /// The sum of the last `minutes`, the one that goes on included.
    fn sum(&self, now: u64, minutes: u64) -> Tally {
        let mut sum = Tally::default();
        let since = (now / MINUTE + 1).saturating_sub(minutes);
        let recent = self.0.iter().filter(|(minute, _)| *minute >= since);
        recent.for_each(|(_, of_minute)| add(&mut sum, of_minute));
        sum
    }

    /// Each minute in which something was counted, by its beginning in seconds.
    pub(crate) fn each(&self) -> impl Iterator<Item = (u64, &Tally)> {
        self.0.iter().map(|(minute, sum)| (minute * 60, sum))
    }
}

impl Samples {
    /// Takes what was counted until now, in microseconds since the Unix epoch. Returns the time since the sample before.
    pub(crate) fn take(&mut self, now: u64, counts: &[Vec<RuleCounts>]) -> u64 {
        let is_first = self.sampled_at == 0;
        let minute = now / MINUTE;
        let mut all = Tally::default();
        let mut rules = HashMap::new();
        for (layer, counts) in counts.iter().enumerate() {
            for counts in counts {
                let key = (layer, counts.rule.clone());
                let mut rule = self.rules.remove(&key).unwrap_or_default();
                let total = tally(counts);
                // A limiter that was made anew begins at 0.
                let is_anew = total
                    .iter()
                    .zip(&rule.total)
                    .any(|(now, before)| now < before);
                rule.last = match is_first {
                    true => Tally::default(),
                    false if is_anew => total,
                    false => std::array::from_fn(|index| total[index] - rule.total[index]),
                };
                rule.total = total;
                rule.minutes.add(minute, &rule.last);
                add(&mut all, &rule.last);
                rules.insert(key, rule);
            }
        }
        // Rules that are gone are forgotten.
        self.rules = rules;
        self.minutes.add(minute, &all);
        self.seconds.push_front((now, all));
        self.seconds.truncate(SECONDS);
        let since = now.saturating_sub(std::mem::replace(&mut self.sampled_at, now));
        if is_first { 0 } else { since }
    }

    /// What the last sample has of a rule.
    pub(crate) fn last(&self, layer: usize, rule: &str) -> Tally {
        let rule = self.rules.get(&(layer, rule.to_owned()));
        rule.map_or(Tally::default(), |it| it.last)
    }

    /// What a rule has counted in this minute and the `minutes` before it.
    pub(crate) fn recent(&self, layer: usize, rule: &str, minutes: u64) -> Tally {
        let rule = self.rules.get(&(layer, rule.to_owned()));
        rule.map_or(Tally::default(), |it| {
            it.minutes.sum(self.sampled_at, minutes + 1)
        })
    }
}

/// Checks of a rule, by what became of them. An array, because it is added and subtracted as a whole.
pub(crate) type Tally = [u64; 8];

pub(crate) const ALLOWED: usize = 0;
/// By the rule's numbers.
pub(crate) const DENIED: usize = 1;
/// By a block.
pub(crate) const BLOCKED: usize = 2;
/// Let through because the store failed.
pub(crate) const DEGRADED: usize = 3;
/// Allowed here, denied by another rule.
pub(crate) const WITHHELD: usize = 4;
pub(crate) const SHADOW_ALLOWED: usize = 5;
pub(crate) const SHADOW_DENIED: usize = 6;
/// Decided in this process because the store failed; counted among the others as well.
pub(crate) const FALLBACK: usize = 7;

pub(crate) fn tally(counts: &RuleCounts) -> Tally {
    let mut sum = Tally::default();
    for count in &counts.requests {
        let kind = match (count.decision, count.reason) {
            ("allowed" | "repeated", _) => ALLOWED,
            ("denied", "blocked") => BLOCKED,
            ("denied", _) => DENIED,
            ("degraded", _) => DEGRADED,
            ("withheld", _) => WITHHELD,
            ("shadow_allowed", _) => SHADOW_ALLOWED,
            ("shadow_denied", _) => SHADOW_DENIED,
            _ => continue,
        };
        sum[kind] += count.requests;
        if count.source == "fallback" || count.reason == "store_failed" {
            sum[FALLBACK] += count.requests;
        }
    }
    sum
}

pub(crate) fn add(sum: &mut Tally, more: &Tally) {
    sum.iter_mut()
        .zip(more)
        .for_each(|(sum, more)| *sum += more);
}

/// What was decided by the rule itself, and how much of it was denied.
pub(crate) fn share_denied(tally: &Tally) -> (u64, u64) {
    let denied = tally[DENIED] + tally[BLOCKED];
    (
        denied,
        denied + tally[ALLOWED] + tally[DEGRADED] + tally[WITHHELD],
    )
}

/// The same of a shadow.
pub(crate) fn share_shadowed(tally: &Tally) -> (u64, u64) {
    (
        tally[SHADOW_DENIED],
        tally[SHADOW_DENIED] + tally[SHADOW_ALLOWED],
    )
}

#[cfg(test)]
mod tests {
    use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};

    use super::*;
    use crate::samples::{ALLOWED, DENIED};

    #[test]
    fn what_is_counted_between_samples_is_summed_by_minute_and_ends_after_an_hour() {
        let limiter = Limiter::new(
            MemoryStore::new(),
            [Rule::new("api", Quota::fixed_window(2, tollgate::DAY))],
        )
        .expect("valid");
        let counts = |times| {
            for _ in 0..times {
                let _ = limiter.try_acquire("api", &Key::of("a")).expect("known");
            }
            [limiter.counts()]
        };
        let mut samples = Samples::default();
        let begin = 100 * MINUTE;
        // What was counted before the console was made is not of this minute.
        assert_eq!(samples.take(begin, &counts(1)), 0);
        assert_eq!(samples.take(begin + 1_000_000, &counts(3)), 1_000_000);
        let last = samples.last(0, "api");
        assert_eq!((last[ALLOWED], last[DENIED]), (1, 2));
        samples.take(begin + MINUTE, &counts(4));
        assert_eq!(samples.recent(0, "api", 0)[DENIED], 4);
        assert_eq!(samples.recent(0, "api", 1)[DENIED], 6);
        // A limiter in its place counts from 0.
        samples.take(begin + MINUTE + 1, &[Vec::new()]);
        samples.take(begin + 60 * MINUTE, &counts(1));
        assert_eq!(
            samples.minutes.each().map(|(at, _)| at).collect::<Vec<_>>(),
            [101 * 60, 160 * 60]
        );
    }
}
