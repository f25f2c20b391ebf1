//! The series of `tollgate_requests_total`: decision, reason and source.

use crate::{
    algorithm::Retry,
    decision::{Decision, Outcome, Reason, Verdict},
    hold::Source,
};

/// What became of a request under one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Allowed,
    Withheld,
    Degraded,
    Repeated,
    Skipped,
    ShadowAllowed,
    Denied(Reason),
    ShadowDenied(Reason),
}

/// A kind with a source, if the request was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Series {
    pub(super) kind: Kind,
    pub(super) source: Option<Source>,
}

impl Kind {
    /// The kind of a verdict about an enforced rule, which may let requests `wait`. `None`: nothing was decided.
    pub(super) fn enforced(verdict: &Verdict, decision: &Decision, waits: bool) -> Option<Self> {
        let of_queue = |it: &Reason| matches!(it, Reason::QueueFull | Reason::WaitExpired);
        let turned_away = decision.reason().filter(of_queue).map(Self::Denied);
        match verdict.outcome() {
            // Its queue has denied the request, whatever fits by now, and whether the store answers.
            Outcome::Allow | Outcome::Failed if waits && turned_away.is_some() => turned_away,
            Outcome::Allow if !decision.is_allowed() => Some(Self::Withheld),
            Outcome::Allow if verdict.is_degraded() => Some(Self::Degraded),
            Outcome::Allow if verdict.is_repeat() => Some(Self::Repeated),
            Outcome::Allow => Some(Self::Allowed),
            Outcome::Deny if turned_away.is_some() => turned_away,
            Outcome::Deny => Some(Self::Denied(match verdict.retry() {
                _ if verdict.is_blocked() => Reason::Blocked,
                _ if !verdict.has_numbers() => Reason::StoreFailed,
                Retry::Never => Reason::Never,
                _ if verdict.is_of_slots() => Reason::Slots,
                _ => Reason::Quota,
            })),
            Outcome::Failed | Outcome::NotDecided => None,
        }
    }

    /// The kind of a verdict about a shadow or a threshold.
    pub(super) fn reported(verdict: &Verdict) -> Option<Self> {
        match verdict.outcome() {
            Outcome::Allow => Some(Self::ShadowAllowed),
            Outcome::Deny => Some(Self::ShadowDenied(match verdict.retry() {
                _ if verdict.is_blocked() => Reason::Blocked,
                Retry::Never => Reason::Never,
                _ => Reason::Quota,
            })),
            Outcome::Failed | Outcome::NotDecided => None,
        }
    }
}

impl Series {
    /// The decision, the reason and the source.
    pub(super) fn labels(self) -> [&'static str; 3] {
        let (decision, reason) = match self.kind {
            Kind::Allowed => ("allowed", "none"),
            Kind::Withheld => ("withheld", "none"),
            Kind::Degraded => ("degraded", "store_failed"),
            Kind::Repeated => ("repeated", "none"),
            Kind::Skipped => ("skipped", "none"),
            Kind::ShadowAllowed => ("shadow_allowed", "none"),
            Kind::Denied(reason) => ("denied", reason.as_str()),
            Kind::ShadowDenied(reason) => ("shadow_denied", reason.as_str()),
        };
        [decision, reason, self.source.map_or("none", Source::as_str)]
    }

    /// Whether its requests have used their units, or were denied them.
    pub(super) fn counts_units(self) -> bool {
        matches!(self.kind, Kind::Allowed | Kind::Denied(_))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::algorithm::Assessment;

    #[test]
    fn a_request_that_a_queue_turned_away_is_denied_by_the_rule_that_waits_whatever_it_says() {
        let answer = Assessment::new(true, 3, 0, Retry::Now);
        let fits = Verdict::new(0, 0, answer, Source::Store);
        let failed = Verdict::unanswered(0, 0, Outcome::Failed);
        for reason in [Reason::QueueFull, Reason::WaitExpired] {
            let kind = Kind::Denied(reason);
            for (verdict, of_other) in [(fits, Some(Kind::Withheld)), (failed, None)] {
                let denied = Decision::new(1, [verdict], |_| true).denied_for(reason);
                assert_eq!(Kind::enforced(&verdict, &denied, true), Some(kind));
                assert_eq!(Kind::enforced(&verdict, &denied, false), of_other);
            }
        }
    }

    #[test]
    fn each_series_has_labels_of_its_own() {
        use Reason::{Blocked, Never, NoKey, QueueFull, Quota, Slots, StoreFailed, WaitExpired};
        let reasons = [
            Quota,
            Never,
            StoreFailed,
            NoKey,
            Slots,
            QueueFull,
            Blocked,
            WaitExpired,
        ];
        let plain = [
            Kind::Allowed,
            Kind::Withheld,
            Kind::Degraded,
            Kind::Repeated,
            Kind::Skipped,
            Kind::ShadowAllowed,
        ];
        let denied = reasons.map(Kind::Denied).into_iter();
        let shadows = [Quota, Never, Blocked].map(Kind::ShadowDenied);
        let kinds = denied.chain(shadows).chain(plain);
        let series = kinds.flat_map(|kind| {
            [None, Some(Source::Store), Some(Source::Credits)].map(|source| Series { kind, source })
        });
        let series: Vec<Series> = series.collect();
        let labels: BTreeSet<_> = series.iter().map(|it| it.labels()).collect();
        assert_eq!(labels.len(), series.len());
        let (kind, source) = (Kind::Denied(Never), Some(Source::Lease));
        let labels = Series { kind, source }.labels();
        assert_eq!(labels, ["denied", "never", "lease"]);
    }
}
