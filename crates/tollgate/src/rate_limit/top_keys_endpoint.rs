//! The top keys of layers, as JSON for operators.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use tollgate_core::observe::TopKey;

use crate::{
    json_text::{JsonObject, push_list, respond},
    rate_limit::{layer::RateLimitLayer, live_config::LiveConfig},
};

/// The keys that are shown of a rule.
const MOST: usize = 100;

/// Tells operators which keys come most often under the rules of layers, as JSON.
///
/// It is for operators: give it a route that clients cannot reach, as you do for metrics. No key is shown, but the first letters
/// of what stands for it in the store, and what the application [calls](crate::Rule::label) it.
///
/// ```
/// # #[cfg(not(feature = "axum"))] fn main() {}
/// # #[cfg(feature = "axum")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use axum::{Router, body::{Body, to_bytes}, routing::get};
/// use http::Request;
/// use tollgate::{
///     MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, key::header, observe::TopKeysEndpoint,
/// };
/// use tower::ServiceExt;
///
/// let per_key = Rule::new("per-key", Quota::gcra(60, MINUTE)).top_keys().by(header("x-api-key"));
/// let limits = RateLimitLayer::new(MemoryStore::new(), [per_key])?;
/// let admin = Router::new().route("/top-keys", TopKeysEndpoint::new([&limits]).route());
/// let app = Router::new().route("/items", get(|| async { "one, two" })).layer(limits);
///
/// let request = Request::get("/items").header("x-api-key", "acme.k1").body(Body::empty())?;
/// app.oneshot(request).await?;
/// let response = admin.oneshot(Request::get("/top-keys").body(Body::empty())?).await?;
/// let body = to_bytes(response.into_body(), 1_000).await?;
/// let body: serde_json::Value = serde_json::from_slice(&body)?;
/// let rule = &body["rules"][0];
/// assert_eq!((&rule["rule"], &rule["keys"][0]["at_least"]), (&"per-key".into(), &1.into()));
/// # Ok(())
/// # }
/// ```
///
/// `rules` has an entry for each rule that [keeps its top keys](crate::Rule::top_keys), with its name and a list of keys, at most a
/// hundred, the heaviest first. Of a key:
///
/// | member | is |
/// | --- | --- |
/// | `key` | the first letters of what stands for it in the store, as in the log of denials |
/// | `label` | what the application calls it; `null` if it has no label |
/// | `at_least`, `at_most` | between these are its requests of the last two and a half to five minutes, in this process |
/// | `denials`, `cost` | its denials and the units that it asked for, at least |
#[derive(Clone)]
pub struct TopKeysEndpoint {
    layers: Vec<Arc<LiveConfig>>,
}

impl TopKeysEndpoint {
    /// Shows the top keys of these layers.
    pub fn new<'a>(layers: impl IntoIterator<Item = &'a RateLimitLayer>) -> Self {
        let layers = layers.into_iter();
        Self {
            layers: layers.map(RateLimitLayer::live).collect(),
        }
    }

    /// The endpoint, for a route of axum's router.
    #[cfg(feature = "axum")]
    pub fn route<S: Clone + Send + Sync + 'static>(self) -> axum::routing::MethodRouter<S> {
        let answer = move || {
            let response = self.respond().map(axum::body::Body::from);
            async move { response }
        };
        axum::routing::get(answer)
    }

    /// The answer, for other routers than axum's.
    #[must_use]
    pub fn respond(&self) -> Response<Bytes> {
        let mut rules = Vec::new();
        for layer in &self.layers {
            let config = layer.load();
            let limiter = &config.rules.limiter;
            let keeping = limiter.rules().rules().iter();
            for rule in keeping.filter(|rule| rule.keeps_top_keys()) {
                // The name is one of the limiter's own.
                let keys = limiter.top_keys(rule.name(), MOST).unwrap_or_default();
                let mut of_rule = JsonObject::new();
                of_rule.text("rule", rule.name());
                of_rule.member("keys", |json| push_list(json, &keys, push_key));
                rules.push(of_rule.close());
            }
        }
        let mut body = JsonObject::new();
        body.member("rules", |json| {
            push_list(json, &rules, |json, rule| json.push_str(rule));
        });
        respond("application/json", body.close())
    }
}

fn push_key(json: &mut String, key: &TopKey) {
    let mut shown = JsonObject::new();
    shown.text("key", &key.key.to_string());
    match &key.label {
        Some(label) => shown.text("label", label),
        None => shown.number("label", None),
    }
    shown.number("at_least", key.at_least);
    shown.number("at_most", key.at_most);
    shown.number("denials", key.denials);
    shown.number("cost", key.cost);
    json.push_str(&shown.close());
}

tollgate_core::debug_fields!(TopKeysEndpoint);
