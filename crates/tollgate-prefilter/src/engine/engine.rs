//! What a process decides locally in front of a shared store.

use std::{collections::HashMap, sync::Arc};

use tollgate_core::Tick;

use crate::{
    engine::{
        entry::Entry,
        limit::{Limit, LimitTerms, SLACK},
    },
    slots::{SlotQueue, SlotTerms},
    sync::{AtomicI64, AtomicU32, AtomicU64, Mutex, Ordering, RwLock, lock},
    table::{KeyTable, TableKey},
};

/// What a process decides locally in front of a shared store: its leases, its local usage, the denials it has seen, and its slots.
///
/// A store has one engine. Each rule set of the store is [bound](crate::LocalRules::new) to it. Rule sets that have the same rule, with the
/// same quota and consistency, share its leases and denials, so a rule set that replaces another one keeps them.
///
/// Nothing here does I/O, and the time is passed in. All times are ticks of a process clock that goes on while the machine
/// sleeps.
pub struct Engine {
    pub(crate) keys: KeyTable<Entry>,
    pub(crate) store_time: StoreTime,
    /// The last time that was given to a query or a reply.
    last: AtomicU64,
    counts: [AtomicU64; 11],
    /// When units last came back, by the hash of their state: a denial of a query that was sent before says nothing of them.
    came_back: Box<[AtomicU64]>,
    pub(crate) slots: Mutex<SlotQueue>,
    /// Read from before reports are taken until they are sent.
    pub(crate) sending: RwLock<()>,
    /// By the names of rules.
    limits: Mutex<HashMap<Arc<str>, Vec<Arc<Limit>>>>,
    next_id: AtomicU32,
}

/// So many that few keys share one.
const CELLS: usize = 1_024;

/// When a query was sent: by the clock, and by a time that no other query or reply has, so that their order is known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SentAt {
    pub(crate) at: Tick,
    pub(crate) order: Tick,
}

impl Engine {
    /// The keys for which a table usually has room.
    pub const KEYS: usize = 1 << 18;

