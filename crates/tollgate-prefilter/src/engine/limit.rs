//! One quota of one rule.

use std::{collections::VecDeque, fmt, time::Duration};

use tollgate_core::{Block, Quota, Tick, store::Fingerprint};

use crate::{
    deny::deny_cache::Denials,
    effective::Effective,
    engine::windows::Windows,
    lease::terms::LeaseTerms,
    report::terms::ReportTerms,
    sync::{AtomicBool, AtomicUsize, Mutex, Ordering, lock},
    table::table_key::TableKey,
};

/// One quota of one rule, with its consistency.
///
/// Rule sets that have the same rule with the same quota share it, so leases, local usage and denials outlive each of them.
pub(crate) struct Limit {
    /// No other limit of the engine has it.
    pub(crate) id: u32,
    pub(crate) quota: Quota,
    pub(crate) effective: Effective,
    /// If it is leased, and is not a bucket.
    pub(crate) windows: Option<Windows>,
    pub(crate) denials: Denials,
    /// Whether its rule has other quotas, for other plans.
    pub(crate) has_plans: bool,
    /// How long requests wait for it at most.
    pub(crate) wait: Option<Duration>,
    /// When its rule blocks keys, and by what number all plans of the rule are known there.
    pub(crate) block: Option<(u32, Block)>,
    /// Keys with unreported units.
    unreported: Mutex<VecDeque<Fingerprint>>,
    has_keys: AtomicBool,
    /// Keys with a lease.
    leased: Mutex<Leased>,
    /// Held by who goes through either: meanwhile keys are missing that stay.
    visiting: Mutex<()>,
    /// How many rule sets that are in use have it.
    in_use: AtomicUsize,
    /// How many rule sets have it, in use or retired.
    bound: AtomicUsize,
}

impl Limit {
    pub(crate) fn new(
        id: u32,
        quota: Quota,
        effective: Effective,
        has_plans: bool,
        wait: Option<Duration>,
        (block_id, block): (u32, Option<Block>),
    ) -> Self {
        Self {
            id,
            wait,
            block: block.map(|block| (block_id, block)),
            windows: Windows::new(&quota, &effective),
            denials: Denials::new(&quota, has_plans, wait),
            quota,
            effective,
            has_plans,
            unreported: Mutex::new(VecDeque::new()),
            has_keys: AtomicBool::new(false),
            leased: Mutex::default(),
            visiting: Mutex::new(()),
            in_use: AtomicUsize::new(0),
            bound: AtomicUsize::new(0),
        }
    }

    /// Where what is kept of a key is.
    #[inline]
    pub(crate) fn slot(&self, key: Fingerprint) -> TableKey {
        TableKey::new(self.id, key)
    }

    /// Where it is known of a key whether it is blocked.
    #[inline]
    pub(crate) fn block_slot(&self, key: Fingerprint) -> Option<TableKey> {
        let (id, _) = self.block.as_ref()?;
        Some(TableKey::new(*id, key))
    }

