//! The usage that the store last reported, for local shares to start with.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use crate::{
    algorithm_kind::AlgorithmKind,
    check::Check,
    decision::Verdict,
    on_store_error::OnStoreError,
    quota::Quota,
    rule::Rule,
    rule_set::RuleSet,
    source::Source,
    sync::{AtomicU64, Mutex, Ordering, lock},
    time::{Clock, Tick, micros},
};

const SHARDS: usize = 64;
const SLOTS: usize = 1_024;
/// Units from here on have no place in a slot. Shares of such quotas begin fresh.
const TOO_MANY: u64 = 1 << 48;
/// Ticks are kept in steps of 2^4 = 16 µs.
const STEP_BITS: u32 = 4;

/// Odd, with bits all over: small numbers that are multiplied by it differ everywhere.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The usage of up to 65 536 states as their store last reported it, in 2 MiB.
///
/// States share slots, and the last write wins. An entry that is found belongs to exactly this rule and key.
pub(crate) struct LastSeen {
    rules: Arc<RuleSet>,
    /// Whether the rule at this index counts against a local share.
    shares: Box<[bool]>,
    /// What the rule at this index is known by here: indices change with the rules, and what was seen stays.
    ids: Box<[u16]>,
    /// The first id that no rule has had.
    next: usize,
    shards: Arc<[Shard]>,
}

#[derive(Default)]
struct Shard {
    /// Locked to hand out entries. Writes take no lock.
    claims: Mutex<()>,
    /// Allocated when something is first written.
    slots: OnceLock<Box<[Slot]>>,
}

/// An entry that is written and read without a lock.
///
/// The words of the fingerprint are mixed with the rest, so that a torn write of two writers matches no key and is not
/// found.
#[derive(Default)]
#[repr(align(32))]
struct Slot([AtomicU64; 4]);

/// What was used of a state, and until when.
#[derive(Clone, Copy)]
struct Entry {
    /// Below 2^48 units. 0 where there is nothing.
    used: u64,
    /// When the state is fresh, by the local clock.
    until: Tick,
    plan: u16,
}

impl LastSeen {
    pub(crate) fn new(rules: &Arc<RuleSet>) -> Self {
        let shares: Box<[_]> = rules.rules().iter().map(begins_with_last).collect();
        let shards = if shares.contains(&true) { SHARDS } else { 0 };
        Self {
            rules: Arc::clone(rules),
            shares,
            // A rule set has fewer than 65 536 rules.
            ids: (0..rules.rules().len()).map(|id| id as u16).collect(),
            next: rules.rules().len(),
            shards: (0..shards).map(|_| Shard::default()).collect(),
        }
    }

    /// For rules that take the place of these: what was seen under their names is still known.
    pub(crate) fn succeeded_by(&self, rules: &Arc<RuleSet>) -> Self {
        let anew = Self::new(rules);
        if self.shards.is_empty() || anew.shards.is_empty() {
            return anew;
        }
        let mut next = self.next;
        let mut id = |rule: &Rule| {
            let known = self.rules.position(rule.name());
            let known = known.and_then(|index| self.ids.get(index).copied());
            known.map(Some).unwrap_or_else(|| {
                next += 1;
                u16::try_from(next - 1).ok()
            })
        };
        let ids: Option<Box<[u16]>> = rules.rules().iter().map(&mut id).collect();
        match ids {
            Some(ids) => Self {
                ids,
                next,
                shards: Arc::clone(&self.shards),
                ..anew
            },
            // There have been 65 536 names: what was seen is forgotten, and they are counted anew.
            None => anew,
        }
    }

    /// Its memory: 32 KiB for each shard that anything was written to.
    #[cfg(feature = "metrics")]
    pub(crate) fn bytes(&self) -> u64 {
        let written = self.shards.iter().filter(|it| it.slots.get().is_some());
        (written.count() * SLOTS * size_of::<Slot>() + size_of_val(&*self.shards)) as u64
    }

    /// The check, with its rule's id in place of the index.
    #[inline]
    fn by_id(&self, check: &Check) -> Check {
        let id = self.ids.get(usize::from(check.rule())).copied();
        check.with_rule(id.unwrap_or(check.rule()))
    }