    /// An engine without rules, with room for so many keys. The store decides each request of a key that finds none, and its requests get
    /// no slots. If it `learns` denials, there is room for those of a quarter as many. `slot_terms`: how long the store knows the slots of
    /// this process.
    pub fn new(keys: usize, learns: bool, slot_terms: SlotTerms) -> Arc<Self> {
        Arc::new(Self {
            keys: KeyTable::new(keys, learns),
            store_time: StoreTime::default(),
            last: AtomicU64::new(0),
            counts: Default::default(),
            came_back: (0..CELLS).map(|_| AtomicU64::new(0)).collect(),
            slots: Mutex::new(SlotQueue::new(slot_terms)),
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

    /// The same, once the store has replied.
    pub fn heard_store_now(&self, now: Tick) -> Option<Tick> {
        let is_heard = self.store_time.since.load(Ordering::Relaxed) > 0;
        is_heard.then(|| self.store_now(now))
    }

    /// How often each [event](EngineEvent) has happened so far, in their order.
    pub fn counts(&self) -> [u64; 11] {
        let counts = self.counts.each_ref();
        counts.map(|count| count.load(Ordering::Relaxed))
    }

    pub(crate) fn count(&self, event: EngineEvent, count: u64) {
        if count > 0 {
            self.counts[event as usize].fetch_add(count, Ordering::Relaxed);
        }
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

    /// More may be left of a state by now than a denial says, also one that is on its way.
    pub(crate) fn unlearn(&self, at: TableKey) {
        let order = self.order(0);
        self.came_back[at.key[0] as usize % CELLS].fetch_max(order, Ordering::Relaxed);
        self.keys.unlearn(at);
    }

    /// When units of a state last came back, or of another one with such a hash.
    pub(crate) fn came_back(&self, at: TableKey) -> Tick {
        self.came_back[at.key[0] as usize % CELLS].load(Ordering::Relaxed)
    }

    /// The limit of a rule of this name on these terms: that of another rule set, or a new one.
    pub(crate) fn limit(&self, rule: &Arc<str>, terms: LimitTerms) -> Arc<Limit> {
        let mut limits = lock(&self.limits);
        let of_name = limits.entry(Arc::clone(rule)).or_default();
        let known = of_name.iter().find(|limit| limit.terms == terms);
        let limit = known.cloned().unwrap_or_else(|| {
            // It would take four billion different quotas in one process for two to have the same.
            let id = self.next_id.fetch_add(1, Ordering::Relaxed);
            let limit = Arc::new(Limit::new(id, rule, terms));
            of_name.push(Arc::clone(&limit));
            limit
        });
        limit.in_use.fetch_add(1, Ordering::SeqCst);
        limit
    }

    /// A retired rule set is gone. Unreported units under limits that no other rule set has are lost.
    pub(crate) fn unbind(&self, names: impl Iterator<Item = Arc<str>>) {
        let mut lost = 0;
        let mut by_name = lock(&self.limits);
        for name in names {
            if let Some(of_name) = by_name.get_mut(&name) {
                let unused = of_name.extract_if(.., |limit| Arc::strong_count(limit) == 1);
                lost += unused.map(|limit| self.give_up(&limit)).sum::<u64>();
                if of_name.is_empty() {
                    by_name.remove(&name);
                }
            }
        }
        self.count(EngineEvent::UnitLost, lost);
    }
}

tollgate_core::debug_fields!(Engine);

// What has happened in the engine, and what it holds.

/// What an [`Engine`](crate::Engine) holds at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineUsage {
    /// The units of all leases.
    pub units_on_lease: u64,
    /// Units that were admitted and that the store does not know of.
    pub units_unreported: u64,
    /// Keys with a lease that has units, scheduled ones not included.
    pub leased_keys: u64,
    /// Keys with a scheduled lease that has units.
    pub scheduled_keys: u64,
    /// The slots of requests that run.
    pub slots_in_use: u64,
    /// Keys with an entry.
    pub keys: u64,
    /// The memory of the table of keys, also that without an entry.
    pub bytes: u64,
}

/// What an [`Engine`](crate::Engine) counts.
#[derive(Clone, Copy, Debug)]
pub enum EngineEvent {
    /// A lease was requested.
    LeaseRequested,
    /// A lease was granted.
    LeaseGranted,
    /// A lease was returned.
    LeaseReturned,
    /// A lease was requested without a reply: if one was granted, its units are lost.
    LeaseLost,
    /// A report was sent.
    ReportSent,
    /// A report was certainly not carried out, and its units go with the next one.
    ReportKept,
    /// It is unknown whether a report was carried out.
    ReportLost,
    /// A unit was admitted that the store may not know of, and that is not reported again.
    UnitLost,
    /// The slots of a state were reported without a request.
    SlotsReported,
    /// A grant was not used, because a renewal was sent meanwhile or the reply came too late.
    SlotsVoided,
    /// A request ran on after the store had forgotten its slots.
    SlotsOutlived,
}

// The time by the store's clock, as far as this process knows it.

/// By how much the store's clock is ahead of this process's, to about a tenth of a second and what the quickest reply has taken.
///
/// It changes only when it is off by more than a tenth of a second, so that a time that was converted with it can be converted back.
#[derive(Debug, Default)]
pub(crate) struct StoreTime {
    ahead: AtomicI64,
    /// Since when, by this process's clock; 0 before the first reply.
    since: AtomicU64,
}

impl StoreTime {
    /// The store's clock showed `at` when it replied to a query that was sent at `sent`; the reply came at `now`.
    pub(crate) fn observe(&self, sent: Tick, now: Tick, at: Tick) {
        let ahead = i64::try_from(i128::from(at) - i128::from(sent)).unwrap_or(0);
        // A slow reply says less: the store may have looked at its clock at any time until it came.
        let slack = now.saturating_sub(sent).saturating_add(SLACK);
        if ahead.abs_diff(self.ahead.load(Ordering::Relaxed)) > slack {
            self.since.store(now, Ordering::Relaxed);
            self.ahead.store(ahead, Ordering::Relaxed);
        }
        self.since.fetch_max(1, Ordering::Relaxed);
    }

    /// The time by the store's clock.
    #[inline]
    pub(crate) fn at(&self, now: Tick) -> Tick {
        now.saturating_add_signed(self.ahead.load(Ordering::Relaxed))
    }

    /// The time by this process's clock at which [`at`](Self::at) returned this; 0 if the store's clock has jumped since.
    pub(crate) fn local(&self, at: Tick) -> Tick {
        let local = Tick::try_from(i128::from(at) - i128::from(self.ahead.load(Ordering::Relaxed)))
            .unwrap_or(0);
        if local < self.since.load(Ordering::Relaxed) {
            return 0;
        }
        local
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_converted_back_whatever_replies_came_since() {
        let time = StoreTime::default();
        time.observe(1_000_000, 1_000_500, 9_000_000);
        let at = time.at(2_000_000);
        assert_eq!(at, 10_000_000);
        time.observe(3_000_000, 3_000_500, 11_000_900);
        assert_eq!(time.local(at), 2_000_000);
    }

    #[test]
    fn a_slow_reply_moves_no_clock_that_is_right() {
        let time = StoreTime::default();
        assert_eq!(time.since.load(Ordering::Relaxed), 0);
        time.observe(1_000_000, 1_800_000, 1_804_900);
        assert_eq!(time.at(2_000_000), 2_000_000);
        assert_eq!(time.local(900_000), 900_000);
        assert_eq!(time.since.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_time_from_before_a_jump_is_unknown() {
        let time = StoreTime::default();
        time.observe(1_000_000, 1_000_500, 9_000_000);
        let at = time.at(2_000_000);
        time.observe(3_000_000, 3_000_500, 3_611_000_000);
        assert_eq!(time.local(at), 0);
        assert_eq!(time.local(time.at(4_000_000)), 4_000_000);
        // One of a second only.
        let at = time.at(4_500_000);
        time.observe(5_000_000, 5_000_500, 3_614_000_000);
        assert_eq!(time.local(at), 0);
    }
}
