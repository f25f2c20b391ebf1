//! The layer: rules for messages on a store.

use std::sync::Arc;

use tollgate_core::{Block, Limiter, RuleError, RuleErrorKind, Store};
use tower_layer::Layer;

use crate::{
    message::service::MessageLimit,
    protocol::Protocol,
    rate_limit::{
        layer_defaults::LayerDefaults,
        live_config::LiveConfig,
        rules_handle::RulesHandle,
        settings::{Settings, common_setters, live_layer},
        validation::refuse_all_off,
    },
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
    config: Arc<LiveConfig>,
}

impl MessageLimitLayer {
    /// Limits messages by these rules, with their state in `store`.
    ///
    /// The head of a call determines the key, the plan and the cost of all its messages.
    ///
    /// # Errors
    ///
    /// A rule that is invalid, that is for handlers, or that the store cannot serve. The error names it and the remedy.
    pub fn new(
        store: impl Store,
        rules: impl IntoIterator<Item: KeyedRule>,
    ) -> Result<Self, RuleError> {
        Self::replacing(&[], store, rules)
    }

    /// Limits messages by these rules in place of those of other layers and limiters on the same store: for a reload. See
    /// [`Limiter::replacing`](tollgate_core::Limiter::replacing).
    ///
    /// A call that has begun keeps its rules.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); or one of the replaced limiters is on another store.
    pub fn replacing(
        replaced: &[&Limiter],
        store: impl Store,
        rules: impl IntoIterator<Item: KeyedRule>,
    ) -> Result<Self, RuleError> {
        let rules: Vec<RequestRule> = rules.into_iter().map(Into::into).collect();
        refuse_all_off(&rules)?;
        let config = LiveConfig::new(replaced, store, refuse_unsupported, rules)?;
        Ok(Self {
            config: config.with(|settings| settings.protocol = Protocol::Grpc),
        })
    }

    /// Lets a message over the limit wait in a FIFO queue per key, for at most this time. Default: the stream ends at once.
    ///
    /// Meanwhile the request's body is not read, so that HTTP/2 flow control slows the client down. The stream ends if the wait
    /// would be longer, or if as many messages wait as [may](tollgate_core::Rule::max_waiting): 256 for the same keys.
    ///
    /// Data that the client sends meanwhile fills the window of its connection and blocks its other calls. Make the window of
    /// a stream a fraction of it: with tonic, `Server::builder()` has `initial_stream_window_size` and
    /// `initial_connection_window_size`, which are 1 MiB each by default. Of small messages a hundredth: a server closes a connection
    /// with too many small frames that are not read.
    ///
    /// A message waits while its body is polled. A handler that has asked for a message and does something else meanwhile keeps
    /// its place in the queue, and others of the same keys wait behind it.
    ///
    /// # Panics
    ///
    /// The body panics outside of a tokio runtime with its timer enabled, when there is something to wait for.
    #[cfg(feature = "tokio")]
    pub fn wait_up_to(self, max_wait: std::time::Duration) -> Self {
        self.set(|settings| settings.message_wait = Some(max_wait))
    }

    /// Which requests are counted. Default: all, as if each were gRPC.
    ///
    /// With [`Protocol::Auto`], only requests that are gRPC by their method and content type are counted, and others pass: for a
    /// router that serves REST as well. tonic's services ignore method and content type, so a client can then evade the limit
    /// with another content type. Prefer to wrap the gRPC services alone. With [`Protocol::Http`] nothing is counted.
    pub fn protocol(self, protocol: Protocol) -> Self {
        self.set(|settings| settings.protocol = protocol)
    }
}

impl LayerDefaults {
    /// A layer for messages with these defaults. It takes the store, [`headers`](MessageLimitLayer::headers),
    /// [`hide_quota`](MessageLimitLayer::hide_quota), [`retry_after_jitter`](MessageLimitLayer::retry_after_jitter),
    /// [`look_up_deadline`](MessageLimitLayer::look_up_deadline) and [`instances`](MessageLimitLayer::instances). See
    /// [`MessageLimitLayer::new`].
    ///
    /// # Errors
    ///
    /// As [`MessageLimitLayer::new`] and [`MessageLimitLayer::instances`].
    pub fn message_layer(
        &self,
        rules: impl IntoIterator<Item: KeyedRule>,
    ) -> Result<MessageLimitLayer, RuleError> {
        let layer = MessageLimitLayer::new(Arc::clone(&self.store), rules)?;
        let settings = Settings {
            protocol: Protocol::Grpc,
            headers: self.settings.headers,
            hide_quota: self.settings.hide_quota,
            jitter_percent: self.settings.jitter_percent,
            look_up_deadline: self.settings.look_up_deadline,
            instances: self.settings.instances,
            ..Settings::default()
        };
        let config = layer.config.with_settings(settings)?;
        Ok(MessageLimitLayer { config })
    }
}

live_layer!(MessageLimitLayer);
common_setters!(MessageLimitLayer);

/// The layer counts messages before a handler sees them, and they have no response of their own.
fn refuse_unsupported(rules: &[RequestRule]) -> Result<(), RuleError> {
    for rule in rules.iter().map(RequestRule::settings) {
        let wrong = if rule.key.is_none() {
            "the layer counts messages, and by_handler() is for rules that a handler checks; count with by(..)".to_owned()
        } else if let Some(call) = rule.call_about_responses() {
            format!(
                "{call} is about responses, and a message has none; put the rule into a RateLimitLayer, which counts calls"
            )
        } else if rule.rule.at_most_wait().is_some() {
            "messages wait by MessageLimitLayer::wait_up_to, for all of its rules; leave wait() out"
                .to_owned()
        } else if rule.rule.has_slots() {
            "a slot is held until a response ends, and a message has none; put the rule into a RateLimitLayer, which counts calls"
                .to_owned()
        } else if rule.rule.block_setting().is_some_and(Block::counts_settled) {
            "count_settled() counts what is settled with a response, and a message has none: count denials, or put the rule into a \
             RateLimitLayer"
                .to_owned()
        } else if rule.id.is_some() {
            "the messages of a call have one id, so that three of them would repeat the first; put the rule into a RateLimitLayer"
                .to_owned()
        } else {
            continue;
        };
        return Err(RuleError::new(RuleErrorKind::Key, rule.rule.name(), wrong));
    }
    Ok(())
}

impl<S> Layer<S> for MessageLimitLayer {
    type Service = MessageLimit<S>;

    fn layer(&self, inner: S) -> MessageLimit<S> {
        MessageLimit::new(inner, Arc::clone(&self.config))
    }
}
