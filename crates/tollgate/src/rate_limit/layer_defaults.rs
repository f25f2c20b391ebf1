//! Settings made once for all layers of a service.

use std::{fmt, num::NonZeroU32, sync::Arc, time::Duration};

use http::StatusCode;
use tollgate_core::{RuleError, Store};

use crate::{
    header::HeaderStyle,
    protocol::Protocol,
    rate_limit::{
        config::Config,
        layer::RateLimitLayer,
        live_config::LiveConfig,
        validation::{refuse_much_jitter, refuse_style, refuse_success},
    },
    rejection::Rejection,
    rule::KeyedRule,
};

/// The settings that all layers of a service have in common, made once: the store, and how the layers answer.
///
/// [`layer`](Self::layer) makes layers with them. A layer may then change its own.
///
/// ```
/// use std::num::NonZeroU32;
///
/// use tollgate::{
///     HeaderStyle, LayerDefaults, MINUTE, MemoryStore, Quota, Rejection, Rule, key::{client_ip, header},
/// };
///
/// // In a fleet, a `RedisStore`.
/// let defaults = LayerDefaults::new(MemoryStore::new())
///     .headers(HeaderStyle::DRAFT_7)?
///     .rejection(Rejection::text())
///     .instances(NonZeroU32::MIN);
/// let api = defaults.layer([Rule::new("per-key", Quota::gcra(600, MINUTE)).by(header("x-api-key"))])?;
/// // A log-in tells guessers nothing.
/// let log_in = defaults.layer([Rule::new("log-in", Quota::gcra(5, MINUTE)).by(client_ip())])?.hide_quota();
/// # let _ = (api, log_in);
/// # Ok::<(), tollgate::RuleError>(())
/// ```
///
/// Cheap to clone. The layers that it makes share its store: a rule name is one budget in all of them.
#[must_use = "settings do nothing until they are those of a layer"]
#[derive(Clone)]
pub struct LayerDefaults {
    pub(crate) store: Arc<dyn Store>,
    headers: Option<HeaderStyle>,
    hide_quota: bool,
    rejection: Option<Rejection>,
    denied_status: Option<StatusCode>,
    protocol: Option<Protocol>,
    jitter_percent: Option<u8>,
    attach_decision: bool,
    count_preflight: bool,
    look_up_deadline: Option<Duration>,
    instances: Option<NonZeroU32>,
}

impl LayerDefaults {
    /// The defaults of layers with their state in `store`. Every setting is as in a new layer.
    pub fn new(store: impl Store) -> Self {
        Self {
            store: Arc::new(store),
            headers: None,
            hide_quota: false,
            rejection: None,
            denied_status: None,
            protocol: None,
            jitter_percent: None,
            attach_decision: false,
            count_preflight: false,
            look_up_deadline: None,
            instances: None,
        }
    }

    /// See [`RateLimitLayer::headers`].
    ///
    /// # Errors
    ///
    /// Styles that write one field in two ways.
    pub fn headers(mut self, style: HeaderStyle) -> Result<Self, RuleError> {
        refuse_style(style)?;
        self.headers = Some(style);
        Ok(self)
    }

    /// See [`RateLimitLayer::hide_quota`].
    pub fn hide_quota(mut self) -> Self {
        self.hide_quota = true;
        self
    }

    /// See [`RateLimitLayer::rejection`].
    pub fn rejection(mut self, rejection: Rejection) -> Self {
        self.rejection = Some(rejection);
        self
    }

    /// See [`RateLimitLayer::denied_status`].
    ///
    /// # Errors
    ///
    /// A status below 400, which would look like a success.
    pub fn denied_status(mut self, status: StatusCode) -> Result<Self, RuleError> {
        refuse_success(status)?;
        self.denied_status = Some(status);
        Ok(self)
    }