    /// Records what the store has answered. Verdicts from other sources say nothing new about the state.
    #[inline]
    pub(crate) fn note(&self, checks: &[Check], verdicts: &[Verdict], clock: &Clock) {
        let mut now = None;
        for (check, verdict) in checks.iter().zip(verdicts) {
            let rule = usize::from(check.rule());
            if self.shares.get(rule) != Some(&true)
                || verdict.rule() != rule
                || verdict.source() != Source::Store
                || !verdict.has_numbers()
            {
                continue;
            }
            let limit = self.rules.rules()[rule].limit_under(usize::from(check.plan()));
            let Some(limit) = limit.filter(|limit| *limit < TOO_MANY) else {
                continue;
            };
            let now = *now.get_or_insert_with(|| clock.now());
            let entry = Entry {
                used: match verdict.reset_after_ticks() {
                    0 => 0,
                    _ => limit.saturating_sub(verdict.remaining()),
                },
                until: now.saturating_add(verdict.reset_after_ticks()),
                plan: check.plan(),
            };
            let check = self.by_id(check);
            let (shard, slot) = index_of(&check);
            if let Some(shard) = self.shards.get(shard) {
                shard.slots.get_or_init(slots)[slot].write(&check, entry);
            }
        }
    }

    /// Hands the units that `check`'s state still holds at `now` to `begin`, unless they have been handed out since the
    /// store last answered. A concurrent claim of the same state waits until `begin` has returned.
    pub(crate) fn claim(&self, check: &Check, now: Tick, begin: impl FnOnce(u64)) {
        let rule = self.rules.rules().get(usize::from(check.rule()));
        let check = &self.by_id(check);
        let (shard, slot) = index_of(check);
        let Some(shard) = self.shards.get(shard) else {
            return;
        };
        let _claim = lock(&shard.claims);
        let Some(slot) = shard.slots.get().map(|slots| &slots[slot]) else {
            return;
        };
        let (Some(entry), Some(rule)) = (slot.read(check), rule) else {
            return;
        };
        slot.clear();
        let used = entry.used_at(now, &rule.quota_under(usize::from(entry.plan)));
        if used > 0 {
            begin(used);
        }
    }

    /// The state of `check` starts anew.
    pub(crate) fn forget(&self, check: &Check) {
        self.claim(check, Tick::MAX, |_| {});
    }
}

fn begins_with_last(rule: &Rule) -> bool {
    let mut limits = (0..rule.quotas())
        .map(|plan| rule.quota_of(plan))
        .filter(|quota| quota.has_state())
        .map(Quota::limit);
    rule.is_enforced()
        && rule.store_error_answer() == OnStoreError::LocalShare
        && limits.all(|limit| limit < TOO_MANY)
}

fn slots() -> Box<[Slot]> {
    (0..SLOTS).map(|_| Slot::default()).collect()
}

/// In which shard and slot the state of a check is. Both are in range.
#[inline]
fn index_of(check: &Check) -> (usize, usize) {
    let rule = u64::from(check.rule()).wrapping_mul(SPREAD);
    let index = ((check.key().bits() as u64 ^ rule) >> 40) as usize;
    (index % SHARDS, index / SHARDS % SLOTS)
}

impl Slot {
    #[inline]
    fn write(&self, check: &Check, entry: Entry) {
        // The latest tick that has a place is in the year 2112.
        let steps = entry.until.div_ceil(1 << STEP_BITS).min((1 << 48) - 1);
        let until = steps << 16 | u64::from(entry.plan);
        let used = entry.used << 16 | u64::from(check.rule());
        let [low, high] = mixed(check, until, used);
        let words = [low, high, until, used];
        for (word, value) in self.0.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn read(&self, check: &Check) -> Option<Entry> {
        let [low, high, until, used] = [0, 1, 2, 3].map(|n| self.0[n].load(Ordering::Relaxed));
        let is_found = [low, high] == mixed(check, until, used) && used as u16 == check.rule();
        is_found.then_some(Entry {
            used: used >> 16,
            until: (until >> 16) << STEP_BITS,
            plan: until as u16,
        })
    }

    fn clear(&self) {
        for word in &self.0 {
            word.store(0, Ordering::Relaxed);
        }
    }
}

/// The fingerprint, mixed with both words of an entry, so that it is none with one of them and another's other.
#[inline]
fn mixed(check: &Check, until: u64, used: u64) -> [u64; 2] {
    let key = check.key().bits();
    let spread = |word: u64| word.wrapping_mul(SPREAD);
    [
        key as u64 ^ until ^ spread(used),
        (key >> 64) as u64 ^ used ^ spread(until),
    ]
}

impl Entry {
    /// The units that still weigh at `now`, rounded up: a bucket pays back evenly, a window at its end.
    fn used_at(&self, now: Tick, quota: &Quota) -> u64 {
        let ahead = self.until.saturating_sub(now);
        match quota.algorithm() {
            _ if ahead == 0 => 0,
            AlgorithmKind::TokenBucket | AlgorithmKind::Gcra | AlgorithmKind::LeakyBucket => {
                let owed = u128::from(ahead) * u128::from(quota.rate());
                let units = owed.div_ceil(u128::from(micros(quota.period()).max(1)));
                u64::try_from(units).map_or(self.used, |units| units.min(self.used))
            }
            _ => self.used,
        }
    }
}

/// Shows no fingerprint.
impl fmt::Debug for LastSeen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LastSeen").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(tollgate_shuttle)))]
mod tests {

