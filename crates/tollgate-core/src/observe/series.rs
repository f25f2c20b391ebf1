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
/// The sources, and none: of requests that were not checked.
const SOURCES: usize = 7;
/// How many series there may be.
pub(super) const COUNT: usize = LABELS.len() * SOURCES;

/// A kind with a source, if the request was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Series {
    pub(super) kind: Kind,
    pub(super) source: Option<Source>,
}

impl Kind {
    /// The kind of a verdict about an enforced rule, which may let requests `wait`. `None`: nothing was decided.
    pub(super) fn enforced(verdict: &Verdict, decision: &Decision, waits: bool) -> Option<Self> {
        let turned_away = match decision.reason() {
            Some(Reason::QueueFull) => Some(Self::DeniedQueueFull),
            Some(Reason::WaitExpired) => Some(Self::DeniedWaitExpired),
            _ => None,
        };
        match verdict.outcome() {
            // Its queue has denied the request, whatever fits by now, and whether the store answers.
            Outcome::Allow | Outcome::Failed if waits && turned_away.is_some() => turned_away,
            Outcome::Allow if !decision.is_allowed() => Some(Self::Withheld),
            Outcome::Allow if verdict.is_degraded() => Some(Self::Degraded),
            Outcome::Allow if verdict.is_repeat() => Some(Self::Repeated),
            Outcome::Allow => Some(Self::Allowed),
            Outcome::Deny if turned_away.is_some() => turned_away,
            Outcome::Deny => Some(match verdict.retry() {
                _ if verdict.is_blocked() => Self::DeniedBlocked,
                _ if !verdict.has_numbers() => Self::DeniedStoreFailed,
                Retry::Never => Self::DeniedNever,
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
    pub(super) fn place(self) -> usize {
        self.kind as usize * SOURCES + self.source.map_or(SOURCES - 1, |source| source as usize)
    }

    pub(super) fn decision(self) -> &'static str {
        LABELS[self.kind as usize].0
    }

    pub(super) fn reason(self) -> &'static str {
        LABELS[self.kind as usize].1
    }

    /// Whether its requests have used their units, or were denied them.
    pub(super) fn units_decision(self) -> Option<&'static str> {
        LABELS[self.kind as usize].2
    }

    pub(super) fn source(self) -> &'static str {
        self.source.map_or("none", Source::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::Assessment;

    #[test]
    fn a_request_that_a_queue_turned_away_is_denied_by_the_rule_that_waits_whatever_it_says() {
        let fits = Assessment::new(true, 3, 0, Retry::Now);
        let fits = Verdict::new(0, 0, fits, Source::Store);
        let failed = Verdict::unanswered(0, 0, Outcome::Failed);
        for (reason, kind) in [
            (Reason::QueueFull, Kind::DeniedQueueFull),
            (Reason::WaitExpired, Kind::DeniedWaitExpired),
        ] {
            for (verdict, of_other) in [(fits, Some(Kind::Withheld)), (failed, None)] {
                let denied = Decision::new(1, [verdict], |_| true).denied_for(reason);
                assert_eq!(Kind::enforced(&verdict, &denied, true), Some(kind));
                assert_eq!(Kind::enforced(&verdict, &denied, false), of_other);
            }
        }
    }

    #[test]
    fn each_series_has_labels_of_its_own() {
        let labels = LABELS.map(|(decision, reason, _)| (decision, reason));
        let all: std::collections::BTreeSet<_> = labels.into_iter().collect();
        assert_eq!(all.len(), LABELS.len());
        let (kind, lease) = (Kind::DeniedNever, Some(Source::Lease));
        let denied = Series {
            kind,
            source: lease,
        };
        let labels = (denied.decision(), denied.reason(), denied.source());
        assert_eq!(labels, ("denied", "never", "lease"));
        let last = Series {
            kind: Kind::Repeated,
            source: None,
        };
        assert_eq!((last.source(), last.place()), ("none", COUNT - 1));
    }
}
