//! What of a rule's consistency its quota can have.

use std::fmt;

use tollgate_core::{Consistency, Quota};

use crate::{
    lease::terms::{LeaseTerms, NoLease},
    report::terms::{NoReports, ReportTerms},
};

/// How a quota is counted by the processes that share it: what its rule asked for, or exactly where it cannot have that.
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
    /// Every unit is decided by the store; with the reason, where the rule asked for something else.
    Exact(Option<DowngradeReason>),
    /// Processes take leases in advance.
    Leased(LeaseTerms),
    /// Processes count alone and report.
    Eventual(ReportTerms),
}

/// Why a rule is counted exactly although it asked for something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DowngradeReason {
    /// It cannot be granted.
    NoLease(NoLease),
    /// It cannot be counted alone.
    NoReports(NoReports),
    /// The store cannot do it for this rule, for this reason.
    Store(&'static str),
    /// This version does not know the consistency.
    Unknown,
}

impl Effective {
    /// What a quota of a rule with this consistency can have.
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
