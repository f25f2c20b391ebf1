//! A configuration whose rules can be replaced while requests are decided by it.

use std::{
    convert::Infallible,
    fmt,
    num::NonZeroU32,
    sync::{Arc, Weak},
};

use arc_swap::{ArcSwap, Guard};
use tollgate_core::{Limiter, RuleError, RuleErrorKind, Store};

use crate::{
    header::HeaderStyle,
    rate_limit::{
        config::Config,
        layer_rules::{Accepts, FollowRules, LayerRules, State},
        request_rules::{RequestRules, refuse_much_jitter},
    },
    rule::RequestRule,
};

/// What a layer and its services share: the configuration in force, and the limiter that keeps its rule names in use.
pub(crate) struct LiveConfig {
    current: ArcSwap<Snapshot>,
    /// Shared with the layers that were configured from the same one.
    rules: Arc<LayerRules>,
}

/// A configuration that does not change. A request is decided by one of them.
///
/// Requests in flight hold the configuration alone, so that they do not keep a rule name from getting another quota.
pub(crate) struct Snapshot {
    pub(crate) config: Arc<Config>,
    limiter: Limiter,
}

impl Snapshot {
    /// Takes the limiter that keeps the names in use out of the configuration.
    fn new(mut config: Config) -> Self {
        Self {
            limiter: config.rules.take_registered(),
            config: Arc::new(config),
        }
    }

    /// The same settings with other rules.
    ///
    /// # Errors
    ///
    /// A quota whose share for so many instances cannot be counted.
    fn with_rules(&self, mut rules: RequestRules) -> Result<Self, RuleError> {
        rules.limiter = rules.limiter.succeeding(&self.limiter)?;
        Ok(Self::new(self.config.with_rules(rules)))
    }
}

impl LiveConfig {
    pub(crate) fn new(
        replaced: &[&Limiter],
        store: impl Store,
        accepts: Accepts,
        rules: impl IntoIterator<Item: Into<RequestRule>>,
    ) -> Result<Arc<Self>, RuleError> {
        let rules: Vec<RequestRule> = rules.into_iter().map(Into::into).collect();
        accepts(&rules)?;
        let config = Config::new(replaced, &store, rules)?;
        // With the limiter that keeps the names in use.
        let rules = LayerRules::new(Arc::new(store), accepts, config.rules.clone());
        Ok(Self::following(
            &mut rules.lock(),
            Arc::clone(&rules),
            config,
        ))
    }

    /// A configuration that follows the rules of a layer, which are locked.
    fn following(state: &mut State, rules: Arc<LayerRules>, config: Config) -> Arc<Self> {
        let live = Arc::new(Self {
            current: ArcSwap::from_pointee(Snapshot::new(config)),
            rules,
        });
        let follower: Weak<Self> = Arc::downgrade(&live);
        state.add(follower);
        live
    }

    /// The configuration in force, for one request. It is held without a write that other threads share, and only for as long
    /// as the request is decided: what outlives that takes the [`config`](Snapshot::config).
    #[inline]
    pub(crate) fn load(&self) -> Guard<Arc<Snapshot>> {
        self.current.load()
    }

    /// The rules, which a handle replaces.
    pub(crate) fn rules(&self) -> &Arc<LayerRules> {
        &self.rules
    }

    /// The limiter that keeps the rule names in use.
    pub(crate) fn limiter(&self) -> Limiter {
        self.load().limiter.clone()
    }

    /// The same rules with other settings.
    pub(crate) fn with(&self, change: impl FnOnce(&mut Config)) -> Arc<Self> {
        let same = |limiter: &Limiter| Ok::<_, Infallible>(limiter.clone());
        match self.with_limiter(same, change) {
            Ok(live) => live,
            Err(never) => match never {},
        }
    }

    /// The same rules with another limiter on them, and other settings.
    fn with_limiter<E>(
        &self,
        limiter: impl FnOnce(&Limiter) -> Result<Limiter, E>,
        change: impl FnOnce(&mut Config),
    ) -> Result<Arc<Self>, E> {
        let mut state = self.rules.lock();
        let snapshot = self.current.load_full();
        let mut config = (*snapshot.config).clone();
        config.rules.limiter = limiter(&snapshot.limiter)?;
        change(&mut config);
        let rules = Arc::clone(&self.rules);
        Ok(Self::following(&mut state, rules, config))
    }

    pub(crate) fn with_headers(&self, style: HeaderStyle) -> Result<Arc<Self>, RuleError> {
        style
            .validate()
            .map_err(|wrong| RuleError::general(RuleErrorKind::RuleSet, wrong))?;
        Ok(self.with(|config| config.set_headers(style)))
    }

    pub(crate) fn with_jitter(&self, percent: u8) -> Result<Arc<Self>, RuleError> {
        refuse_much_jitter(percent)?;
        Ok(self.with(|config| config.jitter_percent = percent))
    }

    pub(crate) fn with_instances(&self, instances: NonZeroU32) -> Result<Arc<Self>, RuleError> {
        self.with_limiter(|limiter| limiter.shared_by(instances), |_| {})
    }
}

impl FollowRules for LiveConfig {
    fn follow(self: Arc<Self>, rules: RequestRules) -> Result<Box<dyn FnOnce()>, RuleError> {
        let snapshot = Arc::new(self.load().with_rules(rules)?);
        Ok(Box::new(move || self.current.store(snapshot)))
    }
}

impl fmt::Debug for LiveConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.load().config.fmt(f)
    }
}
