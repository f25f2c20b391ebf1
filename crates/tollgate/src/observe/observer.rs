//! The one place that is told what happened.

use tollgate_core::{Check, Decision, RuleSet, RuleStore, UnknownName};

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
        bound: &dyn RuleStore,
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

    /// A rule has found the key of a request.
    #[inline]
    pub(crate) fn keyed(&self, rule: u16) {
        self.events.keyed(rule);
    }

    /// A rule has found no key, whatever it does then: `outcome` says it in words.
    pub(crate) fn keyless(&self, rule: u16, outcome: &str) {
        #[cfg(feature = "metrics")]
        self.meters.keyless(rule);
        self.events.keyless(rule, outcome);
    }

    /// A key was not looked up; `outcome` says in words what the rule does then.
    pub(crate) fn look_up_failed(&self, rule: u16, outcome: &str) {
        #[cfg(feature = "metrics")]
        self.meters.look_up_failed(rule);
        self.events.look_up_failed(rule, outcome);
    }

    /// A rule rejected a request whose key was not looked up.
    pub(crate) fn look_up_refused(&self, rule: u16) {
        #[cfg(feature = "metrics")]
        self.meters.error_denied(rule);
        self.events.no_key(rule);
    }

    /// A request names a plan that its rule does not have.
    #[cold]
    pub(crate) fn unknown_plan(&self, rule: u16, unknown: impl FnOnce() -> UnknownName) {
        self.events.unknown_plan(rule, unknown);
    }

    /// A request has a computed cost that never fits.
    #[cold]
    pub(crate) fn cost_above_limit(&self, rule: u16, cost: u64, limit: u64) {
        self.events.cost_above_limit(rule, cost, limit);
    }

    /// A request was counted by one layer twice.
    #[cold]
    pub(crate) fn applied_twice(&self) {
        self.events.applied_twice();
    }

    /// What a rule had taken of a request was given back, because the service did not serve it.
    pub(crate) fn given_back(&self, rule: u16) {
        #[cfg(feature = "metrics")]
        self.meters.given_back(rule);
        #[cfg(not(feature = "metrics"))]
        let _ = rule;
    }

    /// A handler asked for a rule that there is not.
    pub(crate) fn wrong_name(&self, unknown: &UnknownName) {
        self.events.wrong_name(unknown);
    }
}
