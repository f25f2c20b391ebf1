//! The layer: rules on a store, and how clients are told.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use http::StatusCode;
use tollgate_core::{Key, KeyBuf, Limiter, RuleError, Store};
use tower_layer::Layer;

use crate::{
    header::HeaderStyle,
    key::Extracted,
    protocol::Protocol,
    rate_limit::config::Config,
    rate_limit::live::Live,
    rate_limit::request_rules::{refuse_much_jitter, refuse_success},
    rate_limit::service::RateLimit,
    rejection::Rejection,
    rule::{KeyedRule, RequestRule},
};

/// Limits the requests to a service.
///
/// Cheap to clone; clones share everything, and so do the services it makes.
///
/// See the [module documentation](crate).
#[must_use = "a layer limits nothing until a service is wrapped in it"]
#[derive(Clone, Debug)]
pub struct RateLimitLayer {
    config: Arc<Config>,
    /// Keeps the rule names in use.
    limiter: Limiter,
}

impl RateLimitLayer {
    /// Limits by these rules, with their state in `store`.
    ///
    /// All rules are decided together: a request passes all of them, or none is debited.
    ///
    /// # Errors
    ///
    /// A rule that cannot be used, or that the store cannot serve; a rule name that another live layer or limiter on this
    /// store has bound to another quota; rules that are all [off](tollgate_core::Rule::off), which would limit nothing. The
    /// error names the rule and says what would be right.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a store is a handle, and a call with a clone reads well"
    )]
    pub fn new(
        store: impl Store,
        rules: impl IntoIterator<Item: KeyedRule>,
    ) -> Result<Self, RuleError> {
        Self::bind(&[], &store, rules.into_iter().map(Into::into).collect())
    }

    /// Limits by these rules in the place of those of other layers and limiters on the same store, which may have other quotas
    /// under the same names: for a reload. Used units stay used. See
    /// [`Limiter::replacing`](tollgate_core::Limiter::replacing).
    ///
    /// Where a name is used by several layers, replace them all at once, then make the others anew.
    ///
    /// ```
    /// use tollgate::{MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, key::header};
    ///
    /// let store = MemoryStore::new();
    /// let rule = |limit| Rule::new("per-key", Quota::gcra(limit, MINUTE)).by(header("x-api-key"));
    /// let old = RateLimitLayer::new(store.clone(), [rule(60)])?;
    /// assert!(RateLimitLayer::new(store.clone(), [rule(90)]).is_err());
    /// let new = RateLimitLayer::replacing(&[old.limiter()], store, [rule(90)])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); and a limiter of another store among the replaced.
    #[expect(clippy::needless_pass_by_value, reason = "as in `new`")]
    pub fn replacing(
        replaced: &[&Limiter],
        store: impl Store,
        rules: impl IntoIterator<Item: KeyedRule>,
    ) -> Result<Self, RuleError> {
        Self::bind(
            replaced,
            &store,
            rules.into_iter().map(Into::into).collect(),
        )
    }

    fn bind(
        replaced: &[&Limiter],
        store: &dyn Store,
        rules: Vec<RequestRule>,
    ) -> Result<Self, RuleError> {
        let mut config = Config::new(replaced, store, rules)?;
        Ok(Self {
            limiter: config.rules.take_registered(),
            config: Arc::new(config),
        })
    }

    fn with(mut self, change: impl FnOnce(&mut Config)) -> Self {
        // A layer that is set up has no clones yet, so that nothing is copied.
        change(Arc::make_mut(&mut self.config));
        self
    }

    /// Which header fields tell clients about their budget. [`HeaderStyle::DRAFT_11`] unless told otherwise.
    ///
    /// # Errors
    ///
    /// Styles that write one field in two ways.
    pub fn headers(self, style: HeaderStyle) -> Result<Self, RuleError> {
        style
            .validate()
            .map_err(|wrong| RuleError::general(tollgate_core::RuleErrorKind::RuleSet, wrong))?;
        Ok(self.with(|config| config.set_headers(style)))
    }

    /// Tells clients when to come back and nothing else: no rule, limit or budget, in header fields or bodies. For
    /// log-in routes, where the numbers help to guess.
    ///
    /// A quiet denial stays quiet on its way out: layers around this one write no fields on it.
    pub fn quiet(self) -> Self {
        self.with(|config| config.quiet = true)
    }

    /// How a denied request is answered. [`Rejection::problem`] unless told otherwise.
    pub fn rejection(self, rejection: Rejection) -> Self {
        self.with(|config| config.set_rejection(rejection))
    }

    /// The status of a request that is over its limit. 429 unless told otherwise.
    ///
    /// # Errors
    ///
    /// A status below 400, which would tell clients that all is well.
    pub fn denied_status(self, status: StatusCode) -> Result<Self, RuleError> {
        refuse_success(status)?;
        Ok(self.with(|config| config.set_denied_status(status)))
    }

    /// How denials are answered: as each request asks, unless told otherwise.
    ///
    /// Say [`Protocol::Http`] where there is no gRPC behind the layer: otherwise a client that sends `content-type:
    /// application/grpc` is denied by a response of status 200, and counts as served in access logs and dashboards. Say so
    /// too where a content type is wrong, as in front of a gateway that makes gRPC calls of JSON.
    pub fn protocol(self, protocol: Protocol) -> Self {
        self.with(|config| config.protocol = protocol)
    }

    /// Adds up to this many percent to each `Retry-After`, so that clients that were denied together do not come back
    /// together. The same client is told the same moment each time.
    ///
    /// # Errors
    ///
    /// More than 100, which would more than double the wait.
    pub fn retry_after_jitter(self, percent: u8) -> Result<Self, RuleError> {
        refuse_much_jitter(percent)?;
        Ok(self.with(|config| config.jitter_percent = percent))
    }

    /// Puts an [`Admission`](crate::Admission) into the request's extensions, for handlers that read the decision or
    /// ask for more, and a denied request's [`Decision`](crate::Decision) into the extensions of its response, for layers
    /// outside: an access log, say. Not done unless asked for, because it costs allocations, or unless a rule is left to
    /// [handlers](crate::Rule::by_handler), which could not ask it otherwise.
    pub fn attach(self) -> Self {
        self.with(|config| config.attach = true)
    }

    /// Counts CORS preflight requests as well. They pass uncounted unless this is called: they carry no identity, and a
    /// browser that is refused one reports the request that follows as failed for no reason.
    ///
    /// A preflight is an OPTIONS request with `Origin` and `Access-Control-Request-Method`, without a body and without
    /// `Content-Type`. One whose body is not known to be empty before it is read is counted: in HTTP/1.1 one in chunks,
    /// in HTTP/2 one that ends in a frame of its own, and any that a layer outside has wrapped in a body that does not know.
    ///
    /// Anyone can make such a request, and send as many as he likes. Where one reaches work, call this: with handlers for any
    /// method (`any(..)` and fallbacks in axum, a proxy's handler) or for OPTIONS. tonic's services look at no method either:
    /// a preflight that nothing outside has answered begins a stream from the client, without messages.
    pub fn count_preflight(self) -> Self {
        self.with(|config| config.count_preflight = true)
    }

    /// How long the look-ups of a request's keys may take, all together: they run at the same time. 200 ms unless told
    /// otherwise. It begins when the first of them has to be waited for.
    ///
    /// When it passes, look-ups that have not ended are dropped, and the key of their rule is
    /// [`NoKey::LookUpFailed`](crate::key::NoKey::LookUpFailed). Nobody knows then whom the request counts against:
    ///
    /// | the rule | such a request |
    /// | --- | --- |
    /// | [`on_store_error`](tollgate_core::Rule::on_store_error) with `Allow` or `Degraded` | passes the rule uncounted: that is what it asks for where it cannot be decided |
    /// | `on_store_error` with `Deny`, or [`Missing::Reject`](crate::Missing::Reject) | is answered by 503, in gRPC `UNAVAILABLE` |
    /// | any other, the default | counts with all others that have no key, also with [`Missing::Skip`](crate::Missing::Skip) |
    ///
    /// `tollgate_look_up_failures_total` counts them, and the first one of a rule is told in an event at warn level. An
    /// extractor of your own gives `LookUpFailed` where its directory fails in another way.
    ///
    /// Outside of tokio there is no deadline. In a tokio runtime that was built without `enable_time`, each look-up that has
    /// to wait fails at once.
    pub fn look_up_deadline(self, deadline: Duration) -> Self {
        self.with(|config| config.rules.look_up_deadline = deadline)
    }

    /// The least number of instances of this service that share the store: while the store fails, each counts against
    /// its share of a quota. 1 unless told otherwise, or as many as the store
    /// [knows](tollgate_core::RuleStore::instances) of, if these are more. A store in memory never fails.
    ///
    /// # Errors
    ///
    /// A quota whose share cannot be counted.
    pub fn instances(self, instances: NonZeroU32) -> Result<Self, RuleError> {
        let limiter = self.limiter.shared_by(instances)?;
        let mut layer = self.with(|config| config.rules.limiter = limiter.unregistered());
        layer.limiter = limiter;
        Ok(layer)
    }

    /// The key under which the rule with this name counts requests with this head, for
    /// [`Limiter::peek`](tollgate_core::Limiter::peek) and [`reset`](tollgate_core::Limiter::reset): to let a client start
    /// anew, make a head that is like its own.
    ///
    /// `None` where there is no such rule or no key, or where the key is looked up: take
    /// [`look_up_key_of`](Self::look_up_key_of).
    ///
    /// ```
    /// use tollgate::{MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, key::header};
    ///
    /// let rule = Rule::new("per-key", Quota::gcra(60, MINUTE)).by(header("x-api-key"));
    /// let layer = RateLimitLayer::new(MemoryStore::new(), [rule])?;
    /// let request = http::Request::get("/").header("x-api-key", "acme.k1").body(())?;
    /// let key = layer.key_of("per-key", &request.into_parts().0).expect("it has a key");
    /// let had_a_state = layer.limiter().reset("per-key", &key)?.ready();
    /// assert!(matches!(had_a_state, Some(Ok(false))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn key_of(&self, rule: &str, head: &http::request::Parts) -> Option<Key> {
        let mut key = KeyBuf::new();
        match self.config.rules.extractor(rule)?.extract(head, &mut key) {
            Extracted::Key => Some(key.into()),
            Extracted::Nothing(_) | Extracted::Later(_) => None,
        }
    }

    /// As [`key_of`](Self::key_of), where the key may be looked up: it waits for the look-up.
    ///
    /// `None` where there is no such rule, or no key, as where the look-up fails.
    ///
    /// ```
    /// use tollgate::{MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, key::look_up};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // In a service, a question to a database.
    /// let by_tenant = look_up(|head| {
    ///     let api_key = head.headers.get("x-api-key").cloned();
    ///     async move { (api_key? == "k-1").then(|| "acme".to_owned()) }
    /// });
    /// let rule = Rule::new("per-tenant", Quota::gcra(60, MINUTE)).by(by_tenant);
    /// let layer = RateLimitLayer::new(MemoryStore::new(), [rule])?;
    /// let head = http::Request::get("/").header("x-api-key", "k-1").body(())?.into_parts().0;
    /// assert!(layer.key_of("per-tenant", &head).is_none());
    /// let key = layer.look_up_key_of("per-tenant", &head).await.expect("it is found");
    /// let had_a_state = layer.limiter().reset("per-tenant", &key)?.await?;
    /// assert!(!had_a_state);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn look_up_key_of(&self, rule: &str, head: &http::request::Parts) -> Option<Key> {
        let mut key = KeyBuf::new();
        let extracted = self.config.rules.extractor(rule)?.extract(head, &mut key);
        match extracted {
            Extracted::Key => Some(key.into()),
            Extracted::Nothing(_) => None,
            Extracted::Later(answer) => answer.await.ok().map(Key::from),
        }
    }

    /// The rules on their store, for code outside of requests: the same budgets.
    #[must_use]
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit::new(inner, Live::new(&self.config, Some(&self.limiter)))
    }
}
