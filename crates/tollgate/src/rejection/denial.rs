//! A denial, as a rejection sees it.

use std::{fmt, time::Duration};

use http::{StatusCode, request::Parts};
use tollgate_core::{Decision, Outcome, Reason, Retry, RuleSet, Verdict};

use crate::key::NoKey;

/// A denial: what [`Rejection::custom`](crate::rejection::Rejection::custom) makes a response from.
pub struct Denial<'a> {
    head: &'a Parts,
    decision: &'a Decision,
    rules: &'a RuleSet,
    no_key: Option<&'a NoKey>,
    retry_after: Option<Duration>,
    reason: Reason,
    status: StatusCode,
    hide_quota: bool,
}

impl<'a> Denial<'a> {
    /// A denial by the decision. `status` is for used up quotas; a store failure is a 503.
    pub(crate) fn new(
        head: &'a Parts,
        decision: &'a Decision,
        rules: &'a RuleSet,
        status: StatusCode,
    ) -> Self {
        // A decision that denies has a reason; one whose store failed and was not resolved has this one.
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
        }
    }

    /// A denial because a rule found no key, with the status that the rule gives. `decision` is what there is of one.
    pub(crate) fn without_key(
        head: &'a Parts,
        decision: &'a Decision,
        rules: &'a RuleSet,
        status: StatusCode,
        why: &'a NoKey,
    ) -> Self {
        Self {
            head,
            decision,
            rules,
            no_key: Some(why),
            retry_after: None,
            // One that was not looked up is no fault of the client's.
            reason: match why {
                NoKey::LookUpFailed => Reason::StoreFailed,
                _ => Reason::NoKey,
            },
            status,
            hide_quota: false,
        }
    }

    /// Tells the client to wait for so long, jitter included.
    pub(crate) fn with_delay(mut self, delay: Option<Duration>) -> Self {
        self.retry_after = delay;
        self
    }

    /// Says no more than the wait.
    pub(crate) fn hide_quota(mut self, hide: bool) -> Self {
        self.hide_quota = hide;
        self
    }

    /// The request's head.
    #[must_use]
    pub fn head(&self) -> &'a Parts {
        self.head
    }

    /// The decision. Where there is [no key](Self::no_key) nothing was decided, and it has no verdicts.
    #[must_use]
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

    /// When the same request would pass, exactly.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self.reason {
            _ if self.no_key.is_some() => Retry::Unknown,
            _ => self.decision.retry(),
        }
    }

    /// The wait that the client is told: [`retry`](Self::retry), longer by the jitter that the layer was asked for.
    /// `None` where no wait helps, or none is known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The names of the rules whose quota the request exceeds: the ones to blame. None if the store or a look-up failed, or
    /// there is no key.
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

    /// Whether the response should say no more than the wait: no names, no limits, nothing about what is left.
    #[must_use]
    pub fn hides_quota(&self) -> bool {
        self.hide_quota
    }

    pub(super) fn exceeded(&self) -> impl Iterator<Item = &'a Verdict> {
        let (rules, counted) = (self.rules, self.no_key.is_none());
        self.decision.verdicts().iter().filter(move |verdict| {
            counted
                && verdict.outcome() == Outcome::Deny
                && verdict.has_numbers()
                && rules.enforces(verdict.rule())
        })
    }
}

impl fmt::Debug for Denial<'_> {
    /// Leaves out the head, which identifies the client.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Denial")
            .field("reason", &self.reason)
            .field("status", &self.status)
            .field("retry_after", &self.retry_after)
            .field("hide_quota", &self.hide_quota)
            .field("decision", &self.decision)
            .finish_non_exhaustive()
    }
}
