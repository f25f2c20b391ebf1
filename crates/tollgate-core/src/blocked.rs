//! Checks that this process decides by itself: of a limit of none, which has no state and which a store never sees, and those that are a
//! mistake.

use smallvec::SmallVec;

use crate::{
    algorithm::Retry,
    check::{Check, Checks},
    decision::{Decision, Outcome, Verdict},
    hold::Source,
    rule::{Mode, Rule},
    rule_set::RuleSet,
    time::Tick,
};

/// Verdicts, by the indices of their checks.
type Verdicts = SmallVec<[(usize, Verdict); 2]>;

/// The verdict on a check; `None` if its quota is not [none](crate::Quota::none).
fn verdict(rules: &RuleSet, check: &Check, now: Tick) -> Option<Verdict> {
    let rule = rules.rule_of(check)?;
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
pub(crate) fn counted(rules: &RuleSet, checks: &[Check], now: Tick) -> (Checks, Verdicts) {
    let (mut counted, mut verdicts) = (Checks::new(), Verdicts::new());
    for (index, check) in checks.iter().enumerate() {
        let Some(verdict) = verdict(rules, check, now) else {
            counted.push(*check);
            continue;
        };
        let rule = &rules.rules()[verdict.rule()];
        if !verdict.is_blocked() && *rule.mode() != Mode::Off && rule.quota().has_state() {
            // A client's block is over, and its own quota counts again.
            counted.push(check.with_plan(0));
        } else {
            verdicts.push((index, verdict));
        }
    }
    (counted, verdicts)
}

// Checks that go together by mistake.

impl Check {
    /// The denial of a request that checks one rule and key under two plans. They share a state, but each has its own limit,
    /// and neither applies to the sum of their costs. `None` if no checks do; plans without a limit do not count.
    ///
    /// A store calls this before it decides or peeks, so that this mistake does not let a request pass.
    #[must_use]
    pub fn deny_two_plans(rules: &RuleSet, checks: &[Self]) -> Option<Decision> {
        let is_limited = |check: &Self| {
            let plan = usize::from(check.plan());
            let counts =
                |rule: &Rule| *rule.mode() != Mode::Off && rule.quota_under(plan).has_state();
            rules.rule_of(check).is_some_and(counts)
        };
        let differ = |one: &Self, other: &Self| {
            (one.rule(), one.key()) == (other.rule(), other.key())
                && one.plan() != other.plan()
                && is_limited(one)
                && is_limited(other)
        };
        let before = |(index, check)| checks[..index].iter().any(|other| differ(other, check));
        let are_two = checks.iter().enumerate().any(before);
        are_two.then(|| Self::deny_mistake(checks))
    }

    /// The answer to checks that a store did not decide.
    #[cfg(feature = "tokio")]
    pub(crate) fn fail(checks: &[Self]) -> Decision {
        let failed = checks
            .iter()
            .map(|check| Verdict::unanswered(check.rule(), check.plan(), Outcome::Failed));
        Decision::new(0, failed, |_| true)
    }

    /// The answer to checks that are a mistake.
    pub(crate) fn deny_mistake(checks: &[Self]) -> Decision {
        let denied = checks.iter().map(|check| {
            let mut verdict = Verdict::unanswered(check.rule(), check.plan(), Outcome::Failed);
            verdict.deny_for_failure();
            verdict
        });
        Decision::new(0, denied, |_| true)
    }
}
