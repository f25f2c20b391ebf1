//! What a caller has left, as JSON.

use std::{collections::BTreeMap, sync::Arc, time::UNIX_EPOCH};

use bytes::Bytes;
use http::Response;
use tollgate_core::{
    Check, MemoryStore, Quota, RuleError, SECOND, Tick, Verdict, store::CreditChange,
    types::Balance,
};

use crate::{
    head::Head,
    header::times::epoch_seconds,
    json_text::{JsonObject, respond},
    key::KeyExtractor,
    rate_limit::{layer::RateLimitLayer, live_config::LiveConfig},
    rule::Rule,
};

/// The name of the endpoint's own rule, in metrics and denials.
const RULE: &str = "limits-endpoint";

/// Tells callers what they have left under the rules of layers, as JSON like that of GitHub's `/rate_limit`. It counts nothing.
///
/// ```
/// # #[cfg(not(feature = "axum"))] fn main() {}
/// # #[cfg(feature = "axum")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use axum::{Router, body::{Body, to_bytes}, routing::get};
/// use http::Request;
/// use tollgate::{LimitsEndpoint, MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, key::header};
/// use tower::ServiceExt;
///
/// let per_key = Rule::new("per-key", Quota::gcra(60, MINUTE)).by(header("x-api-key"));
/// let limits = RateLimitLayer::new(MemoryStore::new(), [per_key])?;
/// let left = LimitsEndpoint::new([&limits], header("x-api-key"))?;
/// let app = Router::new()
///     .route("/items", get(|| async { "one, two" }))
///     .layer(limits)
///     .route("/limits", left.route());
///
/// let ask = |path| Request::get(path).header("x-api-key", "acme.k1").body(Body::empty());
/// app.clone().oneshot(ask("/items")?).await?;
/// let response = app.clone().oneshot(ask("/limits")?).await?;
/// let body = to_bytes(response.into_body(), 1_000).await?;
/// let body: serde_json::Value = serde_json::from_slice(&body)?;
/// assert_eq!(body["resources"]["per-key"]["remaining"], 59);
/// // Once a second is enough.
/// assert_eq!(app.oneshot(ask("/limits")?).await?.status(), 429);
/// # Ok(())
/// # }
/// ```
///
/// Each rule of the layers that applies to the caller is a member of `resources`:
///
/// | member | is |
/// | --- | --- |
/// | `limit` | the limit of the caller's plan, in units |
/// | `used`, `remaining` | units; `null` while the store fails |
/// | `reset` | when all units are back, in seconds since the Unix epoch by the clock of the service, rounded up; `null` for [slots](Quota::concurrent), and while the store fails |
/// | `plan` | the plan, where the caller has one |
/// | `window_end` | of a [calendar](Quota::calendar), when its window ends: `2026-08-01T00:00:00+02:00[Europe/Zurich]` |
/// | `debt` | units that were charged beyond the limit, and are paid back before a request passes; only where there are any |
/// | `credits`, `credits_until` | the units of the caller's [balance](tollgate_core::Rule::credits), and when it ends; only where there is one |
/// | `blocked` | `true` where the rule [blocks](crate::decision::Reason::Blocked) the caller, until `reset` if that is not `null` |
///
/// Left out are shadows and thresholds, rules of handlers, rules that the caller is exempt from or has no limit under, rules whose
/// key the request does not have, and all rules of a layer that [hides its quota](RateLimitLayer::hide_quota). A rule's
/// [`when`](crate::RequestRule::when) does not matter, since it is about other routes. A rule by route or by method has the
/// numbers of this route.
///
/// A caller may ask once a second, by a rule of its own (`limits-endpoint`) in memory, and gets a 429 otherwise. An answer costs
/// at most one store call for each layer, and one for each rule with credits.
#[derive(Clone)]
pub struct LimitsEndpoint {
    layers: Vec<Arc<LiveConfig>>,
    own: RateLimitLayer,
}

