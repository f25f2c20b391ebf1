//! What a process decides locally in front of a shared store.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use tollgate_core::{Quota, Rule, RuleSet, Tick};

use crate::{
    effective::Effective,
    engine::{
        counts::{Counts, EngineCounts, EngineUsage, Event},
        limit::Limit,
        local::Local,
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
    pub(crate) counts: Counts,
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
    /// The most keys of which something is kept. The store decides each request of the others. Denials of a quarter as many are
    /// remembered. Default: 262 144.
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
    /// An engine without rules.
    pub fn new(options: EngineOptions) -> Arc<Self> {
        Arc::new(Self {
            local: Local::new(options.keys, options.deny_cache),
            counts: Counts::default(),
            sending: RwLock::new(()),
            limits: Mutex::new(HashMap::new()),
            next_id: AtomicU32::new(1),
        })
    }

    /// The time by the store's clock, as far as this process knows it: to about a tenth of a second.
    pub fn store_now(&self, now: Tick) -> Tick {
        self.local.store_time.at(now)
    }

    /// What this process holds. It takes a look at every key.
    pub fn usage(&self, now: Tick) -> EngineUsage {
        self.local.usage_at(now)
    }

    /// What has happened so far.
    pub fn counts(&self) -> EngineCounts {
        self.counts.so_far()
    }

    /// The limit of a rule with this quota and consistency: that of another rule set, or a new one.
    pub(crate) fn limit(&self, rule: &Rule, quota: Quota, effective: Effective) -> Arc<Limit> {
        let mut limits = self.limits();
        let of_name = limits.entry(Arc::clone(rule.shared_name())).or_default();
        let mut known = of_name.iter().filter_map(Weak::upgrade);
        let known = known.find(|limit| limit.is_of(rule, &quota, &effective));
        let limit = known.unwrap_or_else(|| {
            // It would take four billion different quotas in one process for two to have the same.
            let id = self.next_id.fetch_add(1, Ordering::Relaxed);
            let limit = Arc::new(Limit::new(id, rule, quota, effective));
            of_name.push(Arc::downgrade(&limit));
            limit
        });
        limit.bind();
        limit
    }

    /// A retired rule set is gone. Unreported units under limits that no other rule set has are lost.
    pub(crate) fn unbind<'a>(
        &self,
        rules: &RuleSet,
        limits: impl Iterator<Item = (u16, u16, &'a Arc<Limit>)>,
    ) {
        let mut lost = 0;
        let mut by_name = self.limits();
        for (rule, _, limit) in limits {
            if !limit.unbind() {
                continue;
            }
            lost += self.local.give_up(limit);
            let name = rules.rules()[usize::from(rule)].shared_name();
            if let Some(of_name) = by_name.get_mut(name) {
                of_name.retain(|other| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(limit)));
                if of_name.is_empty() {
                    by_name.remove(name);
                }
            }
        }
        self.counts.add(Event::UnitLost, lost);
    }

    /// Waits until the reports are sent that were taken by now. The units in them can only be refunded after them.
    pub(crate) fn wait_for_reports(&self) {
        drop(self.sending.write());
    }

    fn limits(&self) -> MutexGuard<'_, HashMap<Arc<str>, Vec<Weak<Limit>>>> {
        lock(&self.limits)
    }
}

tollgate_core::debug_fields!(Engine);
