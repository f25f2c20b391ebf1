//! The consistency that takes effect for a quota.

use std::fmt;

use tollgate_core::{Consistency, Quota, Rule, RuleSet};

use crate::{
    lease::terms::{LeaseTerms, NoLease},
    report::terms::{NoReports, ReportTerms},
};

/// The consistency that takes effect for a quota: the one of its rule, or `Exact` where that is not possible.
///
/// ```
/// use tollgate_core::{Consistency, MINUTE, Quota};
/// use tollgate_prefilter::Effective;
///
/// let leased = Consistency::Leased { share: tollgate_core::LeaseShare::permille(100) };
/// assert!(matches!(Effective::new(&Quota::gcra(6_000, MINUTE), leased), Effective::Leased(_)));
/// let log = Effective::new(&Quota::sliding_log(100, MINUTE), leased);
/// let Effective::Exact(Some(why)) = log else { panic!("a log is exact") };
/// assert!(why.to_string().contains("its algorithm has no lease"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effective {
    /// The store decides every request; with the reason, if the rule has another consistency.
    Exact(Option<DowngradeReason>),
    /// Processes hold leases.
    Leased(LeaseTerms),
    /// Processes count local usage and report it.
    Eventual(ReportTerms),
}

/// Why a rule is `Exact` although its consistency is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DowngradeReason {
    /// The quota cannot be leased.
    NoLease(NoLease),
    /// The quota cannot be counted locally.
    NoReports(NoReports),
    /// The store cannot do it for this rule, for this reason.
    Store(&'static str),
    /// This version does not know the consistency.
    Unknown,
}

impl Effective {
    /// What takes effect for one of a rule's quotas: its own with plan number 0, or that of a plan. `exact` is the reason why
    /// the store can only count the rule exactly, if there is one.
    #[must_use]
    pub fn of(rule: &Rule, plan: usize, exact: Option<&'static str>) -> Self {
        let quota = rule.quota_of(plan);
        match exact {
            _ if !rule.is_enforced() || quota.is_unlimited() => Self::Exact(None),
            Some(why) if rule.consistency_of() != Consistency::Exact => {
                Self::Exact(Some(DowngradeReason::Store(why)))
            }
            _ => Self::new(quota, rule.consistency_of()),
        }
    }

    /// The same for a rule of a rule set, by index. `None`: the rule is not enforced there, or the quota has no limit.
    #[must_use]
    pub fn in_rule_set(
        rules: &RuleSet,
        index: usize,
        plan: usize,
        exact: Option<&'static str>,
    ) -> Option<Self> {
        let rule = rules.rules().get(index)?;
        let is_limited = rules.enforces(index) && !rule.quota_of(plan).is_unlimited();
        is_limited.then(|| Self::of(rule, plan, exact))
    }

    /// What takes effect for a quota of a rule with this consistency.
    #[must_use]
    pub fn new(quota: &Quota, consistency: Consistency) -> Self {
        match consistency {
            Consistency::Exact => Self::Exact(None),
            Consistency::Leased { share } => match LeaseTerms::new(quota, share.as_permille()) {
                Ok(terms) => Self::Leased(terms),
                Err(why) => Self::Exact(Some(DowngradeReason::NoLease(why))),
            },
            Consistency::Eventual {
                interval,
                max_unreported,
            } => match ReportTerms::new(quota, interval, max_unreported) {
                Ok(terms) => Self::Eventual(terms),
                Err(why) => Self::Exact(Some(DowngradeReason::NoReports(why))),
            },
            _ => Self::Exact(Some(DowngradeReason::Unknown)),
        }
    }
}

impl fmt::Display for DowngradeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLease(why) => why.fmt(f),
            Self::NoReports(why) => why.fmt(f),
            Self::Store(why) => f.write_str(why),
            Self::Unknown => f.write_str("its consistency is not known here"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollgate_core::{LeaseShare, MINUTE};

    use super::*;

    #[test]
    fn a_rule_that_is_exact_against_its_consistency_says_why() {
        let leased = Consistency::Leased {
            share: LeaseShare::percent(10),
        };
        let eventual = Consistency::Eventual {
            interval: Duration::from_millis(100),
            max_unreported: 10,
        };
        let why = |quota, consistency, store| {
            let rule = Rule::new("rule", quota).consistency(consistency);
            match Effective::of(&rule, 0, store) {
                Effective::Exact(why) => why,
                other => panic!("it is not exact: {other:?}"),
            }
        };
        let (log, large) = (Quota::sliding_log(100, MINUTE), Quota::gcra(6_000, MINUTE));
        let store = Some("the store says so");
        for consistency in [leased, eventual] {
            let reason = why(large, consistency, store).expect("there is a reason");
            assert_eq!(reason.to_string(), "the store says so");
            for quota in [log, Quota::concurrent(100)] {
                assert!(why(quota, consistency, None).is_some());
            }
        }
        // A rule that is exact anyway has no reason, and neither has one that is not enforced.
        assert_eq!(why(large, Consistency::Exact, store), None);
        let shadow = Rule::new("rule", large).consistency(leased).shadow();
        assert_eq!(Effective::of(&shadow, 0, store), Effective::Exact(None));
    }
}