impl LimitsEndpoint {
    /// Shows the rules of these layers. `caller` is who may ask once a second: take something that clients cannot invent, such as
    /// [`client_ip`](crate::key::client_ip()).
    ///
    /// # Errors
    ///
    /// A `caller` that cannot be used as a key.
    pub fn new<'a>(
        layers: impl IntoIterator<Item = &'a RateLimitLayer>,
        caller: impl KeyExtractor,
    ) -> Result<Self, RuleError> {
        let rule = Rule::new(RULE, Quota::gcra(1, SECOND)).by(caller);
        let own = RateLimitLayer::new(MemoryStore::new(), [rule])?.hide_quota();
        let layers = layers.into_iter();
        Ok(Self {
            layers: layers.map(RateLimitLayer::live).collect(),
            own,
        })
    }

    /// The rule of its own, for other routers than axum's: put it around what calls [`respond`](Self::respond).
    pub fn own_layer(&self) -> RateLimitLayer {
        self.own.clone()
    }

    /// The endpoint with its own rule, for a route of axum's router.
    #[cfg(feature = "axum")]
    pub fn route<S: Clone + Send + Sync + 'static>(self) -> axum::routing::MethodRouter<S> {
        let own = self.own_layer();
        let answer = move |request: axum::extract::Request| {
            let endpoint = self.clone();
            async move {
                let (head, _) = request.into_parts();
                endpoint.respond(&head).await.map(axum::body::Body::from)
            }
        };
        axum::routing::get(answer).layer(own)
    }

    /// The answer to a request with this head, whatever its path.
    pub async fn respond<'a>(&self, head: impl Into<Head<'a>>) -> Response<Bytes> {
        let head = &head.into();
        let mut resources = BTreeMap::new();
        for layer in &self.layers {
            let config = layer.load();
            if config.settings.hide_quota {
                continue;
            }
            let checks = config.rules.checks_of_caller(head).await;
            if checks.is_empty() {
                continue;
            }
            let limiter = &config.rules.limiter;
            let decision = limiter.peek(&checks).await;
            // By the clock of this machine: the store's may be minutes off.
            let decided = config.time_of(&decision);
            for verdict in decision.verdicts() {
                let rule = limiter.rules().rules().get(verdict.rule());
                let Some(rule) = rule.filter(|rule| rule.is_enforced()) else {
                    continue;
                };
                let is_of_rule = |it: &&Check| usize::from(it.rule()) == verdict.rule();
                let mut balance = None;
                if rule.has_credits()
                    && let Some(check) = checks.iter().find(is_of_rule)
                {
                    let credits = limiter.rule_store().credits(check, CreditChange::Query);
                    balance = credits.await.ok();
                }
                if let Some(resource) = resource(rule, verdict, balance, decided) {
                    resources.insert(rule.name().to_owned(), resource);
                }
            }
        }
        let mut shown = JsonObject::new();
        for (rule, resource) in resources {
            shown.member(&rule, |json| json.push_str(&resource));
        }
        let mut body = JsonObject::new();
        body.member("resources", |json| json.push_str(&shown.close()));
        respond("application/json", body.close())
    }
}

/// What a rule shows. `None`: it has no limit.
fn resource(
    rule: &tollgate_core::Rule,
    verdict: &Verdict,
    balance: Option<Balance>,
    now: Tick,
) -> Option<String> {
    let limit = rule.limit_under(verdict.plan())?;
    let is_known = verdict.knows_remaining();
    let remaining = match verdict.is_blocked() {
        true => Some(0),
        false => is_known.then(|| verdict.remaining().min(limit)),
    };
    let reset = match verdict.is_blocked() {
        true => verdict.retry().delay(),
        // Slots come back when requests end.
        false => (is_known && !verdict.is_of_slots()).then(|| verdict.reset_after()),
    };
    let mut json = JsonObject::new();
    json.number("limit", limit);
    json.number("used", remaining.map(|remaining| limit - remaining));
    json.number("remaining", remaining);
    json.number("reset", reset.map(|reset| epoch_seconds(now, reset)));
    if let Some(plan) = rule.plan_name(verdict.plan()) {
        json.text("plan", plan);
    }
    #[cfg(feature = "calendar")]
    if let Some(calendar) = rule.quota_under(verdict.plan()).calendar_of() {
        let [_, end] = calendar.window(now);
        json.text("window_end", &end);
    }
    if verdict.debt() > 0 {
        json.number("debt", verdict.debt());
    }
    if let Some(balance) = balance
        && let Some(until) = balance.until
    {
        let until = until.duration_since(UNIX_EPOCH).unwrap_or_default();
        json.number("credits", balance.units);
        json.number("credits_until", until.as_secs());
    }
    if verdict.is_blocked() {
        json.member("blocked", |json| json.push_str("true"));
    }
    Some(json.close())
}

tollgate_core::debug_fields!(LimitsEndpoint);
