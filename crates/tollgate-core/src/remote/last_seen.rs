//! The usage that the store last reported, for local shares to start with.

use std::{
    hash::BuildHasher as _,
    sync::{Arc, OnceLock},
};

use foldhash::fast::FixedState;

use crate::{
    check::Check,
    check_policy::OnStoreError,
    decision::Verdict,
    hold::Source,
    key::Fingerprint,
    quota::Quota,
    rule::Rule,
    rule_set::RuleSet,
    store::seq_cells::SeqCells,
    sync::{Mutex, lock},
    time::{Clock, Tick, micros},
};

const CELLS: usize = 65_536;

/// The usage of up to 65 536 states as their store last reported it, in 2 MiB.
///
/// States share cells, and the last write wins. What is found belongs to exactly this rule and key.
pub(crate) struct LastSeen {
    rules: Arc<RuleSet>,
    /// The hash of its name, of a rule that counts against a local share: indices change with the rules, and what was seen stays.
    ids: Box<[Option<u64>]>,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    /// Locked to hand out entries. Writes take no lock: what two leave together is not found.
    claims: Mutex<()>,
    /// The units that were used of a state, when it is fresh by the local clock, and the plan. Allocated when something is first
    /// written.
    cells: OnceLock<SeqCells<3>>,
}

impl LastSeen {
    /// What was seen `before` under the names of these rules is still known.
    pub(crate) fn new(rules: &Arc<RuleSet>, before: Option<&Self>) -> Self {
        let id = |rule: &Rule| {
            let begins = rule.store_error_answer() == OnStoreError::LocalShare;
            let begins = begins && rule.is_enforced();
            begins.then(|| FixedState::default().hash_one(rule.name()))
        };
        Self {
            rules: Arc::clone(rules),
            ids: rules.rules().iter().map(id).collect(),
            seen: before.map_or_else(Arc::default, |before| Arc::clone(&before.seen)),
        }
    }

    /// Where the state of a check is, what stands for its key there, and what its rule is known by.
    fn place(&self, check: &Check) -> Option<(&Seen, Fingerprint, u64)> {
        let id = (*self.ids.get(usize::from(check.rule()))?)?;
        // Rules of one key do not share a line of cells.
        let key = check.key().bits() ^ u128::from(id);
        Some((&self.seen, Fingerprint::from_bits(key), id))
    }

    /// Records what the store has answered. Verdicts from other sources say nothing new about the state.
    pub(crate) fn note(&self, checks: &[Check], verdicts: &[Verdict], clock: &Clock) {
        let mut now = None;
        for (check, verdict) in checks.iter().zip(verdicts) {
            let Some((seen, key, id)) = self.place(check) else {
                continue;
            };
            let rule = self.rules.rule_of(check);
            let limit = rule.and_then(|rule| rule.limit_under(usize::from(check.plan())));
            let is_stored =
                verdict.source() == Source::Store && verdict.rule() == usize::from(check.rule());
            let Some(limit) = limit.filter(|_| is_stored && verdict.has_numbers()) else {
                continue;
            };
            let now = *now.get_or_insert_with(|| clock.now());
            let used = match verdict.reset_after_ticks() {
                0 => 0,
                _ => limit.saturating_sub(verdict.remaining()),
            };
            let until = now.saturating_add(verdict.reset_after_ticks());
            let cells = seen.cells.get_or_init(|| SeqCells::new(1, CELLS));
            let line = cells.line(0, key);
            line.insert(key, id, [used, until, check.plan().into()]);
        }
    }

    /// Hands the units that `check`'s state still holds at `now` to `begin`, unless they have been handed out since the
    /// store last answered. A concurrent claim of the same state waits until `begin` has returned.
    pub(crate) fn claim(&self, check: &Check, now: Tick, begin: impl FnOnce(u64)) {
        let rule = self.rules.rule_of(check);
        let (Some((seen, key, id)), Some(rule)) = (self.place(check), rule) else {
            return;
        };
        let Some(line) = seen.cells.get().map(|cells| cells.line(0, key)) else {
            return;
        };
        // One that is being claimed has its cell still.
        let _claim = (!line.is_empty()).then(|| lock(&seen.claims));
        let Some([used, until, plan]) = line.get(key, id) else {
            return;
        };
        line.insert(key, id, [0; 3]);
        let used = used_at(now, used, until, &rule.quota_under(plan as usize));
        if used > 0 {
            begin(used);
        }
    }

    /// The state of `check` starts anew.
    pub(crate) fn forget(&self, check: &Check) {
        self.claim(check, Tick::MAX, |_| {});
    }
}

/// How many of the `used` units still count at `now`, rounded up. All are back at `until`: a bucket gives them back evenly, a window at
/// its end.
fn used_at(now: Tick, used: u64, until: Tick, quota: &Quota) -> u64 {
    let ahead = until.saturating_sub(now);
    if ahead == 0 || !quota.algorithm().is_bucket() {
        return if ahead == 0 { 0 } else { used };
    }
    let owed = u128::from(ahead) * u128::from(quota.rate());
    let units = owed.div_ceil(u128::from(micros(quota.period()).max(1)));
    u64::try_from(units).map_or(used, |units| units.min(used))
}

// Shows no fingerprint.
crate::debug_fields!(LastSeen);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        algorithm::{Assessment, Retry},
        time::{MINUTE, ManualClock},
    };

    const NOW: Tick = 1_700_000_000_000_000;

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
        let seen = LastSeen::new(&set([rule("rule")]), None);
        let one = check(0, 7);
        for (reset_after, later, units) in [
            (1_000, 0, Some(7)),
            (1_000, 999, Some(7)),
            (1_000, 1_000, None),
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
        let first = LastSeen::new(&set([rule("a"), rule("b")]), None);
        note(&first, check(1, 7), 1_000);
        let second = LastSeen::new(&set([rule("c"), rule("d"), rule("b")]), Some(&first));
        note(&second, check(0, 7), 1_000);
        assert_eq!(claimed(&second, check(1, 7), NOW), None);
        let third = LastSeen::new(&set([rule("e")]), Some(&second));
        let fourth = LastSeen::new(&set([rule("f"), rule("g"), rule("h")]), Some(&third));
        for seen in [&third, &fourth] {
            for index in 0..seen.ids.len() as u16 {
                assert_eq!(claimed(seen, check(index, 7), NOW), None, "{index}");
            }
        }
        assert_eq!(claimed(&second, check(2, 7), NOW), Some(7));
        assert_eq!(claimed(&second, check(0, 7), NOW), Some(7));
    }
}
