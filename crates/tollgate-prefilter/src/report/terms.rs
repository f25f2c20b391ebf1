//! The terms of a quota's reports.

use std::{error::Error, fmt, time::Duration};

use tollgate_core::{AlgorithmKind, Quota, Tick};

/// How often a process reports, and how many units it may admit before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportTerms {
    interval: Tick,
    max_unreported: u64,
}

/// Why a quota cannot be counted alone. Its rule is [`Exact`](tollgate_core::Consistency::Exact) then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoReports {
    /// Its algorithm does not take more than the limit: a log.
    Algorithm,
    /// `max_unreported` is 0: every unit would have to be reported before it is admitted.
    Nothing,
    /// `max_unreported` is above the limit.
    TooMany,
}

impl ReportTerms {
    /// The terms of a quota.
    ///
    /// # Errors
    ///
    /// The quota cannot be counted alone, or not with so many units.
    pub fn new(quota: &Quota, interval: Duration, max_unreported: u64) -> Result<Self, NoReports> {
        if matches!(
            quota.algorithm(),
            AlgorithmKind::SlidingLog | AlgorithmKind::Unlimited
        ) {
            return Err(NoReports::Algorithm);
        }
        if max_unreported == 0 {
            return Err(NoReports::Nothing);
        }
        if max_unreported > quota.limit() {
            return Err(NoReports::TooMany);
        }
        Ok(Self {
            interval: u64::try_from(interval.as_micros()).unwrap_or(u64::MAX),
            max_unreported,
        })
    }

    /// How often a process reports, in µs.
    #[must_use]
    pub const fn interval(&self) -> Tick {
        self.interval
    }

    /// The most units that a process has admitted and not reported.
    #[must_use]
    pub const fn max_unreported(&self) -> u64 {
        self.max_unreported
    }
}

impl fmt::Display for NoReports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Algorithm => "a log never holds more than its limit, and cannot be told of more",
            Self::Nothing => "with no unreported units, every unit is asked for",
            Self::TooMany => "more unreported units than the limit are no limit",
        })
    }
}

impl Error for NoReports {}
