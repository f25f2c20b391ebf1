//! A denial.

use std::time::Duration;

use http::StatusCode;
use tollgate_core::{Decision, Outcome, Reason, Retry, RuleSet, Verdict};

use crate::{head::Head, key::NoKey};

/// A denial, from which [`Rejection::custom`](crate::Rejection::custom) makes a response.
pub struct Denial<'a> {
    pub(crate) head: Head<'a>,
    pub(crate) decision: &'a Decision,
    pub(crate) rules: &'a RuleSet,
    pub(crate) no_key: Option<&'a NoKey>,
    /// The retry time that the client gets, with jitter.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) reason: Reason,
    pub(crate) status: StatusCode,
    /// Whether everything is hidden but the retry time.
    pub(crate) hide_quota: bool,
    /// Whether the request had a cost of its own.
    pub(crate) in_units: bool,
}

impl<'a> Denial<'a> {
    /// A denial by the decision. `status` is for exceeded quotas; a store failure is a 503.
    pub(crate) fn new(
        head: Head<'a>,
        decision: &'a Decision,
        rules: &'a RuleSet,
        status: StatusCode,
    ) -> Self {
        // A denial has a reason, unless its store failed and no fallback applied.
        let reason = decision.reason().unwrap_or(Reason::StoreFailed);
        Self {
            head,
            decision,
            rules,
            no_key: None,
            retry_after: decision.retry_after(),
            reason,
            status: match reason {
                Reason::StoreFailed => StatusCode::SERVICE_UNAVAILABLE,
                _ => status,
            },
            hide_quota: false,
            in_units: false,
        }
    }

    /// The request's head.
    #[must_use]
    pub fn head(&self) -> Head<'a> {
        self.head
    }

    /// The decision. It has no verdicts if there is [no key](Self::no_key).
    pub fn decision(&self) -> &'a Decision {
        self.decision
    }

    /// The rules in force, in which the verdicts' rules are found.
    #[must_use]
    pub fn rules(&self) -> &'a RuleSet {
        self.rules
    }

    /// Why the request was denied.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The same, as far as a client may know it: with a hidden quota, no slots, queues, blocks and keys.
    pub(super) fn shown_reason(&self) -> Option<Reason> {
        if !self.hide_quota {
            return Some(self.reason);
        }
        match self.reason {
            Reason::Slots | Reason::QueueFull | Reason::WaitExpired => Some(Reason::Quota),
            Reason::Blocked | Reason::NoKey => None,
            reason => Some(reason),
        }
    }

    /// When the same request would pass, exactly.
    #[must_use]
    pub fn retry(&self) -> Retry {
        self.decision.retry()
    }

    /// The retry time that the client gets: [`retry`](Self::retry) plus the layer's jitter. `None` if no wait helps, or if it is
    /// not known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The names of the rules whose quota the request exceeds. Empty if the store or a look-up failed, or if there is no key.
    pub fn violated(&self) -> impl Iterator<Item = &'a str> {
        let rules = self.rules;
        self.exceeded()
            .filter_map(move |verdict| Some(rules.rules().get(verdict.rule())?.name()))
    }

    /// The status that a response should have.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Why there is no key, if that is the reason.
    #[must_use]
    pub fn no_key(&self) -> Option<&'a NoKey> {
        self.no_key
    }

    /// Whether the response should contain only the retry time: no rule names, limits or remaining units. See
    /// [`RateLimitLayer::hide_quota`](crate::RateLimitLayer::hide_quota).
    #[must_use]
    pub fn hides_quota(&self) -> bool {
        self.hide_quota
    }

    /// The rule and the plan of the only quota that the request exceeds, if it costs what others do: all denials by it have one body,
    /// but for the retry time.
    pub(super) fn only_quota(&self) -> Option<(usize, usize)> {
        let mut exceeded = self.exceeded();
        let only = exceeded.next().filter(|_| exceeded.next().is_none())?;
        let is_usual = match self.reason {
            Reason::Quota => !only.is_of_slots(),
            Reason::Slots => only.is_of_slots(),
            _ => false,
        };
        (is_usual && !self.in_units && !self.hide_quota).then(|| (only.rule(), only.plan()))
    }

    pub(super) fn exceeded(&self) -> impl Iterator<Item = &'a Verdict> {
        let rules = self.rules;
        self.decision.verdicts().iter().filter(move |verdict| {
            verdict.outcome() == Outcome::Deny
                && verdict.has_numbers()
                && rules.enforces(verdict.rule())
        })
    }
}

// Without the head, which identifies the client.
tollgate_core::debug_fields!(Denial<'a>, it => reason: it.reason, status: it.status, decision: it.decision);
