//! What the rule sets of an engine share.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use tollgate_core::{Quota, Rule, RuleSet};

use crate::{
    effective::Effective,
    engine::{events::EngineEvents, limit::Limit, limits::Limits, local::Local},
    sync::{AtomicU32, Mutex, MutexGuard, Ordering, RwLock, lock},
};

/// What the rule sets of an engine share.
pub(crate) struct EngineState {
    pub(crate) local: Local,
    pub(crate) events: Box<dyn EngineEvents>,
    /// Read from before reports are taken until they are sent.
    pub(crate) sending: RwLock<()>,
    /// By the names of rules.
    limits: Mutex<HashMap<Arc<str>, Vec<Weak<Limit>>>>,
    next_id: AtomicU32,
}

impl EngineState {
    pub(crate) fn new(local: Local, events: Box<dyn EngineEvents>) -> Self {
        Self {
            local,
            events,
            sending: RwLock::new(()),
            limits: Mutex::new(HashMap::new()),
            next_id: AtomicU32::new(0),
        }
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
        };
        let mut limits = self.limits();
        let of_name = limits.entry(Arc::clone(rule.shared_name())).or_default();
        let known = of_name.iter().filter_map(Weak::upgrade).find(is_same);
        let limit = known.unwrap_or_else(|| {
            // It would take four billion different quotas in one process for two to have the same.
            let id = self.next_id.fetch_add(1, Ordering::Relaxed);
            let limit = Arc::new(Limit::new(id, quota, effective, has_plans, wait));
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
