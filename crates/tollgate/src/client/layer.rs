//! The layer: how patient a client is, what it sends again, and its own quota.

use std::{sync::Arc, time::Duration};

use http::request::Parts;
use tollgate_core::{Clock, Limiter, RuleError, RuleErrorKind, Store};
use tower::retry::budget::Budget;
use tower_layer::Layer;

use crate::{
    client::{config::Config, service::Pace},
    live::Live,
    request_rules::{RequestRules, refuse_much_jitter},
    rule::{KeyedRule, RequestRule},
};

/// Sends outgoing requests as fast as their servers want them, and no faster.
///
/// Cheap to clone; clones share what was learned of the servers, and so do the services it makes.
///
/// See the [module documentation](crate::client).
#[must_use = "a layer paces nothing until a service is wrapped in it"]
#[derive(Clone, Debug)]
pub struct PaceLayer {
    config: Arc<Config>,
    /// Keeps the names of its own rules in use.
    limiter: Option<Limiter>,
}

impl PaceLayer {
    /// Obeys what servers say, sends again what may be sent again up to four times, and waits for at most 30 seconds.
    pub fn new() -> Self {
        Self {
            config: Arc::new(Config::new()),
            limiter: None,
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Config)) -> Self {
        // A layer that is set up has no clones yet, so that nothing is copied.
        change(Arc::make_mut(&mut self.config));
        self
    }

    /// A quota of the client's own, which every request waits for in line, each retry included: for providers that do not
    /// say what is left, or of which only a share is to be used. The extractors see the head of the outgoing request.
    ///
    /// # Errors
    ///
    /// A rule that cannot be used, or that the store cannot serve.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a store is a handle, and a call with a clone reads well"
    )]
    pub fn limit(
        self,
        store: impl Store,
        rules: impl IntoIterator<Item: KeyedRule>,
    ) -> Result<Self, RuleError> {
        self.limit_replacing(&[], store, rules)
    }

    /// The same in the place of the rules of other layers and limiters on the same store: for a reload. See
    /// [`Limiter::replacing`](tollgate_core::Limiter::replacing).
    ///
    /// # Errors
    ///
    /// As [`limit`](Self::limit); and a limiter of another store among the replaced.
    #[expect(clippy::needless_pass_by_value, reason = "as in `limit`")]
    pub fn limit_replacing(
        self,
        replaced: &[&Limiter],
        store: impl Store,
        rules: impl IntoIterator<Item: KeyedRule>,
    ) -> Result<Self, RuleError> {
        let rules: Vec<RequestRule> = rules.into_iter().map(Into::into).collect();
        if let Some(left) = rules.iter().find(|rule| rule.key.is_none()) {
            return Err(RuleError::new(
                RuleErrorKind::Key,
                left.rule.name(),
                "by_handler() leaves it to a handler to ask, and a client has none; count with by(..)",
            ));
        }
        let mut own = RequestRules::new(replaced, &store, rules)?;
        let limiter = own.take_registered();
        let mut layer = self.with(|config| config.own = Some(own));
        layer.limiter = Some(limiter);
        Ok(layer)
    }

    /// The client's own rules on their store, if it has any.
    #[must_use]
    pub fn limiter(&self) -> Option<&Limiter> {
        self.limiter.as_ref()
    }

    /// Which requests have common limits: those for which this is the same. By host and port unless told otherwise; where
    /// a server has limits for each route, add the path, for each account, what stands for the account.
    ///
    /// 1 024 scopes are remembered. Do not put into it what differs with each request.
    pub fn scope_by(self, scope: impl Fn(&Parts) -> String + Send + Sync + 'static) -> Self {
        self.with(|config| config.scope_of = Arc::new(scope))
    }

    /// For how long a request may wait, in line, for servers and between retries, all together. 30 seconds unless told
    /// otherwise. It begins with the call; nothing is waited for once it is over.
    ///
    /// How long the server itself takes is not limited by it: that is what a timeout around the client is for.
    pub fn patience(self, patience: Duration) -> Self {
        self.with(|config| config.patience = patience)
    }

    /// The longest wait that a server is believed. Ten minutes unless told otherwise. Whatever it asks for beyond that is
    /// tried after this time.
    pub fn longest_hold(self, longest: Duration) -> Self {
        self.with(|config| config.set_longest_hold(longest))
    }

    /// How often a request is sent again at most. 4 unless told otherwise.
    pub fn retries(self, most: u32) -> Self {
        self.with(|config| config.retries = most)
    }

    /// Sends nothing again. What servers say is obeyed all the same.
    pub fn without_retries(self) -> Self {
        self.retries(0)
    }

    /// How many retries there may be beside the requests, over all servers. Unless told otherwise, one for every five
    /// requests of the last ten seconds, and ten a second beside: a server that is down is not asked many times as often.
    pub fn retry_budget(self, budget: impl Budget + Send + Sync + 'static) -> Self {
        self.with(|config| config.retry_budget = Arc::new(budget))
    }

    /// Adds up to this many percent to the wait before a retry, and to the time for which a server that asks for it
    /// (`Retry-After`, gRPC's `RetryInfo` and pushback) is left alone, so that clients that were refused together do not
    /// come back together. 10 unless told otherwise. It is never taken off, and makes no hold longer than the
    /// [longest](Self::longest_hold).
    ///
    /// # Errors
    ///
    /// More than 100, which would more than double the wait.
    pub fn retry_jitter(self, percent: u8) -> Result<Self, RuleError> {
        refuse_much_jitter(percent)?;
        Ok(self.with(|config| config.jitter_percent = percent))
    }

    /// How many bytes of a body are kept to send it again, for each request. 64 KiB unless told otherwise. A request whose
    /// body is longer is sent once.
    pub fn keep_bodies(self, bytes: u64) -> Self {
        self.with(|config| config.kept_bytes = bytes)
    }

    /// Sends requests again where this holds, beside those that are idempotent by their method or have an
    /// `Idempotency-Key`: calls that may well be made twice. Calls of gRPC are POST, so this is where to say it.
    pub fn idempotent(self, holds: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.with(|config| config.idempotent = Some(Arc::new(holds)))
    }

    /// The wall clock, for dates from servers that do not say what time it is. [`Clock::system`] unless told otherwise.
    /// Waits are always measured by tokio's clock.
    pub fn clock(self, clock: impl Into<Clock>) -> Self {
        self.with(|config| config.clock = clock.into())
    }
}

impl Default for PaceLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for PaceLayer {
    type Service = Pace<S>;

    fn layer(&self, inner: S) -> Pace<S> {
        Pace::new(inner, Live::new(&self.config, self.limiter.as_ref()))
    }
}
