//! The series of `tollgate_requests_total`: decision, reason and source.

use crate::{
    algorithm::Retry,
    decision::{Decision, Outcome, Reason, Verdict},
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
    DeniedBlocked,
    ShadowDeniedBlocked,
    Repeated,
}

/// By kind: the decision, the reason, and how the units of a request are counted, if they are.
const LABELS: [(&str, &str, Option<&str>); 17] = [
    ("allowed", "none", Some("allowed")),
    ("withheld", "none", None),
    ("degraded", "store_failed", None),
    ("denied", "quota", Some("denied")),
    ("denied", "never", Some("denied")),
    ("denied", "store_failed", Some("denied")),
    ("shadow_allowed", "none", None),
    ("shadow_denied", "quota", None),
    ("shadow_denied", "never", None),
    ("skipped", "none", None),
    ("denied", "no_key", None),
    ("denied", "slots", Some("denied")),
    ("denied", "queue_full", Some("denied")),
    ("denied", "wait_expired", Some("denied")),
    ("denied", "blocked", Some("denied")),
    ("shadow_denied", "blocked", None),
    ("repeated", "none", None),
];
const SOURCES: [&str; 7] = [
    "store",
    "deny_cache",
    "lease",
    "local",
    "fallback",
    "credits",
    "none",
];

/// The number of series of a plan.
pub(super) const COUNT: usize = LABELS.len() * SOURCES.len();

/// One of the series of a plan, below [`COUNT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Series(u8);

impl Kind {
    /// The kind of a verdict about an enforced rule. `None`: nothing was decided.
    pub(super) fn enforced(verdict: &Verdict, decision: &Decision) -> Option<Self> {
        match verdict.outcome() {
            Outcome::Allow if verdict.is_degraded() => Some(Self::Degraded),
            Outcome::Allow if decision.is_allowed() && verdict.is_repeat() => Some(Self::Repeated),
            Outcome::Allow if decision.is_allowed() => Some(Self::Allowed),
            Outcome::Allow => Some(Self::Withheld),
            Outcome::Deny => Some(match decision.reason() {
                Some(Reason::QueueFull) => Self::DeniedQueueFull,
                Some(Reason::WaitExpired) => Self::DeniedWaitExpired,
                _ if verdict.is_blocked() => Self::DeniedBlocked,
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
            Outcome::Deny if verdict.is_blocked() => Some(Self::ShadowDeniedBlocked),
            Outcome::Deny if verdict.retry() == Retry::Never => Some(Self::ShadowDeniedNever),
            Outcome::Deny => Some(Self::ShadowDeniedQuota),
            Outcome::Failed | Outcome::NotDecided => None,
        }
    }
}

impl Series {
    pub(super) fn of(kind: Kind, source: Source) -> Self {
        let source = match source {
            Source::Store => 0,
            Source::DenyCache => 1,
            Source::Lease => 2,
            Source::Local => 3,
            Source::Fallback => 4,
            Source::Credits => 5,
        };
        Self(kind as u8 * SOURCES.len() as u8 + source)
    }

    /// Without a call of the store.
    pub(super) fn without_source(kind: Kind) -> Self {
        Self(kind as u8 * SOURCES.len() as u8 + 6)
    }

    pub(super) fn place(self) -> usize {
        usize::from(self.0)
    }

    fn labels(self) -> (&'static str, &'static str, Option<&'static str>) {
        LABELS[self.place() / SOURCES.len()]
    }

    pub(super) fn decision(self) -> &'static str {
        self.labels().0
    }

    pub(super) fn reason(self) -> &'static str {
        self.labels().1
    }

    /// Whether its requests have used their units, or were denied them.
    pub(super) fn units_decision(self) -> Option<&'static str> {
        self.labels().2
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
            .map(|place| Series(place as u8))
            .map(|series| (series.decision(), series.reason(), series.source()))
            .collect();
        assert_eq!(all.len(), COUNT);
        let denied = Series::of(Kind::DeniedNever, Source::Lease);
        let labels = (denied.decision(), denied.reason(), denied.source());
        assert_eq!(labels, ("denied", "never", "lease"));
        assert_eq!(Series::without_source(Kind::Skipped).source(), "none");
    }
}
