//! What a rule does with requests: what a [`RequestRule`](crate::RequestRule) was set to, and what follows from it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Response, StatusCode};
use tollgate_core::{
    Decision, Key, KeyBuf, OnStoreError, Quota, Rule, Verdict, types::CheckPolicy,
};

use crate::{
    head::Head, inner_response::InnerResponse, key::KeyExtractor, known_condition::Condition,
    routes::Routes,
};

/// What a rule does with a request that has no key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missing {
    /// Counts all such requests together.
    #[default]
    Shared,
    /// Does not limit requests without the key.
    ///
    /// Only an absent key skips the rule. Otherwise the request counts as with [`Shared`](Self::Shared), so that nothing disables
    /// the rule unnoticed: a repeated key ([`NoKey::Ambiguous`](crate::key::NoKey::Ambiguous)), or a service that is not set up
    /// for the extractor ([`NoKey::Misconfigured`](crate::key::NoKey::Misconfigured)).
    Skip,
    /// Rejects the request with this status, 400 or above: 401, say. A 401 requires a `WWW-Authenticate` field (RFC 9110
    /// §15.5.2), whose scheme depends on the application: add it in [`Rejection::custom`](crate::Rejection::custom) or in an
    /// outer layer. A shadow rejects nothing and skips the request.
    Reject(StatusCode),
}

