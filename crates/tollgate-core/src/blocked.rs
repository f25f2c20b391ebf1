//! Checks of a limit of none, which this process decides by itself: they have no state, and a store never sees them.

use smallvec::SmallVec;

use crate::{
    algorithm::Retry,
    check::Check,
    checks::Checks,
    decision::{Decision, Outcome, Verdict},
    rule::Mode,
    rule_set::RuleSet,
    source::Source,
    time::Tick,
};

/// Checks without those of a limit of none that blocks, and the verdicts on these by their indices.
pub(crate) struct Counted {
    pub(crate) checks: Checks,
    pub(crate) verdicts: SmallVec<[(usize, Verdict); 2]>,
}

/// The verdict on a check; `None` if its quota is not [none](crate::Quota::none).
fn verdict(rules: &RuleSet, check: &Check, now: Tick) -> Option<Verdict> {
    let rule = rules.rules().get(usize::from(check.rule()))?;
    let quota = rule.quota_under(usize::from(check.plan()));
    if !quota.is_none() {
        return None;
    }
    let (number, plan) = (check.rule(), check.plan());
    let retry = match quota.ends_at_tick() {
        _ if *rule.mode() == Mode::Off => Retry::Now,
        None => Retry::Never,
        Some(end) if end <= now => Retry::Now,
        Some(end) => Retry::after_micros(end - now),
    };
    Some(match retry {
        Retry::Now => Verdict::unanswered(number, plan, Outcome::NotDecided),
        retry => Verdict::blocked(number, plan, retry, Source::Local),
    })
}

/// The denial of a request by an enforced limit of none. Nothing else is asked, so no shadow counts the request either.
pub(crate) fn deny(rules: &RuleSet, checks: &[Check], now: Tick) -> Option<Decision> {
    let denies = |check: &Check| {
        let verdict = verdict(rules, check, now)?;
        (verdict.is_blocked() && rules.enforces(verdict.rule())).then_some(verdict)
    };
    checks.iter().find_map(denies)?;
    let verdicts = checks.iter().map(|check| {
        denies(check)
            .unwrap_or_else(|| Verdict::unanswered(check.rule(), check.plan(), Outcome::NotDecided))
    });
    Some(Decision::new(now, verdicts, |verdict| {
        rules.enforces(verdict.rule())
    }))
}

/// The checks that a store decides, and the verdicts on the others, of a request that is not [denied](deny).
pub(crate) fn counted(rules: &RuleSet, checks: &[Check], now: Tick) -> Counted {
    let mut counted = Counted {
        checks: Checks::new(),
        verdicts: SmallVec::new(),
    };
    for (index, check) in checks.iter().enumerate() {
        let Some(verdict) = verdict(rules, check, now) else {
            counted.checks.push(*check);
            continue;
        };
        let rule = &rules.rules()[verdict.rule()];
        if !verdict.is_blocked() && *rule.mode() != Mode::Off && rule.quota().has_state() {
            // A client's block is over, and its own quota counts again.
            counted.checks.push(check.with_plan(0));
        } else {
            counted.verdicts.push((index, verdict));
        }
    }
    counted
}
