//! What a process decides locally in front of a shared store.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use tollgate_core::{Quota, Rule, Tick};

use crate::{
    effective::Effective,
    engine::{
        counts::{Counts, EngineCounts, Event},
        entry::Entry,
        limit::Limit,
        store_time::StoreTime,
    },
    slots::{slot_message::SlotTerms, state_slots::SlotQueue},
    sync::{AtomicU32, AtomicU64, Mutex, Ordering, RwLock, lock},
    table::key_table::KeyTable,
};

/// What a process decides locally in front of a shared store: its leases, its local usage, the denials it has seen, and its slots.
///
/// A store has one engine. Each rule set of the store is [bound](crate::BoundRules::new) to it. Rule sets that have the same rule, with the
/// same quota and consistency, share its leases and denials, so a rule set that replaces another one keeps them.
///
/// Nothing here does I/O, and the time is passed in. All times are ticks of a process clock that goes on while the machine
/// sleeps.
pub struct Engine {
    pub(crate) keys: KeyTable<Entry>,
    pub(crate) store_time: StoreTime,
    /// The last time that was given to a query or a reply.
    last: AtomicU64,
    pub(crate) counts: Counts,
    pub(crate) slots: Mutex<SlotQueue>,
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
    /// The most keys in the table. The store decides each request of a key that finds no room, and its requests get no slots. The deny
    /// cache has room for a quarter as many. Default: 262 144.
    pub keys: usize,
    /// How long the store knows the slots of this process. Default: 15 s.
    pub slot_terms: SlotTerms,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            deny_cache: true,
            keys: 1 << 18,
            slot_terms: SlotTerms::new(15_000_000),
        }
    }
}

/// When a query was sent: by the clock, and by a time that no other query or reply has, so that their order is known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SentAt {
    pub(crate) at: Tick,
    pub(crate) order: Tick,
}

impl Engine {
    /// An engine without rules.
    pub fn new(options: EngineOptions) -> Arc<Self> {
        Arc::new(Self {
            keys: KeyTable::new(options.keys, options.deny_cache),
            store_time: StoreTime::default(),
            last: AtomicU64::new(0),
            counts: Counts::default(),
            slots: Mutex::new(SlotQueue::new(options.slot_terms)),
            sending: RwLock::new(()),
            limits: Mutex::new(HashMap::new()),
            next_id: AtomicU32::new(1),
        })
    }

    /// The time by the store's clock, as far as this process knows it: to about a tenth of a second.
    #[inline]
    pub fn store_now(&self, now: Tick) -> Tick {
        self.store_time.at(now)
    }

    /// What has happened so far.
    pub fn counts(&self) -> EngineCounts {
        self.counts.so_far()
    }

    /// When a query is sent.
    pub(crate) fn sent(&self, now: Tick) -> SentAt {
        let order = self.order(now);
        SentAt { at: now, order }
    }

    /// A time for a query that is sent now, or a reply that comes now.
    pub(crate) fn order(&self, now: Tick) -> Tick {
        let next = |last: u64| Some(now.max(last.saturating_add(1)));
        let last = self
            .last
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        // `next` always returns a time, and the update returns the one before.
        let (Ok(last) | Err(last)) = last;
        now.max(last.saturating_add(1))
    }

    /// The limit of a rule with this quota and consistency: that of another rule set, or a new one.
    pub(crate) fn limit(&self, rule: &Rule, quota: Quota, effective: Effective) -> Arc<Limit> {
        let mut limits = lock(&self.limits);
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
    pub(crate) fn unbind<'a>(&self, limits: impl Iterator<Item = (&'a Arc<str>, &'a Arc<Limit>)>) {
        let mut lost = 0;
        let mut by_name = lock(&self.limits);
        for (name, limit) in limits.filter(|(_, limit)| limit.unbind()) {
            lost += self.give_up(limit);
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
}

tollgate_core::debug_fields!(Engine);
