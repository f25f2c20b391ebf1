//! The layer: limits, retries, and how long a request may wait.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, StatusCode, request::Parts};
use tollgate_core::{Check, Clock, Limiter, LiveLimiter, RuleError, RuleErrorKind};
use tower::{BoxError, retry::budget::Budget};
use tower_layer::Layer;

use crate::{
    advice::ServerLimits,
    client_limit::ClientLimit,
    config::{Config, MAX_DURATION},
    service::ClientRateLimit,
};

/// Sends outgoing requests as fast as their servers allow.
///
/// Cheap to clone. Clones, and the services that they make, share what they know about the servers, but for channels of tonic.
///
/// See the [crate documentation](crate).
#[doc(alias = "Client")]
#[must_use = "a layer limits nothing until a service is wrapped in it"]
#[derive(Clone, Debug, Default)]
pub struct ClientRateLimitLayer {
    config: Arc<Config>,
    /// It keeps the names of the client's own rules in use.
    limit: Option<ClientLimit>,
}

impl ClientRateLimitLayer {
    /// Obeys server limits, retries up to four times, and waits for at most 30 seconds.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Config)) -> Self {
        // Nothing is copied while a layer is configured: it has no clones yet.
        change(Arc::make_mut(&mut self.config));
        self
    }

    /// Applies the rules of `limiter` to outgoing requests: for providers that do not report what is left, or to use only a
    /// share of it. Each request waits in the limiter's queue, and so does each retry.
    ///
    /// `checks` names the rules that a request counts against, with a key, a cost and a plan for each: see
    /// [`Limiter::check`], [`Limiter::check_with_plan`] and [`Check::with_cost`]. No checks: the request is not limited. An
    /// error: the request is not sent, and the caller gets
    /// [`NoChecks`](crate::ClientRateLimitErrorKind::NoChecks). Decisions are counted and logged with the features `metrics` and
    /// `tracing`.
    ///
    /// ```
    /// use tollgate_client::ClientRateLimitLayer;
    /// use tollgate_core::{Key, LiveLimiter, MemoryStore, Quota, Rule, SECOND};
    ///
    /// let rule = Rule::new("per-account", Quota::gcra(10, SECOND));
    /// let limiter = LiveLimiter::new(MemoryStore::new(), [rule])?;
    /// let layer = ClientRateLimitLayer::new().limit(limiter, |limiter, head| {
    ///     let account = head.headers.get("x-account").ok_or("the request has no x-account")?;
    ///     let check = limiter.check("per-account", &Key::of(account.as_bytes()))?;
    ///     Ok::<_, tower::BoxError>([check])
    /// })?;
    /// # let _ = layer;
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    ///
    /// The rules can be replaced while requests are sent: a clone of the limiter is the
    /// handle. A request is sent by the rules that are in force when it begins, with all of its retries.
    ///
    /// ```
    /// use tollgate_client::ClientRateLimitLayer;
    /// use tollgate_core::{Key, LiveLimiter, MemoryStore, Quota, Rule, SECOND};
    ///
    /// let provider = |limit| Rule::new("provider", Quota::gcra(limit, SECOND));
    /// let limiter = LiveLimiter::new(MemoryStore::new(), [provider(10)])?;
    /// let layer = ClientRateLimitLayer::new()
    ///     .limit(limiter.clone(), |limiter, _| Ok::<_, tower::BoxError>([limiter.check("provider", &Key::shared())?]))?;
    /// limiter.replace([provider(5)])?;
    /// # let _ = layer;
    /// assert_eq!(limiter.limiter().rules().rules()[0].quota().limit(), 5);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The limiter has a rule of [slots](tollgate_core::Quota::concurrent): the layer does not see when a response has been read. Put
    /// such a rule into a limiter of its own, acquire it around the call, and hold the ticket until the work is done. A rule of slots
    /// that comes into a live limiter later is an error of each request that it checks.
    pub fn limit<C, E>(
        mut self,
        limiter: LiveLimiter,
        checks: impl Fn(&Limiter, &Parts) -> Result<C, E> + Send + Sync + 'static,
    ) -> Result<Self, RuleError>
    where
        C: IntoIterator<Item = Check>,
        E: Into<BoxError>,
    {
        self.limit = Some(ClientLimit::new(limiter, checks)?);
        Ok(self)
    }

    /// Which requests share the limits of a server: those for which `partition` returns the same text. Default: the host and
    /// port. Add the path for a server with limits per route, or an account's id for limits per account.
    ///
    /// The layer remembers 1 024 partitions. Do not return a value that differs with each request.
    pub fn partition_by(
        self,
        partition: impl Fn(&Parts) -> String + Send + Sync + 'static,
    ) -> Self {
        self.with(|config| config.partition_of = Arc::new(partition))
    }

    /// How long a request may wait in total: in queues, for servers, and between retries. Default: 30 seconds, beginning with
    /// the call.
    ///
    /// It does not limit how long the server takes to respond: put a timeout around the client for that. A gRPC call with a timeout of its
    /// own (`grpc-timeout`) waits no longer than that, and each attempt is sent with what is left of it.
    pub fn max_wait(self, max_wait: Duration) -> Self {
        self.with(|config| config.max_wait = max_wait.min(MAX_DURATION))
    }

    /// The longest wait that the layer accepts from a server. Default: ten minutes. If a server asks for more, the layer tries
    /// again after this time.
    pub fn max_retry_after(self, longest: Duration) -> Self {
        self.with(|config| config.max_retry_after = longest.min(MAX_DURATION))
    }

    /// The statuses that may be a limit. Default: 429 and 503. Any other one is a limit where the response says when to come back: in
    /// `Retry-After`, or by a budget that has nothing left. A block by tollgate, with a 403 or 401, always stops the client.
    ///
    /// ```
    /// use http::StatusCode;
    /// use tollgate_client::ClientRateLimitLayer;
    ///
    /// // GitHub's secondary limits are a 403 with `Retry-After`. A 403 without it stays an answer like any other.
    /// let statuses = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE, StatusCode::FORBIDDEN];
    /// let layer = ClientRateLimitLayer::new().limit_statuses(statuses)?;
    /// # let _ = layer;
    /// assert!(ClientRateLimitLayer::new().limit_statuses([StatusCode::OK]).is_err());
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A status below 400: its response is no rejection.
    pub fn limit_statuses(
        self,
        statuses: impl IntoIterator<Item = StatusCode>,
    ) -> Result<Self, RuleError> {
        let statuses: Arc<[StatusCode]> = statuses.into_iter().collect();
        if let Some(status) = statuses.iter().find(|status| status.as_u16() < 400) {
            return Err(RuleError::general(
                RuleErrorKind::RuleSet,
                format!(
                    "a response with the status {status} is no rejection; take statuses from 400 on, such as 429"
                ),
            ));
        }
        Ok(self.with(|config| config.limit_statuses = statuses))
    }

    /// Reads limits in fields of a provider that the layer does not know, in addition to [those](crate#fields-it-reads) that it knows.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tollgate_client::{ClientRateLimitLayer, ServerLimits};
    ///
    /// // `x-shop-calls: 40/40`, of a bucket that gets two calls back each second.
    /// let layer = ClientRateLimitLayer::new().read_limits(|_status, headers| {
    ///     let calls = headers.get("x-shop-calls").and_then(|calls| calls.to_str().ok()?.split_once('/'));
    ///     match calls.and_then(|(used, limit)| limit.parse::<u64>().ok()?.checked_sub(used.parse().ok()?)) {
    ///         Some(left) => ServerLimits::new().budget("calls", left, Duration::from_millis(500)),
    ///         None => ServerLimits::new(),
    ///     }
    /// });
    /// # let _ = layer;
    /// ```
    pub fn read_limits(
        self,
        read: impl Fn(StatusCode, &HeaderMap) -> ServerLimits + Send + Sync + 'static,
    ) -> Self {
        self.with(|config| config.read_limits = Some(Arc::new(read)))
    }

    /// The maximum number of retries of a request. Default: 4. With 0, limits of servers still apply.
    pub fn retries(self, most: u32) -> Self {
        self.with(|config| config.retries = most)
    }

    /// How many retries there may be in total, over all servers. Default: one for every five requests of the last ten seconds,
    /// and 100 more within ten seconds, which may come at once. It keeps retries from multiplying the load on a server that is down.
    pub fn retry_budget(self, budget: impl Budget + Send + Sync + 'static) -> Self {
        self.with(|config| config.retry_budget = Arc::new(budget))
    }

    /// Adds up to this many percent to the delay of a retry and to the cooldown that a server asks for (`Retry-After`, gRPC's
    /// `RetryInfo` and pushback), so that clients that were rejected together do not return together. Default: 10. It never
    /// shortens a wait, and never extends one beyond [`max_retry_after`](Self::max_retry_after).
    ///
    /// # Errors
    ///
    /// More than 100.
    pub fn retry_jitter(self, percent: u8) -> Result<Self, RuleError> {
        if percent > 100 {
            return Err(RuleError::general(
                RuleErrorKind::RuleSet,
                format!("a jitter of {percent} % would more than double the wait; take 0 to 100"),
            ));
        }
        Ok(self.with(|config| config.jitter_percent = percent))
    }

    /// How many bytes of a request's body are kept for a retry. Default: 64 KiB. A request with a longer body is not
    /// retried, nor is one whose body is not there when it begins.
    pub fn max_replay_bytes(self, bytes: u64) -> Self {
        self.with(|config| config.max_replay_bytes = bytes)
    }

    /// Marks more requests as safe to retry: those for which `predicate` returns `true`, in addition to those that are
    /// idempotent by their method or have an `Idempotency-Key`. All gRPC calls are POST, so name the repeatable ones here.
    pub fn idempotent(self, predicate: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.with(|config| config.idempotent = Some(Arc::new(predicate)))
    }

    /// The wall clock for dates from servers that send no `Date`. Default: [`Clock::system`]. Waits are always measured by
    /// tokio's clock.
    pub fn clock(self, clock: impl Into<Clock>) -> Self {
        self.with(|config| config.clock = clock.into())
    }
}

impl<S> Layer<S> for ClientRateLimitLayer {
    type Service = ClientRateLimit<S>;

    fn layer(&self, inner: S) -> ClientRateLimit<S> {
        ClientRateLimit {
            inner,
            config: Arc::clone(&self.config),
            limit: self.limit.clone(),
        }
    }
}
