//! Rules of requests: a rule, whom it counts, what a request costs, and when it applies.

use std::{fmt, ops::Deref, sync::Arc};

use http::{StatusCode, request::Parts};
use tollgate_core::{Consistency, OnStoreError, Quota};

use crate::key::KeyExtractor;

type CostFn = dyn Fn(&Parts) -> u64 + Send + Sync;
/// The number of the plan of a request. It calls the last argument with a name that the rule has no plan for.
type PlanFn = dyn Fn(&Parts, &tollgate_core::Rule, &mut dyn FnMut(&str)) -> u16 + Send + Sync;
type Predicate = dyn Fn(&Parts) -> bool + Send + Sync;

/// A named quota, with its mode and its answer to a store failure.
///
/// [`by`](Self::by) says whom it counts and makes the [`RequestRule`] that a layer takes. A [`Limiter`](crate::Limiter)
/// takes it as it is, and is told the key with each call.
///
/// This is `tollgate_core`'s [`Rule`](tollgate_core::Rule), to which it dereferences, with the extractors of this crate.
/// Each converts into the other.
///
/// ```
/// use tollgate::{MINUTE, OnStoreError, Quota, Rule, key::client_ip};
///
/// let rule = Rule::new("search-per-ip", Quota::gcra(600, MINUTE).burst(50))
///     .plan("gold", Quota::gcra(6_000, MINUTE).burst(500))
///     .on_store_error(OnStoreError::Deny);
/// assert_eq!(rule.name(), "search-per-ip");
///
/// let of_requests = rule.by(client_ip());
/// # let _ = of_requests;
/// ```
#[must_use = "a rule limits nothing until it is part of a layer or a limiter"]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule(tollgate_core::Rule);

impl Rule {
    /// A rule with this name and quota: enforced, one unit a request.
    ///
    /// The name is the identity of the budget: the same name on one store is one budget, wherever it is used. It goes
    /// into headers, metrics and logs. Letters, digits and `_ . : / * -`, the first a letter or `*`, at most 64.
    ///
    /// Name and numbers are checked when the rule becomes part of a layer or a limiter.
    pub fn new(name: impl Into<Arc<str>>, quota: Quota) -> Self {
        Self(tollgate_core::Rule::new(name, quota))
    }

    /// Counts requests by the key that `key` finds: see [`key`](crate::key).
    pub fn by(self, key: impl KeyExtractor) -> RequestRule {
        RequestRule::new(self.0, Some(Arc::new(key)))
    }

    /// Leaves it to a handler to ask, with a key that it learns from the body, say: see
    /// [`Admission::acquire`](crate::Admission::acquire). A layer with such a rule
    /// [attaches](crate::RateLimitLayer::attach_decision) an admission to each request.
    ///
    /// What else a [`RequestRule`] can be told is about requests that the layer asks for; a layer refuses it here.
    pub fn by_handler(self) -> RequestRule {
        RequestRule::new(self.0, None)
    }

    /// Adds a plan: another quota under the same name, chosen per request. It has to be of the same algorithm, or
    /// [`unlimited`](Quota::unlimited).
    ///
    /// A caller that changes plans keeps what it has used.
    pub fn plan(self, name: impl Into<Arc<str>>, quota: Quota) -> Self {
        Self(self.0.plan(name, quota))
    }

    /// Adds a mark: a second limit read on this rule's state. It is reported under its own name, and denies nothing.
    pub fn mark(self, name: impl Into<Arc<str>>, quota: Quota) -> Self {
        Self(self.0.mark(name, quota))
    }

    /// The units that a request costs where nothing computes them. 0 asks without taking.
    pub fn cost(self, units: u64) -> Self {
        Self(self.0.cost(units))
    }

    /// Decides and counts as if alone, reports, and denies nothing.
    pub fn shadow(self) -> Self {
        Self(self.0.shadow())
    }