    use super::*;
    use crate::{
        algorithm::{Assessment, Retry},
        key::Fingerprint,
        time::{MINUTE, ManualClock},
    };

    /// No multiple of a step.
    const NOW: Tick = 1_700_000_000_000_001;

    fn check(rule: u16, key: u128) -> Check {
        Check::new(rule, Fingerprint::from_bits(key), 1)
    }

    fn rule(name: &'static str) -> Rule {
        Rule::new(name, Quota::fixed_window(10, MINUTE))
    }

    fn set<const N: usize>(rules: [Rule; N]) -> Arc<RuleSet> {
        Arc::new(RuleSet::new(rules).expect("valid rules"))
    }

    /// Notes that the store has left three units of the check's state, which is fresh after this time.
    fn note(seen: &LastSeen, check: Check, reset_after: u64) {
        let answer = Assessment::new(true, 3, reset_after, Retry::Now);
        let verdict = Verdict::new(check.rule(), check.plan(), answer, Source::Store);
        seen.note(&[check], &[verdict], &Clock::from(&ManualClock::new(NOW)));
    }

    /// What is handed out, if anything is.
    fn claimed(seen: &LastSeen, check: Check, now: Tick) -> Option<u64> {
        let mut units = None;
        seen.claim(&check, now, |used| units = Some(used));
        units
    }

    #[test]
    fn what_was_used_is_handed_out_once_until_the_state_is_fresh() {
        let seen = LastSeen::new(&set([rule("rule")]));
        let one = check(0, 7);
        for (reset_after, later, units) in [
            (1_000, 0, Some(7)),
            (1_000, 999, Some(7)),
            (1_000, 1_016, None),
            (1, 0, Some(7)),
            (u64::MAX, 1 << 50, Some(7)),
            // Nothing was used, whatever is left.
            (0, 0, None),
        ] {
            note(&seen, one, reset_after);
            assert_eq!(claimed(&seen, check(0, 8), NOW), None);
            assert_eq!(claimed(&seen, one, NOW + later), units, "{reset_after}");
            assert_eq!(claimed(&seen, one, NOW), None);
        }
        note(&seen, one, 1_000);
        seen.forget(&one);
        assert_eq!(claimed(&seen, one, NOW), None);
    }

    #[test]
    fn a_rule_is_known_by_its_name_and_no_other_is_taken_for_it() {
        let first = LastSeen::new(&set([rule("a"), rule("b")]));
        note(&first, check(1, 7), 1_000);
        let second = first.succeeded_by(&set([rule("c"), rule("d"), rule("b")]));
        note(&second, check(0, 7), 1_000);
        assert_eq!(claimed(&second, check(1, 7), NOW), None);
        let third = second.succeeded_by(&set([rule("e")]));
        let fourth = third.succeeded_by(&set([rule("f"), rule("g"), rule("h")]));
        for seen in [&third, &fourth] {
            for index in 0..seen.ids.len() as u16 {
                assert_eq!(claimed(seen, check(index, 7), NOW), None, "{index}");
            }
        }
        assert_eq!(claimed(&second, check(2, 7), NOW), Some(7));
        assert_eq!(claimed(&second, check(0, 7), NOW), Some(7));
    }

    #[test]
    fn an_entry_is_that_of_its_rule_and_key_and_a_torn_one_of_none() {
        let written = |check: &Check, used, until, plan| {
            let slot = Slot::default();
            slot.write(check, Entry { used, until, plan });
            slot
        };
        let words = |slot: &Slot| [0, 1, 2, 3].map(|n| slot.0[n].load(Ordering::Relaxed));
        let one = check(3, 7 | 9 << 64);
        let slot = written(&one, 5, 1_600, 2);
        let read = slot.read(&one).expect("it was written");
        assert_eq!((read.used, read.until, read.plan), (5, 1_600, 2));
        let others = [
            check(3, 8 | 9 << 64),
            check(3, 7 | 8 << 64),
            one.with_rule(4),
        ];
        assert!(others.iter().all(|other| slot.read(other).is_none()));
        for (other, used, until) in [
            (one, 6, 3_200),
            (others[0], 6, 3_200),
            (others[1], 8, 4_800),
        ] {
            let [first, second] = [words(&slot), words(&written(&other, used, until, 1))];
            for mix in 1..15 {
                let torn = [0, 1, 2, 3].map(|n| [first, second][mix >> n & 1][n]);
                // Where both wrote the same word, it is not torn.
                if torn == first || torn == second {
                    continue;
                }
                let torn = Slot(torn.map(AtomicU64::new));
                for check in [&one, &other] {
                    assert!(torn.read(check).is_none(), "{mix:04b} of {other:?}");
                }
            }
        }
    }
}
