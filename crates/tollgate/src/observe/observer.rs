//! The one place that is told what happened.

use tollgate_core::{BoundStore, Check, Decision, RuleSet, UnknownName};

#[cfg(feature = "metrics")]
use crate::observe::meters::Meters;
use crate::observe::{events::Events, timer::Timer};

/// Tells metrics and events what happened. Without the features it is empty, and so are its calls.
#[derive(Debug)]
pub(crate) struct Observer {
    events: Events,
    #[cfg(feature = "metrics")]
    meters: Meters,
}

impl Observer {
    pub(crate) fn new(rules: &RuleSet) -> Self {
        Self {
            events: Events::new(rules),
            #[cfg(feature = "metrics")]
            meters: Meters::new(rules),
        }
    }

    /// A request was decided by asking a store.
    #[inline]
    pub(crate) fn decided(
        &self,
        bound: &dyn BoundStore,
        checks: &[Check],
        decision: &Decision,
        timer: Timer,
    ) {
        #[cfg(feature = "metrics")]
        self.meters.decided(bound, checks, decision, timer);
        #[cfg(not(feature = "metrics"))]
        let _ = (bound, checks, timer);
        self.events.decided(decision);
    }

    /// A rule did not apply to a request: exempt, unlimited, or without a key.
    #[inline]
    pub(crate) fn skipped(&self, rule: u16) {
        #[cfg(feature = "metrics")]
        self.meters.skipped(rule);
        #[cfg(not(feature = "metrics"))]
        let _ = rule;
    }

    /// A CORS preflight passed uncounted.
    #[inline]
    pub(crate) fn preflight(&self) {
        #[cfg(feature = "metrics")]
        self.meters.preflight();
    }

    /// A rule rejected a request that has no key.
    pub(crate) fn no_key(&self, rule: u16) {
        #[cfg(feature = "metrics")]
        self.meters.no_key(rule);
        self.events.no_key(rule);
    }

    /// A rule's extractor cannot work the way the service is set up.
    pub(crate) fn misconfigured(&self, rule: u16, what: &str) {
        #[cfg(feature = "metrics")]
        self.meters.misconfigured(rule);
        self.events.misconfigured(rule, what);
    }

    /// A handler asked for a rule that there is not.
    pub(crate) fn wrong_name(&self, unknown: &UnknownName) {
        self.events.wrong_name(unknown);
    }
}