    /// A shadow that counts as if the rule with this name were absent: what would be if it took that rule's place.
    pub fn shadow_instead_of(self, rule: impl Into<Arc<str>>) -> Self {
        Self(self.0.shadow_instead_of(rule))
    }

    /// Switches the rule off.
    pub fn off(self) -> Self {
        Self(self.0.off())
    }

    /// How exactly processes count together; for stores that are shared.
    pub fn consistency(self, consistency: Consistency) -> Self {
        Self(self.0.consistency(consistency))
    }

    /// What to answer when the store fails.
    pub fn on_store_error(self, answer: OnStoreError) -> Self {
        Self(self.0.on_store_error(answer))
    }
}

impl Deref for Rule {
    type Target = tollgate_core::Rule;

    fn deref(&self) -> &tollgate_core::Rule {
        &self.0
    }
}

impl From<Rule> for tollgate_core::Rule {
    fn from(rule: Rule) -> Self {
        rule.0
    }
}

impl From<tollgate_core::Rule> for Rule {
    fn from(rule: tollgate_core::Rule) -> Self {
        Self(rule)
    }
}

/// What a rule does with a request that has no key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missing {
    /// Counts all such requests together.
    #[default]
    Shared,
    /// Does not apply to the request, because it does not carry the key.
    ///
    /// Every other reason for having no key counts the request as [`Shared`](Self::Shared) does, so that nothing switches
    /// the rule off unnoticed: a key that is sent more than once ([`NoKey::Ambiguous`](crate::key::NoKey::Ambiguous)), and a
    /// service that is not set up for its extractor ([`NoKey::Misconfigured`](crate::key::NoKey::Misconfigured)).
    Skip,
    /// Rejects the request with this status, which is 400 or above: 401, say. A 401 wants a `WWW-Authenticate` field
    /// (RFC 9110 §15.5.2), whose scheme only the application knows: add it in
    /// [`Rejection::custom`](crate::Rejection::custom) or in a layer outside. A shadow rejects nothing and skips it.
    Reject(StatusCode),
}

/// A rule with whom it counts: what a layer accepts. Made by [`Rule::by`].
///
/// ```
/// use http::{Method, StatusCode};
/// use tollgate::{MINUTE, Missing, Quota, Rule, key::header};
///
/// let rule = Rule::new("writes-per-key", Quota::gcra(600, MINUTE).burst(50))
///     .plan("gold", Quota::gcra(6_000, MINUTE).burst(500))
///     .by(header("x-api-key"))
///     .when_missing(Missing::Reject(StatusCode::UNAUTHORIZED))
///     .when(|head| head.method == Method::POST)
///     .cost_by(|head| if head.uri.path().ends_with("/bulk") { 10 } else { 1 })
///     .plan_by(|head| head.extensions.get::<&'static str>());
/// # let _ = rule;
/// ```
#[must_use = "a rule limits nothing until it is part of a layer"]
#[derive(Clone)]
pub struct RequestRule {
    pub(crate) rule: tollgate_core::Rule,
    /// `None`: a handler asks, with a key that it learns itself.
    pub(crate) key: Option<Arc<dyn KeyExtractor>>,
    pub(crate) cost: Option<Arc<CostFn>>,
    pub(crate) plan: Option<Arc<PlanFn>>,
    pub(crate) applies: Option<Arc<Predicate>>,
    pub(crate) exempt: Option<Arc<Predicate>>,
    pub(crate) missing: Missing,
    /// Whether what was taken stays taken where the service fails.
    pub(crate) keeps: bool,
}

/// A rule that says whom it counts: what layers take. It is a [`RequestRule`].
///
/// A rule by itself does not compile:
///
/// ```compile_fail,E0277
/// use tollgate::{MINUTE, MemoryStore, Quota, RateLimitLayer, Rule};
///
/// let rule = Rule::new("per-ip", Quota::gcra(60, MINUTE));
/// let limits = RateLimitLayer::new(MemoryStore::new(), [rule]);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say whom it counts",
    label = "`.by(..)` is missing",
    note = "add `.by(client_ip())`, `.by(header(\"x-api-key\"))` or another extractor of `tollgate::key`",
    note = "where only a handler knows the key, add `.by_handler()`"
)]
pub trait KeyedRule: Into<RequestRule> {}

