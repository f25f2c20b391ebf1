//! A configuration whose rule names are in use.

use std::{num::NonZeroU32, ops::Deref, sync::Arc};

use tollgate_core::{Limiter, RuleError, RuleErrorKind, Store};

use crate::{
    header::HeaderStyle,
    rate_limit::{config::Config, request_rules::refuse_much_jitter},
    rule::RequestRule,
};

/// What a layer and its services share: the configuration, and the limiter that keeps the rule names in use.
///
/// Requests in flight hold the configuration alone, so that they do not keep a rule name from getting another quota.
#[derive(Clone, Debug)]
pub(crate) struct RegisteredConfig {
    config: Arc<Config>,
    limiter: Limiter,
}

impl RegisteredConfig {
    pub(crate) fn new(
        replaced: &[&Limiter],
        store: &dyn Store,
        rules: impl IntoIterator<Item: Into<RequestRule>>,
    ) -> Result<Arc<Self>, RuleError> {
        let mut config = Config::new(replaced, store, rules.into_iter().map(Into::into).collect())?;
        Ok(Arc::new(Self {
            limiter: config.rules.take_registered(),
            config: Arc::new(config),
        }))
    }

    /// The limiter that keeps the rule names in use.
    pub(crate) fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Changes the configuration of a layer. A layer that is being configured has no clones yet, so nothing is copied.
    pub(crate) fn with(mut self: Arc<Self>, change: impl FnOnce(&mut Config)) -> Arc<Self> {
        change(Arc::make_mut(&mut Arc::make_mut(&mut self).config));
        self
    }

    pub(crate) fn with_headers(
        self: Arc<Self>,
        style: HeaderStyle,
    ) -> Result<Arc<Self>, RuleError> {
        style
            .validate()
            .map_err(|wrong| RuleError::general(RuleErrorKind::RuleSet, wrong))?;
        Ok(self.with(|config| config.set_headers(style)))
    }

    pub(crate) fn with_jitter(self: Arc<Self>, percent: u8) -> Result<Arc<Self>, RuleError> {
        refuse_much_jitter(percent)?;
        Ok(self.with(|config| config.jitter_percent = percent))
    }

    pub(crate) fn with_instances(
        self: Arc<Self>,
        instances: NonZeroU32,
    ) -> Result<Arc<Self>, RuleError> {
        let limiter = self.limiter.shared_by(instances)?;
        let mut shared = self.with(|config| config.rules.limiter = limiter.unregistered());
        Arc::make_mut(&mut shared).limiter = limiter;
        Ok(shared)
    }
}

impl Deref for RegisteredConfig {
    type Target = Arc<Config>;

    #[inline]
    fn deref(&self) -> &Arc<Config> {
        &self.config
    }
}
