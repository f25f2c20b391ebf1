//! What a layer reports in addition to its limiter.

use std::sync::Arc;

use tollgate_core::{RuleError, UnknownName, layer::LayerLimiter, observe};

use crate::observe::events::Events;
#[cfg(feature = "metrics")]
use crate::observe::meters::Meters;

/// Reports what only the layer knows: requests that no rule checks, and mistakes of the set-up. Decisions are reported by the
/// limiter.
#[derive(Debug)]
pub(crate) struct Observer {
    of_limiter: Arc<observe::Observer>,
    events: Events,
    #[cfg(feature = "metrics")]
    meters: Meters,
}

impl Observer {
    /// What was reported once of rules with the same names `before` is not reported again.
    pub(crate) fn new(limiter: &LayerLimiter, before: Option<&Self>) -> Self {
        let rules = limiter.rules();
        Self {
            of_limiter: Arc::clone(limiter.observer()),
            events: Events::new(rules, before.map(|before| &before.events)),
            #[cfg(feature = "metrics")]
            meters: Meters::new(rules, before.map(|before| &before.meters)),
        }
    }

    /// A rule did not apply to a request: exempt, unlimited, or without a key.
    #[inline]
    pub(crate) fn skipped(&self, rule: u16) {
        self.of_limiter.skipped(rule);
    }

    /// A CORS preflight passed uncounted.
    #[inline]
    pub(crate) fn preflight(&self) {
        #[cfg(feature = "metrics")]
        self.meters.preflight();
    }

    /// A rule rejected a request that has no key.
    pub(crate) fn no_key(&self, rule: u16) {
        self.of_limiter.no_key(rule);
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
        #[cfg(feature = "metrics")]
        self.meters.begin(rule);
        self.events.keyed(rule);
    }

    /// A rule found no key. `outcome` describes what the rule does then.
    pub(crate) fn keyless(&self, rule: u16, outcome: &str) {
        #[cfg(feature = "metrics")]
        self.meters.keyless(rule);
        self.events.keyless(rule, outcome);
    }

    /// A look-up failed. `outcome` describes what the rule does then.
    pub(crate) fn look_up_failed(&self, rule: u16, outcome: &str) {
        #[cfg(feature = "metrics")]
        self.meters.look_up_failed(rule);
        self.events.look_up_failed(rule, outcome);
    }

    /// A rule rejected a request whose look-up failed.
    pub(crate) fn look_up_rejected(&self, rule: u16) {
        self.of_limiter.look_up_failed(rule);
    }

    /// A request names a plan that its rule does not have.
    pub(crate) fn unknown_plan(
        &self,
        rule: u16,
        name: &str,
        unknown: impl FnOnce() -> UnknownName,
    ) {
        self.events.unknown_plan(rule, name, unknown);
    }

    /// A request has a computed quota that its rule does not take.
    pub(crate) fn quota_refused(&self, rule: u16, error: &RuleError) {
        self.events.quota_refused(rule, error);
    }

    /// A request has a computed cost that never fits.
    pub(crate) fn cost_above_limit(&self, rule: u16, cost: u64, limit: u64) {
        self.events.cost_above_limit(rule, cost, limit);
    }

    /// A request was counted by one layer twice.
    pub(crate) fn applied_twice(&self) {
        self.events.applied_twice();
    }

    /// A request in gRPC-Web reached a limit on messages.
    pub(crate) fn untranslated_grpc_web(&self) {
        self.events.untranslated_grpc_web();
    }

    /// A rule refunded a request that was not served.
    pub(crate) fn refunded(&self, rule: u16) {
        #[cfg(feature = "metrics")]
        self.meters.refunded(rule);
        #[cfg(not(feature = "metrics"))]
        let _ = rule;
    }

    /// A handler named a rule that does not exist.
    pub(crate) fn wrong_name(&self, unknown: &UnknownName) {
        self.events.wrong_name(unknown);
    }
}