impl KeyedRule for RequestRule {}

impl RequestRule {
    fn new(rule: tollgate_core::Rule, key: Option<Arc<dyn KeyExtractor>>) -> Self {
        Self {
            rule,
            key,
            cost: None,
            plan: None,
            applies: None,
            exempt: None,
            missing: Missing::default(),
            keeps: false,
        }
    }

    /// What to do with requests that have no key. They share one bucket unless told otherwise.
    pub fn when_missing(mut self, missing: Missing) -> Self {
        self.missing = missing;
        self
    }

    /// Computes the units of a request from its head. 0 asks without taking.
    ///
    /// A cost above the limit or burst never fits: such a request is always denied, without a `Retry-After`. The first one is
    /// told in an event at warn level. Cap what you compute.
    pub fn cost_by(mut self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.cost = Some(Arc::new(cost));
        self
    }

    /// Keeps what a request took also where the inner service answers with an error, or a response carries a
    /// [`Refund`](crate::Refund). Without this it is given back: who was not served has used nothing up.
    ///
    /// Say so for every rule whose clients can bring such an error about, and gain by it: log-ins and codes, and work that
    /// costs something before it fails, as under a timeout inside of the layer.
    pub fn keep_on_error(mut self) -> Self {
        self.keeps = true;
        self
    }

    /// Chooses the rule's plan by name, from an extension that a middleware in front has set, say. `None` is the rule's own
    /// quota. So is a name that the rule has no plan for; the first one is told in an event at warn level.
    ///
    /// The name is borrowed from the head, or is a constant: `|head| Some(head.extensions.get::<Claims>()?.plan.as_str())`.
    pub fn plan_by<P: AsRef<str> + ?Sized>(
        mut self,
        plan: impl Fn(&Parts) -> Option<&P> + Send + Sync + 'static,
    ) -> Self {
        self.plan = Some(Arc::new(move |head, rule, unknown| {
            let Some(name) = plan(head) else { return 0 };
            let Some(number) = rule.plan_number(name.as_ref()) else {
                unknown(name.as_ref());
                return 0;
            };
            // A rule has fewer than 65 535 plans.
            number as u16
        }));
        self
    }

    /// Applies the rule only where this holds: a closure, or one of the [conditions](crate::condition). Called twice, both
    /// have to hold.
    pub fn when(self, applies: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        match self.applies.clone() {
            None => self.applies_if(Arc::new(applies)),
            Some(before) => self.applies_if(Arc::new(move |head| before(head) && applies(head))),
        }
    }

    /// The first call that would do nothing where a handler asks.
    pub(crate) fn call_about_requests(&self) -> Option<&'static str> {
        [
            (self.cost.is_some(), "cost_by"),
            (self.plan.is_some(), "plan_by"),
            (self.applies.is_some(), "when"),
            (self.exempt.is_some(), "exempt"),
            (self.missing != Missing::Shared, "when_missing"),
            (self.keeps, "keep_on_error"),
        ]
        .into_iter()
        .find_map(|(made, call)| made.then_some(call))
    }

    fn applies_if(mut self, applies: Arc<Predicate>) -> Self {
        self.applies = Some(applies);
        self
    }

    /// Lets requests pass uncounted where this holds: internal calls, health checks, test traffic. They are counted as
    /// skipped in the metrics. Called twice, either is enough.
    pub fn exempt(mut self, exempt: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.exempt = Some(match self.exempt.take() {
            None => Arc::new(exempt),
            Some(before) => Arc::new(move |head| before(head) || exempt(head)),
        });
        self
    }
}

impl fmt::Debug for RequestRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestRule")
            .field("rule", &self.rule)
            .field("missing", &self.missing)
            .finish_non_exhaustive()
    }
}