    #[inline]
    pub(crate) fn lease_terms(&self) -> Option<&LeaseTerms> {
        match &self.effective {
            Effective::Leased(terms) => Some(terms),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn report_terms(&self) -> Option<&ReportTerms> {
        match &self.effective {
            Effective::Eventual(terms) => Some(terms),
            _ => None,
        }
    }

    /// How often leases and reports need maintenance, in µs; `None`: never.
    pub(crate) fn pause(&self) -> Option<Tick> {
        const LEASES: Tick = 1_000_000;
        const SHORTEST: Tick = 5_000;
        match &self.effective {
            Effective::Leased(_) => Some(LEASES),
            Effective::Eventual(terms) => Some((terms.interval() / 2).clamp(SHORTEST, LEASES)),
            Effective::Exact(_) => None,
        }
    }

    /// A rule set that has it is in use from now on.
    pub(crate) fn bind(&self) {
        self.in_use.fetch_add(1, Ordering::SeqCst);
        self.bound.fetch_add(1, Ordering::SeqCst);
    }

    /// A rule set that has it is no longer in use.
    pub(crate) fn retire(&self) {
        self.in_use.fetch_sub(1, Ordering::SeqCst);
    }

    /// A rule set that had it, and was retired, is gone. Whether it was the last.
    pub(crate) fn unbind(&self) -> bool {
        self.bound.fetch_sub(1, Ordering::SeqCst) == 1
    }

    pub(crate) fn is_in_use(&self) -> bool {
        self.in_use.load(Ordering::SeqCst) > 0
    }

    /// Whether any key may have unreported units.
    #[inline]
    pub(crate) fn has_unreported(&self) -> bool {
        self.has_keys.load(Ordering::Relaxed)
    }

    /// A key has unreported units from now on.
    pub(crate) fn add_unreported(&self, key: Fingerprint) {
        let mut due = lock(&self.unreported);
        due.push_back(key);
        self.has_keys.store(true, Ordering::Relaxed);
    }

    /// Goes through the keys with unreported units, each at most once, until `visit` says to stop. Keys for which it returns
    /// `Visit::Keep` are visited again next time.
    pub(crate) fn visit_unreported(&self, mut visit: impl FnMut(Fingerprint) -> Visit) {
        let _visiting = lock(&self.visiting);
        let mut kept = Vec::new();
        let count = lock(&self.unreported).len();
        for _ in 0..count {
            let Some(key) = lock(&self.unreported).pop_front() else {
                break;
            };
            match visit(key) {
                Visit::Keep => kept.push(key),
                Visit::Drop => {}
                Visit::Stop => {
                    lock(&self.unreported).push_front(key);
                    break;
                }
            }
        }
        let mut due = lock(&self.unreported);
        due.extend(kept);
        self.has_keys.store(!due.is_empty(), Ordering::Relaxed);
    }

    /// A key has a lease from now on.
    pub(crate) fn add_leased(&self, key: Fingerprint) {
        lock(&self.leased).keys.push_back(key);
    }

    /// All keys with leases are to be visited anew. Those that are left from before come first.
    pub(crate) fn begin_visits(&self) {
        let mut leased = lock(&self.leased);
        leased.unvisited = leased.keys.len();
    }

    /// Whether keys with leases are left to visit.
    pub(crate) fn has_visits(&self) -> bool {
        lock(&self.leased).unvisited > 0
    }

    /// Visits up to `most` of the keys that are left, and gives how many. Those for which `visit` returns `Visit::Keep` are visited
    /// again next time.
    pub(crate) fn visit_leased(
        &self,
        most: usize,
        visit: impl FnMut(Fingerprint) -> Visit,
    ) -> usize {
        let _visiting = lock(&self.visiting);
        self.visit(most, visit)
    }

    /// Visits all keys with leases, also those that were visited already.
    pub(crate) fn visit_all_leased(&self, visit: impl FnMut(Fingerprint) -> Visit) {
        let _visiting = lock(&self.visiting);
        self.begin_visits();
        self.visit(usize::MAX, visit);
    }

    /// The caller holds `visiting`.
    fn visit(&self, most: usize, mut visit: impl FnMut(Fingerprint) -> Visit) -> usize {
        let mut keys: Vec<_> = {
            let mut leased = lock(&self.leased);
            let most = most.min(leased.unvisited);
            leased.unvisited -= most;
            leased.keys.drain(..most).collect()
        };
        let visited = keys.len();
        keys.retain(|key| visit(*key) == Visit::Keep);
        lock(&self.leased).keys.extend(keys);
        visited
    }
}

/// Keys with a lease. The first ones are yet to be visited.
#[derive(Debug, Default)]
struct Leased {
    keys: VecDeque<Fingerprint>,
    /// No more than there are keys.
    unvisited: usize,
}

/// What becomes of a key that was visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    Keep,
    Drop,
    /// It was not looked at, and neither are those behind it.
    Stop,
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit")
            .field("id", &self.id)
            .field("quota", &self.quota)
            .finish_non_exhaustive()
    }
}
