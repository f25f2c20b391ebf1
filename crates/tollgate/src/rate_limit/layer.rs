//! The layer: rules on a store, and how clients learn about them.

use std::{sync::Arc, time::Duration};

use http::{HeaderName, HeaderValue, StatusCode};
use tollgate_core::{Key, KeyBuf, Limiter, MemoryStore, Quota, RuleError, Store};
use tower_layer::Layer;

use crate::{
    diagnostics::wrong_setting,
    head::Head,
    header::template::Template,
    key::{Extracted, client_ip},
    protocol::Protocol,
    rate_limit::{
        live_config::{LiveConfig, ServiceConfig},
        rules_handle::RulesHandle,
        service::RateLimit,
        settings::{Settings, live_layer},
        validation::refuse_success,
    },
    rejection::Rejection,
    request_rule::KeyedRule,
    rule::Rule,
};

/// Limits the requests to a service.
///
/// Cheap to clone; clones share everything, and so do the services it makes. Apply it once to a request, around the routes or around
/// the router: twice, it counts twice.
///
/// See the [module documentation](crate).
#[must_use = "a layer limits nothing until a service is wrapped in it"]
#[derive(Clone, Debug)]
pub struct RateLimitLayer {
    config: Arc<LiveConfig>,
}

impl RateLimitLayer {
    /// Limits by these rules, with their state in `store`.
    ///
    /// All rules are decided together: a request passes all of them, or none is debited.
    ///
    /// # Errors
    ///
    /// A rule that cannot be used, or that the store cannot serve; a rule name that another live layer or limiter on this
    /// store has bound to another quota. The error names the rule and says what would be right.
    pub fn new(
        store: impl Store,
        rules: impl IntoIterator<Item: KeyedRule>,
    ) -> Result<Self, RuleError> {
        let config = LiveConfig::new(store, |_| Ok(()), rules)?;
        Ok(Self { config })
    }

    /// Limits each client address to this many requests per period: the shortest way to a limit. All of them may come at once.
    ///
    /// It is `new` with one rule `per-ip`, a [`Quota::gcra`] by [`client_ip()`], on a [`MemoryStore`] of its own. So the address is
    /// the socket's peer: behind a proxy, that is the proxy, and all clients together would have one limit. Then use
    /// [`new`](Self::new) with the [settings](crate::key::ClientIp) of `client_ip()`.
    ///
    /// ```
    /// use tollgate::{MINUTE, RateLimitLayer};
    ///
    /// let limits = RateLimitLayer::per_ip(60, MINUTE)?;
    /// assert_eq!(limits.limiter().rules().rules()[0].quota().to_string(), "gcra 60/min");
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Numbers that [`Quota::validate`] refuses, such as a limit or a period of 0.
    pub fn per_ip(limit: u64, period: Duration) -> Result<Self, RuleError> {
        let rule = Rule::new("per-ip", Quota::gcra(limit, period)).by(client_ip());
        Self::new(MemoryStore::new(), [rule])
    }

    /// The key under which the rule with this name counts requests with this head, for
    /// [`Limiter::peek`](tollgate_core::Limiter::peek) and [`reset`](tollgate_core::Limiter::reset). To reset a client, build a
    /// head like its own. The key holds its kind as well, so `Key::of("acme")` is not the client whose header says `acme`.
    ///
    /// `None` if there is no such rule or no key, or if the key is looked up: use
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
    pub fn key_of<'a>(&self, rule: &str, head: impl Into<Head<'a>>) -> Option<Key> {
        let mut key = KeyBuf::new();
        match self.extract(rule, &head.into(), &mut key)? {
            Extracted::Key => Some(key.into()),
            Extracted::Nothing(_) | Extracted::Later(_) => None,
        }
    }

    /// [`key_of`](Self::key_of) for keys that may be looked up: it waits for the look-up.
    ///
    /// `None` if there is no such rule or no key, or if the look-up fails.
    ///
    /// ```
    /// use tollgate::{MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, key::look_up};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // In a service, a query to a database.
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
    pub async fn look_up_key_of<'a>(&self, rule: &str, head: impl Into<Head<'a>>) -> Option<Key> {
        let mut key = KeyBuf::new();
        let extracted = self.extract(rule, &head.into(), &mut key)?;
        match extracted {
            Extracted::Key => Some(key.into()),
            Extracted::Nothing(_) => None,
            Extracted::Later(answer) => answer.await.ok().map(Key::from),
        }
    }

    fn extract(&self, rule: &str, head: &Head<'_>, key: &mut KeyBuf) -> Option<Extracted> {
        let config = self.config.load();
        Some(config.rules.extractor(rule)?.extract(head, key))
    }

    /// The configuration that its services share.
    pub(crate) fn live(&self) -> Arc<LiveConfig> {
        Arc::clone(&self.config)
    }

    /// Sends the denials that rules [hold back](crate::RequestRule::slow_denials), in all services of this layer and its clones, and holds
    /// none from now on: a graceful shutdown would wait for them.
    ///
    /// ```no_run
    /// # async fn end_of_the_service() {}
    /// # async fn serve(listener: tokio::net::TcpListener, rules: [tollgate::RequestRule; 1]) -> Result<(), Box<dyn std::error::Error>> {
    /// # use {axum::Router, tollgate::{MemoryStore, RateLimitLayer}};
    /// let limits = RateLimitLayer::new(MemoryStore::new(), rules)?;
    /// let app = Router::new().layer(limits.clone());
    /// let end = async move {
    ///     end_of_the_service().await;
    ///     limits.end_slow_denials();
    /// };
    /// axum::serve(listener, app).with_graceful_shutdown(end).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn end_slow_denials(&self) {
        self.config.load().slow_end.close();
    }
}

