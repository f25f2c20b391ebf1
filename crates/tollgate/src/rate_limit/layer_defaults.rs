//! Settings made once for all layers of a service.

use std::{num::NonZeroU32, sync::Arc};

use tollgate_core::{RuleError, Store};

use crate::{
    rate_limit::{
        layer::RateLimitLayer,
        settings::{Settings, common_setters, request_setters},
    },
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
///     MINUTE, MemoryStore, Quota, Rejection, Rule, header::HeaderStyle, key::{client_ip, header},
///     service::LayerDefaults,
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
    pub(crate) settings: Settings,
}

impl LayerDefaults {
    /// The defaults of layers with their state in `store`. Every setting is as in a new layer.
    pub fn new(store: impl Store) -> Self {
        Self {
            store: Arc::new(store),
            settings: Settings::default(),
        }
    }

    fn set(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// See [`RateLimitLayer::instances`]. A quota whose share cannot be counted is an error of [`layer`](Self::layer).
    pub fn instances(self, instances: NonZeroU32) -> Self {
        self.set(|settings| settings.instances = instances)
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
        RateLimitLayer::new(Arc::clone(&self.store), rules)?.with_settings(&self.settings)
    }
}

common_setters!(LayerDefaults);
request_setters!(LayerDefaults);

tollgate_core::debug_fields!(LayerDefaults, it => store: it.store, settings: it.settings);
