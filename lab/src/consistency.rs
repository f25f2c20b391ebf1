//! What the processes may answer alone.

use std::{fmt, str::FromStr, time::Duration};

use tollgate_core::{
    AlgorithmKind, Quota, Tick,
    algorithm::{Algorithm, Gcra},
};
use tollgate_prefilter::{LeaseTerms, ReportTerms};

use crate::workload::Scene;

/// How the processes of one run share a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// The store decides each request.
    Exact,
    /// The same, but what the store's last answer already refuses is refused alone.
    DenyCache,
    /// Leases, with so many thousandths of the limit out at most, and the learned bound.
    Leased(u16),
    /// Counts alone and reports every 100 ms; a twentieth of the limit unreported at most.
    Eventual,
}

impl Consistency {
    /// All that are compared.
    pub const ALL: [Self; 6] = [
        Self::Exact,
        Self::DenyCache,
        Self::Leased(50),
        Self::Leased(100),
        Self::Leased(250),
        Self::Eventual,
    ];

    /// Whether it must never let through more than the limit.
    #[must_use]
    pub const fn is_strict(self) -> bool {
        matches!(self, Self::Exact | Self::DenyCache | Self::Leased(_))
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact => f.pad("exact"),
            Self::DenyCache => f.pad("deny-cache"),
            Self::Leased(permille) if permille % 10 == 0 => {
                f.pad(&format!("leased-{}", permille / 10))
            }
            Self::Leased(permille) => f.pad(&format!("leased-{}.{}", permille / 10, permille % 10)),
            Self::Eventual => f.pad("eventual"),
        }
    }
}

impl FromStr for Consistency {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if let Some(percent) = name.strip_prefix("leased-")
            && let Ok(percent @ 1..=100) = percent.parse::<u16>()
        {
            return Ok(Self::Leased(percent * 10));
        }
        Self::ALL
            .into_iter()
            .find(|one| one.to_string() == name)
            .ok_or_else(|| {
                format!("`{name}` is no consistency; there are exact, deny-cache, leased-<percent> and eventual")
            })
    }
}

/// How often reports are sent, in µs.
pub(crate) const INTERVAL: Tick = 100_000;

/// A quota, with what a consistency makes of it.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) quota: Quota,
    /// `None` also where the quota has no lease: it is exact then.
    pub(crate) lease: Option<LeaseTerms>,
    pub(crate) report: Option<ReportTerms>,
}

impl Terms {
    /// `None` if the consistency is not simulated for the quota.
    pub(crate) fn new(scene: &Scene, consistency: Consistency) -> Option<Self> {
        let is_window = matches!(
            scene.quota.algorithm(),
            AlgorithmKind::FixedWindow | AlgorithmKind::SlidingWindow
        );
        let of_windows = matches!(consistency, Consistency::Exact | Consistency::Leased(_));
        let is_bucket = Gcra::new(&scene.quota).is_some();
        if !(is_bucket || is_window && of_windows) {
            return None;
        }
        let quota = &scene.quota;
        Some(Self {
            quota: *quota,
            lease: match consistency {
                Consistency::Leased(permille) => LeaseTerms::new(quota, permille).ok(),
                _ => None,
            },
            report: match consistency {
                Consistency::Eventual => {
                    let interval = Duration::from_micros(INTERVAL);
                    ReportTerms::new(quota, interval, (quota.limit() / 20).max(1)).ok()
                }
                _ => None,
            },
        })
    }
}
