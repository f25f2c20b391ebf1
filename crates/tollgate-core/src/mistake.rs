//! The answers to checks that are a mistake, and to checks that no store decided.

use crate::{
    check::Check,
    decision::{Decision, Outcome, Verdict},
    rule::Mode,
    rule_set::RuleSet,
};

impl Check {
    /// The denial of a request that checks one rule and key under two plans. They share a state, but each has its own limit,
    /// and neither applies to the sum of their costs. `None` if no checks do; plans without a limit do not count.
    ///
    /// A store calls this before it decides or peeks, so that this mistake does not let a request pass.
    #[must_use]
    pub fn deny_two_plans(rules: &RuleSet, checks: &[Self]) -> Option<Decision> {
        let same =
            |one: &Self, other: &Self| one.rule() == other.rule() && one.key() == other.key();
        let is_limited = |check: &Self| {
            let rule = rules.rules().get(usize::from(check.rule()));
            rule.is_some_and(|rule| {
                *rule.mode() != Mode::Off && rule.quota_under(usize::from(check.plan())).has_state()
            })
        };
        let differs = |(index, check): (usize, &Self)| {
            let mut before = checks[..index].iter();
            before.any(|other| {
                same(other, check)
                    && other.plan() != check.plan()
                    && is_limited(other)
                    && is_limited(check)
            })
        };
        let mut indices = checks.iter().enumerate();
        indices.any(differs).then(|| Self::deny_mistake(checks))
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
