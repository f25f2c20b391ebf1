//! The series of `tollgate_requests_total`: decision, reason and source.

use crate::{
    algorithm::Retry,
    decision::{Outcome, Reason, Verdict},
    source::Source,
};

/// What became of a request under one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Allowed,
    Withheld,
    Degraded,
    DeniedQuota,
    DeniedNever,
    DeniedStoreFailed,
    ShadowAllowed,
    ShadowDeniedQuota,
    ShadowDeniedNever,
    Skipped,
    NoKey,
    DeniedSlots,
    DeniedQueueFull,
    DeniedWaitExpired,
}

const KINDS: [Kind; 14] = [
    Kind::Allowed,
    Kind::Withheld,
    Kind::Degraded,
    Kind::DeniedQuota,
    Kind::DeniedNever,
    Kind::DeniedStoreFailed,
    Kind::ShadowAllowed,
    Kind::ShadowDeniedQuota,
    Kind::ShadowDeniedNever,
    Kind::Skipped,
    Kind::NoKey,
    Kind::DeniedSlots,
    Kind::DeniedQueueFull,
    Kind::DeniedWaitExpired,
];
const SOURCES: [&str; 6] = ["store", "deny_cache", "lease", "local", "fallback", "none"];

/// The number of series of a plan. Below 128, so that a set of them fits in a `u128`.
pub(super) const COUNT: usize = KINDS.len() * SOURCES.len();

/// One of the series of a plan, below [`COUNT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Series(u8);

impl Kind {
    /// The kind of a verdict about an enforced rule, in a request that was allowed, or denied for a reason. `None`: nothing was decided.
    #[inline]
    pub(super) fn enforced(
        verdict: &Verdict,
        request_allowed: bool,
        reason: Option<Reason>,
    ) -> Option<Self> {
        match verdict.outcome() {
            Outcome::Allow if verdict.is_degraded() => Some(Self::Degraded),
            Outcome::Allow if request_allowed => Some(Self::Allowed),
            Outcome::Allow => Some(Self::Withheld),
            Outcome::Deny => Some(match reason {
                Some(Reason::QueueFull) => Self::DeniedQueueFull,
                Some(Reason::WaitExpired) => Self::DeniedWaitExpired,
                _ if !verdict.has_numbers() => Self::DeniedStoreFailed,
                _ if verdict.retry() == Retry::Never => Self::DeniedNever,
                _ if verdict.is_of_slots() => Self::DeniedSlots,
                _ => Self::DeniedQuota,
            }),
            Outcome::Failed | Outcome::NotDecided => None,
        }
    }

    /// The kind of a verdict about a shadow or a threshold.
    pub(super) fn reported(verdict: &Verdict) -> Option<Self> {
        match verdict.outcome() {
            Outcome::Allow => Some(Self::ShadowAllowed),
            Outcome::Deny if verdict.retry() == Retry::Never => Some(Self::ShadowDeniedNever),
            Outcome::Deny => Some(Self::ShadowDeniedQuota),
            Outcome::Failed | Outcome::NotDecided => None,
        }
    }

    const fn decision(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Withheld => "withheld",
            Self::Degraded => "degraded",
            Self::DeniedQuota
            | Self::DeniedNever
            | Self::DeniedStoreFailed
            | Self::DeniedSlots
            | Self::DeniedQueueFull
            | Self::DeniedWaitExpired
            | Self::NoKey => "denied",
            Self::ShadowAllowed => "shadow_allowed",
            Self::ShadowDeniedQuota | Self::ShadowDeniedNever => "shadow_denied",
            Self::Skipped => "skipped",
        }
    }

    const fn reason(self) -> &'static str {
        match self {
            Self::DeniedQuota | Self::ShadowDeniedQuota => "quota",
            Self::DeniedNever | Self::ShadowDeniedNever => "never",
            Self::DeniedStoreFailed | Self::Degraded => "store_failed",
            Self::NoKey => "no_key",
            Self::DeniedSlots => "slots",
            Self::DeniedQueueFull => "queue_full",
            Self::DeniedWaitExpired => "wait_expired",
            Self::Allowed | Self::Withheld | Self::ShadowAllowed | Self::Skipped => "none",
        }
    }
}

impl Series {
    #[inline]
    pub(super) fn of(kind: Kind, source: Source) -> Self {
        let source = match source {
            Source::Store => 0,
            Source::DenyCache => 1,
            Source::Lease => 2,
            Source::Local => 3,
            Source::Fallback => 4,
        };
        Self(kind as u8 * SOURCES.len() as u8 + source)
    }

    /// Without a call of the store.
    pub(super) fn without_source(kind: Kind) -> Self {
        Self(kind as u8 * SOURCES.len() as u8 + 5)
    }

    /// The series at a place below [`COUNT`].
    pub(super) fn at(place: usize) -> Self {
        Self(place as u8)
    }

    #[inline]
    pub(super) fn place(self) -> usize {
        usize::from(self.0)
    }

    fn kind(self) -> Kind {
        KINDS[self.place() / SOURCES.len()]
    }

    pub(super) fn decision(self) -> &'static str {
        self.kind().decision()
    }

    pub(super) fn reason(self) -> &'static str {
        self.kind().reason()
    }

    pub(super) fn source(self) -> &'static str {
        SOURCES[self.place() % SOURCES.len()]
    }
}

#[cfg(all(test, not(tollgate_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn each_series_has_labels_of_its_own() {
        let all: std::collections::BTreeSet<_> = (0..COUNT)
            .map(Series::at)
            .map(|series| (series.decision(), series.reason(), series.source()))
            .collect();
        assert_eq!(all.len(), COUNT);
        let denied = Series::of(Kind::DeniedNever, Source::Lease);
        let labels = (denied.decision(), denied.reason(), denied.source());
        assert_eq!(labels, ("denied", "never", "lease"));
        assert_eq!(Series::without_source(Kind::Skipped).source(), "none");
    }
}