    /// See [`RateLimitLayer::protocol`].
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = Some(protocol);
        self
    }

    /// See [`RateLimitLayer::retry_after_jitter`].
    ///
    /// # Errors
    ///
    /// More than 100, which would more than double the wait.
    pub fn retry_after_jitter(mut self, percent: u8) -> Result<Self, RuleError> {
        refuse_much_jitter(percent)?;
        self.jitter_percent = Some(percent);
        Ok(self)
    }

    /// See [`RateLimitLayer::attach_decision`].
    pub fn attach_decision(mut self) -> Self {
        self.attach_decision = true;
        self
    }

    /// See [`RateLimitLayer::count_preflight`].
    pub fn count_preflight(mut self) -> Self {
        self.count_preflight = true;
        self
    }

    /// See [`RateLimitLayer::look_up_deadline`].
    pub fn look_up_deadline(mut self, deadline: Duration) -> Self {
        self.look_up_deadline = Some(deadline);
        self
    }

    /// See [`RateLimitLayer::instances`]. A quota whose share cannot be counted is an error of [`layer`](Self::layer).
    pub fn instances(mut self, instances: NonZeroU32) -> Self {
        self.instances = Some(instances);
        self
    }

    /// A layer with these settings that limits by these rules: see [`RateLimitLayer::new`].
    ///
    /// # Errors
    ///
    /// As [`RateLimitLayer::new`] and [`RateLimitLayer::instances`].
    pub fn layer(
        &self,
        rules: impl IntoIterator<Item: KeyedRule>,
    ) -> Result<RateLimitLayer, RuleError> {
        let layer = RateLimitLayer::new(Arc::clone(&self.store), rules)?;
        layer.configured(|config| self.of_requests(config))
    }

    /// The same whose rules may all be off: see [`RateLimitLayer::switchable`].
    ///
    /// # Errors
    ///
    /// As [`RateLimitLayer::switchable`] and [`RateLimitLayer::instances`].
    pub fn switchable_layer(
        &self,
        rules: impl IntoIterator<Item: KeyedRule>,
    ) -> Result<RateLimitLayer, RuleError> {
        let layer = RateLimitLayer::switchable(Arc::clone(&self.store), rules)?;
        layer.configured(|config| self.of_requests(config))
    }

    /// The configuration with these settings.
    fn of_requests(&self, config: &LiveConfig) -> Result<Arc<LiveConfig>, RuleError> {
        self.with(config, |config| {
            self.set_common(config);
            if let Some(rejection) = &self.rejection {
                config.set_rejection(rejection.clone());
            }
            if let Some(status) = self.denied_status {
                config.set_denied_status(status);
            }
            if let Some(protocol) = self.protocol {
                config.protocol = protocol;
            }
            if self.attach_decision {
                config.attach_always();
            }
            config.count_preflight |= self.count_preflight;
        })
    }

    /// The configuration with those of these settings that a layer for messages has.
    pub(crate) fn of_messages(&self, config: &LiveConfig) -> Result<Arc<LiveConfig>, RuleError> {
        self.with(config, |config| self.set_common(config))
    }

    fn with(
        &self,
        config: &LiveConfig,
        change: impl FnOnce(&mut Config),
    ) -> Result<Arc<LiveConfig>, RuleError> {
        match self.instances {
            Some(instances) => Ok(config.with_instances(instances)?.with(change)),
            None => Ok(config.with(change)),
        }
    }

    fn set_common(&self, config: &mut Config) {
        if let Some(style) = self.headers {
            config.set_headers(style);
        }
        config.hide_quota |= self.hide_quota;
        if let Some(percent) = self.jitter_percent {
            config.jitter_percent = percent;
        }
        if let Some(deadline) = self.look_up_deadline {
            config.rules.look_up_deadline = deadline;
        }
    }
}

impl fmt::Debug for LayerDefaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerDefaults")
            .field("store", &self.store)
            .field("headers", &self.headers)
            .field("rejection", &self.rejection)
            .finish_non_exhaustive()
    }
}
