//! The usage that the store last reported, for local shares to start with.

use std::sync::{Arc, OnceLock};

use crate::{
    algorithm_kind::AlgorithmKind,
    check::Check,
    check_policy::OnStoreError,
    decision::Verdict,
    key::Fingerprint,
    quota::Quota,
    rule::Rule,
    rule_set::RuleSet,
    source::Source,
    store::seq_cells::SeqCells,
    sync::{Mutex, lock},
    time::{Clock, Tick, micros},
};

const SHARDS: usize = 64;
const CELLS: usize = 1_024;
/// Units from here on have no place in a cell. Shares of such quotas begin fresh.
const TOO_MANY: u64 = 1 << 48;
/// Odd, with bits all over: small numbers that are multiplied by it differ everywhere.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// Ticks are kept in steps of 2^4 = 16 µs.
const STEP_BITS: u32 = 4;

/// The usage of up to 65 536 states as their store last reported it, in 2 MiB.
///
/// States share cells, and the last write wins. What is found belongs to exactly this rule and key.
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
    /// Locked to hand out entries. Writes take no lock: what two leave together is not found.
    claims: Mutex<()>,
    /// Allocated when something is first written.
    cells: OnceLock<SeqCells<2>>,
}

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
        let written = self.shards.iter().filter_map(|it| it.cells.get());
        let bytes = written.map(SeqCells::bytes);
        (bytes.sum::<usize>() + size_of_val(&*self.shards)) as u64
    }

    /// Where the state of a check is, what stands for its key there, and what its rule is known by.
    fn place(&self, check: &Check) -> Option<(&Shard, Fingerprint, u64)> {
        let id = u64::from(*self.ids.get(usize::from(check.rule()))?);
        // Rules of one key do not share a line of cells.
        let key = check.key().bits() ^ u128::from(id.wrapping_mul(SPREAD));
        let shard = self.shards.get((key >> 50) as usize % SHARDS)?;
        Some((shard, Fingerprint::from_bits(key), id))
    }

    /// Records what the store has answered. Verdicts from other sources say nothing new about the state.
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
            if let Some((shard, key, id)) = self.place(check) {
                let cells = shard.cells.get_or_init(|| SeqCells::new(1, CELLS));
                cells.line(0, key).insert(key, id, entry.words());
            }
        }
    }

    /// Hands the units that `check`'s state still holds at `now` to `begin`, unless they have been handed out since the
    /// store last answered. A concurrent claim of the same state waits until `begin` has returned.
    pub(crate) fn claim(&self, check: &Check, now: Tick, begin: impl FnOnce(u64)) {
        let rule = self.rules.rules().get(usize::from(check.rule()));
        let (Some((shard, key, id)), Some(rule)) = (self.place(check), rule) else {
            return;
        };
        let _claim = lock(&shard.claims);
        let line = shard.cells.get().map(|cells| cells.line(0, key));
        let Some((line, words)) = line.and_then(|line| Some((line, line.get(key, id)?))) else {
            return;
        };
        let entry = Entry::of_words(words);
        line.insert(key, id, [0, 0]);
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

impl Entry {
    fn words(self) -> [u64; 2] {
        // The latest tick that has a place is in the year 2112.
        let steps = self.until.div_ceil(1 << STEP_BITS).min((1 << 48) - 1);
        [self.used, steps << 16 | u64::from(self.plan)]
    }

    fn of_words([used, until]: [u64; 2]) -> Self {
        Self {
            used,
            until: (until >> 16) << STEP_BITS,
            plan: until as u16,
        }
    }

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

// Shows no fingerprint.
crate::debug_fields!(LastSeen);

#[cfg(all(test, not(tollgate_shuttle)))]
mod tests {
    use super::*;
    use crate::{
        algorithm::{Assessment, Retry},
        time::{MINUTE, ManualClock},
    };

    /// No multiple of a step.
    const NOW: Tick = 1_700_000_000_000_001;

    fn check(rule: u16, key: u128) -> Check {
        Check::new(rule, Fingerprint::from_bits(key << 64 | key), 1)
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
}