/// Settings of a layer for requests.
impl RateLimitLayer {
    /// Adds a header field to the responses that report the quota, for clients that expect one which no
    /// [style](crate::header::HeaderStyle) writes: a text in which `{rule}`, `{limit}`, `{window}`, `{remaining}`,
    /// `{used}`, `{reset}` and `{reset_at}` stand for what the rule that is closest to its limit says. Times are in
    /// seconds, and `{reset_at}` since the Unix epoch. Of nested limiters, the inner one's field stays; a field that the
    /// style writes as well is the style's.
    ///
    /// ```
    /// use http::HeaderName;
    /// use tollgate::{
    ///     MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, header::HeaderStyle,
    ///     key::client_ip,
    /// };
    ///
    /// let rule = Rule::new("search", Quota::gcra(120, MINUTE)).by(client_ip());
    /// let layer = RateLimitLayer::new(MemoryStore::new(), [rule])?
    ///     .headers(HeaderStyle::NONE)?
    ///     .header_field(HeaderName::from_static("ratelimit-limit"), "{limit};window={window}")?
    ///     .header_field(HeaderName::from_static("x-ratelimit-used"), "{used}")?;
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A variable that is not known, and what no field may have, such as a line feed.
    pub fn header_field(self, name: HeaderName, template: &str) -> Result<Self, RuleError> {
        if HeaderValue::from_str(template).is_err() {
            let message = format!("{template:?} cannot be the value of a header field");
            return Err(wrong_setting(message));
        }
        let template = Template::parse(template)?;
        Ok(self.set(|settings| {
            let fields = Arc::make_mut(&mut settings.own_fields);
            fields.retain(|(other, _)| *other != name);
            fields.push((name, template));
        }))
    }

    /// The response to a denied request. Default: [`Rejection::problem`](crate::Rejection::problem).
    pub fn rejection(self, rejection: Rejection) -> Self {
        self.set(|settings| settings.rejection = rejection)
    }

    /// The status of the response to a request over its limit. Default: 429.
    ///
    /// # Errors
    ///
    /// A status below 400, which would look like a success.
    pub fn denied_status(self, status: StatusCode) -> Result<Self, RuleError> {
        refuse_success(status)?;
        Ok(self.set(|settings| settings.denied_status = status))
    }

    /// The protocol of denials. Default: as each request asks.
    ///
    /// Set [`Protocol::Http`](crate::rejection::Protocol::Http) if there is no gRPC behind the layer: otherwise the denial
    /// of a request with `content-type: application/grpc` has the status 200, and counts as a success in access logs and
    /// dashboards. Set it explicitly, too, if content types are wrong, as in front of a gateway that translates JSON to
    /// gRPC.
    pub fn protocol(self, protocol: Protocol) -> Self {
        self.set(|settings| settings.protocol = protocol)
    }

    /// Puts the decision into extensions: an [`Admission`](crate::Admission) into those of an allowed request, for handlers,
    /// and the [`Decision`](crate::Decision) into those of the response to a denied one, for outer layers such as an access
    /// log.
    ///
    /// Default: off, because it allocates. A layer with a rule [for handlers](crate::Rule::by_handler) always attaches the
    /// admission.
    pub fn attach_decision(self) -> Self {
        self.set(|settings| settings.attach_decision = true)
    }

    /// Counts CORS preflight requests as well. Default: they pass uncounted, because they carry no identity, and a browser
    /// reports a denied preflight as an unexplained failure of the actual request.
    ///
    /// A preflight is an OPTIONS request with `Origin` and `Access-Control-Request-Method`, without a body and without
    /// `Content-Type`. A request whose body is not known to be empty before it is read is counted: a chunked one in
    /// HTTP/1.1, one in HTTP/2 that ends in a separate frame, and one that an outer layer has wrapped in a body of unknown
    /// length.
    ///
    /// Anyone can send such requests without limit. Call this if they reach expensive code: handlers for OPTIONS or for any
    /// method (`any(..)` and fallbacks in axum, a proxy's handler). tonic's services ignore the method: for them, a
    /// preflight that no outer layer answers begins an empty client stream.
    pub fn count_preflight(self) -> Self {
        self.set(|settings| settings.count_preflight = true)
    }

    /// Limits how many requests may [wait](tollgate_core::Rule::wait) in a layer at once, and the bytes of their heads
    /// together. Default: 1 024, and 4 MiB. When either is reached, a request that would wait is denied at once:
    /// [`Reason::QueueFull`](crate::decision::Reason::QueueFull). [`Rule::max_waiting`](tollgate_core::Rule::max_waiting) limits one rule, and
    /// one client of it.
    ///
    /// A waiting request holds its head and its connection, and its body is not read. The extensions that outer layers have
    /// added are not counted.
    pub fn max_waiting(self, requests: usize, head_bytes: usize) -> Self {
        self.set(|settings| settings.max_waiting = (requests, head_bytes))
    }
}

live_layer!(RateLimitLayer);

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        let config = ServiceConfig::new(self.live());
        RateLimit { inner, config }
    }
}
