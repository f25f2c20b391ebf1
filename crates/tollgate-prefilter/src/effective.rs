//! The consistency that takes effect for a quota.

use tollgate_core::{Consistency, Quota, Rule};

use crate::{lease::terms::LeaseTerms, local_usage::ReportTerms};

/// The consistency that takes effect for a quota: the one of its rule, or `Exact` where that is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effective {
    /// The store decides every request; with the reason, if the rule has another consistency.
    Exact(Option<&'static str>),
    /// Processes hold leases.
    Leased(LeaseTerms),
    /// Processes count local usage and report it.
    Eventual(ReportTerms),
}

impl Effective {
    /// What takes effect for one of a rule's quotas: its own with plan number 0, or that of a plan. `exact` is the reason why
    /// the store can only count the rule exactly, if there is one.
    pub fn of(rule: &Rule, plan: usize, exact: Option<&'static str>) -> Self {
        let quota = rule.quota_of(plan);
        match exact {
            _ if !rule.is_enforced() || !quota.has_state() => Self::Exact(None),
            Some(why) if rule.consistency_of() != Consistency::Exact => Self::Exact(Some(why)),
            _ => match Self::new(quota, rule.consistency_of()) {
                // What is lent before it is there would look like a debt.
                Self::Leased(terms) if rule.debt_of() > 0 => Self::Leased(LeaseTerms {
                    schedule: None,
                    ..terms
                }),
                effective => effective,
            },
        }
    }

    /// What takes effect for a quota of a rule with this consistency.
    pub(crate) fn new(quota: &Quota, consistency: Consistency) -> Self {
        match consistency {
            Consistency::Exact => Self::Exact(None),
            Consistency::Leased { share } => match LeaseTerms::new(quota, share.as_permille()) {
                Ok(terms) => Self::Leased(terms),
                Err(why) => Self::Exact(Some(why)),
            },
            Consistency::Eventual {
                interval,
                max_unreported,
            } => match ReportTerms::new(quota, interval, max_unreported) {
                Ok(terms) => Self::Eventual(terms),
                Err(why) => Self::Exact(Some(why)),
            },
            _ => Self::Exact(Some("its consistency is not known here")),
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
            assert_eq!(why(large, consistency, store), store);
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
