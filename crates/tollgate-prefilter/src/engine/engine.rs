//! What a process decides locally in front of a shared store.

use std::{fmt, sync::Arc};

use tollgate_core::{RuleSet, Tick};

use crate::{
    deny::deny_cache::DenyCache,
    engine::{
        binding::Binding, bound_rules::BoundRules, engine_state::EngineState,
        engine_usage::EngineUsage, events::EngineEvents, local::Local, store_rules::StoreRules,
    },
};

/// What a process decides locally in front of a shared store: its leases, its local usage, and the denials it has seen.
///
/// A store has one engine. Each rule set of the store is [bound](Self::bind) to it. Rule sets that have the same rule, with the
/// same quota and consistency, share its leases and denials, so a rule set that replaces another one keeps them.
///
/// Nothing here does I/O, and the time is passed in. All times are ticks of a process clock that goes on while the machine
/// sleeps.
#[derive(Clone)]
pub struct Engine(Arc<EngineState>);

/// How an [`Engine`] works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineOptions {
    /// Whether denials are remembered. Default: yes.
    pub deny_cache: bool,
    /// The most keys with leases, and the most keys with local usage. The store decides each request of the others. Denials of a
    /// quarter as many are remembered, and of 65 536 at most. Default: 262 144.
    pub keys: usize,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            deny_cache: true,
            keys: 1 << 18,
        }
    }
}

impl Engine {
    /// An engine without rules. What happens in it is counted by `events`.
    #[must_use]
    pub fn new(options: EngineOptions, events: Box<dyn EngineEvents>) -> Self {
        let deny = options.deny_cache.then(|| DenyCache::new(options.keys));
        let local = Local::new(deny, options.keys);
        Self(Arc::new(EngineState::new(local, events)))
    }

    /// Binds a rule set, which is in use until it is [retired](BoundRules::retire). Bind a rule set before you retire the one
    /// that it replaces, and it keeps the leases and denials of the rules that have not changed.
    #[must_use]
    pub fn bind(&self, rules: Arc<RuleSet>, store: Box<dyn StoreRules>) -> BoundRules {
        BoundRules::new(Binding::new(Arc::clone(&self.0), rules, store))
    }

    /// The time by the store's clock, as far as this process knows it: to about a tenth of a second.
    #[must_use]
    pub fn store_now(&self, now: Tick) -> Tick {
        self.0.local.store_time.at(now)
    }

    /// What this process holds. It takes a look at every key.
    #[must_use]
    pub fn usage(&self, now: Tick) -> EngineUsage {
        let local = &self.0.local;
        let mut usage = EngineUsage::default();
        if let Some(leases) = local.leases() {
            leases.add_usage(now, &mut usage);
        }
        if let Some(reports) = local.reports() {
            reports.add_usage(&mut usage);
        }
        usage.deny_cache_bytes = local.deny.as_ref().map_or(0, DenyCache::bytes) as u64;
        usage
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}
