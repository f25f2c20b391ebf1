//! The layer: rules for messages on a store.

use std::sync::Arc;

use tollgate_core::{Block, Limiter, RuleError, RuleErrorKind, Store};
use tower_layer::Layer;

use crate::{
    message::service::MessageLimit,
    protocol::Protocol,
    rate_limit::{
        live_config::{LiveConfig, ServiceConfig},
        rules_handle::RulesHandle,
        settings::{Settings, live_layer},
    },
    request_rule::{KeyedRule, RequestRule},
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
        let config = LiveConfig::new(store, count_messages, rules)?;
        Ok(Self {
            config: config.with(|settings| settings.protocol = Protocol::Grpc),
        })
    }

    /// Lets each message over the limit wait in a FIFO queue per key, for at most this time. Default: the stream ends at once.
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

live_layer!(MessageLimitLayer);

/// The layer counts messages before a handler sees them, and they have no response of their own.
fn count_messages(rules: &mut [RequestRule]) -> Result<(), RuleError> {
    for rule in rules {
        rule.counts_messages();
        let rule = rule.settings();
        let blocks = rule.rule.block_setting();
        let wrong = if rule.key.is_none() {
            "by_handler() is for rules that a handler checks; count with by(..)"
        } else if rule.call_about_responses().is_some() {
            "count_if and cost_by_response are about responses; put the rule into a RateLimitLayer, which counts calls"
        } else if rule.rule.at_most_wait().is_some() {
            "messages wait by MessageLimitLayer::wait_up_to, for all of its rules; leave wait() out"
        } else if rule.rule.has_slots() {
            "a slot is held until a response ends; put the rule into a RateLimitLayer, which counts calls"
        } else if blocks.is_some_and(Block::counts_settled) {
            "count_settled() counts what is settled with a response; count denials, or put the rule into a RateLimitLayer"
        } else if rule.id.is_some() {
            "the messages of a call have one id, so that three of them would repeat the first; put the rule into a RateLimitLayer"
        } else {
            continue;
        };
        let wrong = format!("the layer counts messages, which have no response: {wrong}");
        return Err(RuleError::new(RuleErrorKind::Key, rule.rule.name(), wrong));
    }
    Ok(())
}

impl<S> Layer<S> for MessageLimitLayer {
    type Service = MessageLimit<S>;

    fn layer(&self, inner: S) -> MessageLimit<S> {
        let config = ServiceConfig::new(Arc::clone(&self.config));
        MessageLimit { inner, config }
    }
}
