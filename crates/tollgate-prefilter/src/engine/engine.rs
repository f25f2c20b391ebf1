//! What a process decides locally in front of a shared store.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Weak},
};

use tollgate_core::{Quota, Rule, RuleSet, Tick};

use crate::{
    deny::{block_cache::BlockCache, deny_cache::DenyCache},
    effective::Effective,
    engine::{
        engine_usage::EngineUsage, events::EngineEvents, limit::Limit, limits::Limits, local::Local,
    },
    sync::{AtomicU32, Mutex, MutexGuard, Ordering, RwLock, lock},
};

/// What a process decides locally in front of a shared store: its leases, its local usage, and the denials it has seen.
///
/// A store has one engine. Each rule set of the store is [bound](crate::BoundRules::new) to it. Rule sets that have the same rule, with the
/// same quota and consistency, share its leases and denials, so a rule set that replaces another one keeps them.
///
/// Nothing here does I/O, and the time is passed in. All times are ticks of a process clock that goes on while the machine
/// sleeps.
pub struct Engine {
    pub(crate) local: Local,
    pub(crate) events: Box<dyn EngineEvents>,
    /// Read from before reports are taken until they are sent.
    pub(crate) sending: RwLock<()>,
    /// By the names of rules.
    limits: Mutex<HashMap<Arc<str>, Vec<Weak<Limit>>>>,
    next_id: AtomicU32,
}

/// How an [`Engine`] works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    pub fn new(options: EngineOptions, events: Box<dyn EngineEvents>) -> Arc<Self> {
        let deny = options.deny_cache.then(|| DenyCache::new(options.keys));
        Arc::new(Self {
            local: Local::new(deny, options.keys),
            events,
            sending: RwLock::new(()),
            limits: Mutex::new(HashMap::new()),
            next_id: AtomicU32::new(0),
        })
    }

    /// The time by the store's clock, as far as this process knows it: to about a tenth of a second.
    #[must_use]
    pub fn store_now(&self, now: Tick) -> Tick {
        self.local.store_time.at(now)
    }

    /// What this process holds. It takes a look at every key.
    #[must_use]
    pub fn usage(&self, now: Tick) -> EngineUsage {
        let local = &self.local;
        let mut usage = EngineUsage::default();
        if let Some(leases) = local.leases() {
            leases.add_usage(now, &mut usage);
        }
        if let Some(reports) = local.reports() {
            reports.add_usage(&mut usage);
        }
        let blocks = local.blocks().map_or(0, BlockCache::bytes);
        usage.deny_cache_bytes = (local.deny.as_ref().map_or(0, DenyCache::bytes) + blocks) as u64;
        usage
    }

    /// The limit of a rule with this quota and consistency: that of another rule set, or a new one.
    pub(crate) fn limit(&self, rule: &Rule, quota: Quota, effective: Effective) -> Arc<Limit> {
        let has_plans = rule.quotas() > 1 || rule.has_variable_quota();
        let wait = rule.at_most_wait().filter(|_| !rule.has_slots());
        let is_same = |limit: &Arc<Limit>| {
            limit.quota == quota
                && limit.effective == effective
                && limit.has_plans == has_plans
                && limit.wait == wait
                && limit.block.as_ref().map(|(_, block)| block) == rule.block_setting()
        };
        // Two rules count by one key in a partition by key alone, and share a number once in four billion.
        let block_id = rule.name().bytes().fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        let mut limits = self.limits();
        let of_name = limits.entry(Arc::clone(rule.shared_name())).or_default();
        let known = of_name.iter().filter_map(Weak::upgrade).find(is_same);
        let limit = known.unwrap_or_else(|| {
            // It would take four billion different quotas in one process for two to have the same.
            let id = self.next_id.fetch_add(1, Ordering::Relaxed);
            let block = (block_id, rule.block_setting().cloned());
            let limit = Arc::new(Limit::new(id, quota, effective, has_plans, wait, block));
            of_name.push(Arc::downgrade(&limit));
            limit
        });
        limit.bind();
        self.local.make_room(&limit);
        limit
    }

    /// A retired rule set is gone. Unreported units under limits that no other rule set has are lost.
    pub(crate) fn unbind(&self, rules: &RuleSet, limits: &Limits) {
        let mut lost = 0;
        let mut by_name = self.limits();
        for (rule, _, limit) in limits.iter() {
            if !limit.unbind() {
                continue;
            }
            lost += self
                .local
                .reports()
                .map_or(0, |reports| reports.give_up(limit));
            let name = rules.rules()[usize::from(rule)].shared_name();
            if let Some(of_name) = by_name.get_mut(name) {
                of_name.retain(|other| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(limit)));
                if of_name.is_empty() {
                    by_name.remove(name);
                }
            }
        }
        drop(by_name);
        if lost > 0 {
            self.events.units_lost(lost);
        }
    }

    /// Waits until the reports are sent that were taken by now. The units in them can only be refunded after them.
    pub(crate) fn wait_for_reports(&self) {
        drop(self.sending.write());
    }

    fn limits(&self) -> MutexGuard<'_, HashMap<Arc<str>, Vec<Weak<Limit>>>> {
        lock(&self.limits)
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}
