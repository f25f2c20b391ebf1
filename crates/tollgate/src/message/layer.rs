//! The layer: rules for messages on a store, and how clients are told.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use tollgate_core::{Limiter, RuleError, RuleErrorKind, Store};
use tower_layer::Layer;

use crate::{
    header::HeaderStyle,
    message::{call::Patience, service::MessageLimit},
    protocol::Protocol,
    rate_limit::config::Config,
    rate_limit::live::Live,
    rate_limit::request_rules::refuse_much_jitter,
    rule::{KeyedRule, RequestRule},
};

/// Limits the messages that clients send to a gRPC service.
///
/// Cheap to clone; clones share everything, and so do the services it makes.
///
/// See the [module documentation](crate::message).
#[must_use = "a layer limits nothing until a service is wrapped in it"]
#[derive(Clone, Debug)]
pub struct MessageLimitLayer {
    config: Arc<Config>,
    /// Keeps the rule names in use.
    limiter: Limiter,
    patience: Patience,
}

impl MessageLimitLayer {
    /// Limits messages by these rules, with their state in `store`.
    ///
    /// The head of a call says once whom its messages count against, and what each of them costs.
    ///
    /// # Errors
    ///
    /// A rule that cannot be used, that is left to handlers, or that the store cannot serve. The error names it and says
    /// what would be right.
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

    /// Limits messages by these rules in the place of those of other layers and limiters on the same store: for a reload. See
    /// [`Limiter::replacing`](tollgate_core::Limiter::replacing).
    ///
    /// A call that has begun goes on by the rules it has begun with.
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
        if let Some(left) = rules.iter().find(|rule| rule.key.is_none()) {
            return Err(RuleError::new(
                RuleErrorKind::Key,
                left.rule.name(),
                "messages are counted by the layer, and by_handler() leaves it to a handler to ask; count with by(..)",
            ));
        }
        let mut config = Config::new(replaced, store, rules)?;
        config.protocol = Protocol::Grpc;
        Ok(Self {
            limiter: config.rules.take_registered(),
            config: Arc::new(config),
            patience: Patience::default(),
        })
    }

    fn with(mut self, change: impl FnOnce(&mut Config)) -> Self {
        // A layer that is set up has no clones yet, so that nothing is copied.
        change(Arc::make_mut(&mut self.config));
        self
    }

    /// Lets a message wait so long for its turn, in the order of arrival among those that count against the same keys.
    /// Without this a stream ends at once.
    ///
    /// Meanwhile the request's body is not read, so that the flow control of HTTP/2 holds the client back. Where the wait
    /// would be longer, or 1 024 are waiting on this layer already and one of them for the same keys, the stream ends.
    ///
    /// What a client sends meanwhile fills its connection, whose other calls stand still once the window of the connection
    /// is full. Let the window of a stream be a fraction of it: with tonic, `Server::builder()` has
    /// `initial_stream_window_size` and `initial_connection_window_size`, which are 1 MiB each by default.
    ///
    /// # Panics
    ///
    /// The body panics outside of a tokio runtime with its timer enabled, when there is something to wait for.
    #[cfg(feature = "tokio")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
    pub fn wait_up_to(mut self, patience: Duration) -> Self {
        self.patience.up_to = Some(patience);
        self
    }

    /// Which header fields tell clients about their budget where a call is denied before its response has begun.
    /// [`HeaderStyle::DRAFT_11`] unless told otherwise.
    ///
    /// # Errors
    ///
    /// Styles that write one field in two ways.
    pub fn headers(self, style: HeaderStyle) -> Result<Self, RuleError> {
        style
            .validate()
            .map_err(|wrong| RuleError::general(RuleErrorKind::RuleSet, wrong))?;
        Ok(self.with(|config| config.set_headers(style)))
    }

    /// Which requests are counted: all, unless told otherwise, as if each were gRPC.
    ///
    /// With [`Protocol::Auto`] only those that say they are gRPC or gRPC-Web, by method and content type, and everything
    /// else passes untouched: for a router that serves REST as well. tonic's services look at neither method nor content
    /// type, so that a client can then pass uncounted by saying something else. Better put the layer around the gRPC services
    /// alone. With [`Protocol::Http`] nothing is counted.
    pub fn protocol(self, protocol: Protocol) -> Self {
        self.with(|config| config.protocol = protocol)
    }

    /// Tells clients when to come back and nothing else: no rule, limit or budget.
    pub fn quiet(self) -> Self {
        self.with(|config| config.quiet = true)
    }

    /// Adds up to this many percent to each wait that a client is told, so that clients that were denied together do not
    /// come back together. The same client is told the same moment each time.
    ///
    /// # Errors
    ///
    /// More than 100, which would more than double the wait.
    pub fn retry_after_jitter(self, percent: u8) -> Result<Self, RuleError> {
        refuse_much_jitter(percent)?;
        Ok(self.with(|config| config.jitter_percent = percent))
    }

    /// How long the look-ups of a call's keys may take, all together: see
    /// [`RateLimitLayer::look_up_deadline`](crate::RateLimitLayer::look_up_deadline). Default: 200 ms.
    pub fn look_up_deadline(self, deadline: Duration) -> Self {
        self.with(|config| config.rules.look_up_deadline = deadline)
    }

    /// The least number of instances of this service that share the store: while the store fails, each counts against
    /// its share of a quota. 1 unless told otherwise. A store in memory never fails.
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

    /// The rules on their store, for code outside of calls: the same budgets.
    #[must_use]
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }
}

impl<S> Layer<S> for MessageLimitLayer {
    type Service = MessageLimit<S>;

    fn layer(&self, inner: S) -> MessageLimit<S> {
        MessageLimit::new(
            inner,
            Live::new(&self.config, Some(&self.limiter)),
            self.patience,
        )
    }
}