type CostFn = dyn Fn(&Head<'_>) -> u64 + Send + Sync;
/// The number of the plan of a request. It calls the last argument with a name that the rule has no plan for.
type PlanFn = dyn Fn(&Head<'_>, &Rule, &mut dyn FnMut(&str)) -> u16 + Send + Sync;
type QuotaFn = dyn Fn(&Head<'_>) -> Option<Quota> + Send + Sync;
type KeyPredicate = dyn Fn(&KeyBuf) -> bool + Send + Sync;
type DeniedFn = dyn Fn(&Head<'_>, &Key, &Decision) + Send + Sync;
type CountsFn = dyn Fn(&InnerResponse<'_>) -> bool + Send + Sync;
type ResponseCostFn = dyn Fn(&InnerResponse<'_>) -> Option<u64> + Send + Sync;
pub(crate) type ChallengeFn = dyn Fn(&Head<'_>, &Verdict) -> Option<Response<Bytes>> + Send + Sync;
pub(crate) type KeyPlanFn = dyn Fn(&KeyBuf) -> Option<Arc<str>> + Send + Sync;

/// How a rule holds its denials back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlowDenials {
    pub(crate) by: Duration,
    pub(crate) at_most: usize,
}

/// What a rule does with requests.
#[derive(Clone)]
pub(crate) struct RequestSettings {
    pub(crate) rule: Rule,
    /// Whether it is the shadow that a handle has made of another one.
    pub(crate) is_preview: bool,
    /// `None`: a rule for handlers.
    pub(crate) key: Option<Arc<dyn KeyExtractor>>,
    pub(crate) cost: Option<Arc<CostFn>>,
    pub(crate) plan: Option<Arc<PlanFn>>,
    pub(crate) quota: Option<Arc<QuotaFn>>,
    pub(crate) applies: Option<Arc<dyn Condition>>,
    /// Outside of them, `applies` is false.
    pub(crate) routes: Routes,
    pub(crate) exempt: Option<Arc<dyn Condition>>,
    /// Why one of its conditions never holds.
    pub(crate) condition_mistake: Option<Arc<str>>,
    pub(crate) applies_to_key: Option<Arc<KeyPredicate>>,
    /// The plans of single keys, by name.
    pub(crate) plans_by_key: Arc<Vec<(Key, Arc<str>)>>,
    /// The plan of a key that is not among them, by name.
    pub(crate) plan_of_key: Option<Arc<KeyPlanFn>>,
    /// Where the id of a request is.
    pub(crate) id: Option<Arc<dyn KeyExtractor>>,
    /// The store itself decides requests for which one of them is true.
    pub(crate) exact: Vec<Arc<dyn Condition>>,
    /// How requests are answered when the store fails. The first that is true counts.
    pub(crate) store_errors: Vec<(Arc<dyn Condition>, OnStoreError)>,
    /// Hears of denials.
    pub(crate) on_denied: Option<Arc<DeniedFn>>,
    pub(crate) missing: Missing,
    /// Whether units are kept if the service fails.
    pub(crate) keeps: bool,
    /// The status of a denial that blocks.
    pub(crate) blocked_status: StatusCode,
    pub(crate) slow_denials: Option<SlowDenials>,
    /// By the name of a threshold, what may answer above it in the place of the service.
    pub(crate) challenges: Vec<(Arc<str>, Arc<ChallengeFn>)>,
    /// Which responses count: those for which all of them are true.
    pub(crate) counts: Vec<Arc<CountsFn>>,
    /// What a request has cost, by its response.
    pub(crate) response_cost: Option<Arc<ResponseCostFn>>,
}

impl RequestSettings {
    pub(crate) fn new(rule: Rule, key: Option<Arc<dyn KeyExtractor>>) -> Self {
        Self {
            rule,
            is_preview: false,
            key,
            cost: None,
            plan: None,
            quota: None,
            applies: None,
            routes: Routes::default(),
            exempt: None,
            condition_mistake: None,
            applies_to_key: None,
            plans_by_key: Arc::default(),
            plan_of_key: None,
            id: None,
            exact: Vec::new(),
            store_errors: Vec::new(),
            on_denied: None,
            missing: Missing::default(),
            keeps: false,
            blocked_status: StatusCode::FORBIDDEN,
            slow_denials: None,
            challenges: Vec::new(),
            counts: Vec::new(),
            response_cost: None,
        }
    }

    /// The rule counts something other than requests: units, where a closure computes the cost. A name that was given stays.
    pub(crate) fn counts(&mut self, unit: &str) {
        if self.rule.unit_name().is_none() {
            self.rule = self.rule.clone().unit(unit);
        }
    }

    /// The first setting that has no effect on a rule for handlers.
    pub(crate) fn call_about_requests(&self) -> Option<&'static str> {
        [
            (self.cost.is_some(), "cost_by"),
            (self.plan.is_some(), "plan_by"),
            (self.quota.is_some(), "quota_by"),
            (self.applies.is_some(), "when"),
            (self.exempt.is_some(), "exempt"),
            (self.applies_to_key.is_some(), "when_key"),
            (!self.plans_by_key.is_empty(), "plan_for_key"),
            (self.plan_of_key.is_some(), "plan_by_key"),
            (self.id.is_some(), "idempotent"),
            (self.missing != Missing::Shared, "when_missing"),
            (self.keeps, "keep_on_error"),
            (self.slow_denials.is_some(), "slow_denials"),
            (!self.challenges.is_empty(), "challenge"),
            (!self.exact.is_empty(), "exact_when"),
            (!self.store_errors.is_empty(), "on_store_error_when"),
        ]
        .into_iter()
        .find_map(|(made, call)| made.then_some(call))
        .or(self.call_about_responses())
    }

    /// Whether what its checks ask for is computed for each request.
    pub(crate) fn computes_terms(&self) -> bool {
        self.plan.is_some()
            || self.quota.is_some()
            || self.cost.is_some()
            || !self.exact.is_empty()
            || !self.store_errors.is_empty()
    }

    /// How the check of a request differs from the rule.
    pub(crate) fn policy_of(&self, head: &Head<'_>) -> CheckPolicy {
        let mut policy = CheckPolicy::default();
        let mut answers = self.store_errors.iter();
        if let Some((_, answer)) = answers.find(|(applies, _)| applies(head)) {
            // One that cannot be the answer of some checks is the rule's own: `validate` has seen it.
            policy = policy.on_store_error(*answer).unwrap_or(policy);
        }
        match self.exact.iter().any(|applies| applies(head)) {
            true => policy.exact(),
            false => policy,
        }
    }

    /// Whether single keys have plans of their own.
    pub(crate) fn has_plans_by_key(&self) -> bool {
        !self.plans_by_key.is_empty() || self.plan_of_key.is_some()
    }

    /// The first setting that is about responses.
    pub(crate) fn call_about_responses(&self) -> Option<&'static str> {
        [
            (!self.counts.is_empty(), "count_if"),
            (self.response_cost.is_some(), "cost_by_response"),
        ]
        .into_iter()
        .find_map(|(made, call)| made.then_some(call))
    }

    /// The rule in the core. What counts towards its block is known here.
    pub(crate) fn core_rule(&self) -> Rule {
        match self.rule.block_setting() {
            Some(block) if self.call_about_responses().is_some() => {
                self.rule.clone().block(block.clone().count_settled())
            }
            _ => self.rule.clone(),
        }
    }

    /// What a request has cost whose response is this one. `None`: what it took.
    pub(crate) fn cost_after(&self, response: &InnerResponse<'_>) -> Option<u64> {
        if self.keeps && response.is_error() {
            return None;
        }
        if !self.counts.iter().all(|counts| counts(response)) {
            return Some(0);
        }
        let cost = self.response_cost.as_ref().and_then(|cost| cost(response));
        // What was not served costs nothing, unless a condition has just said that it counts.
        cost.or_else(|| (self.counts.is_empty() && response.is_unserved()).then_some(0))
    }
}
