//! One quota of one rule.

use std::{collections::VecDeque, time::Duration};

use tollgate_core::{AlgorithmKind, Block, Quota, Rule, Tick, store::Fingerprint};

use crate::{
    denials::Denials,
    effective::Effective,
    lease::terms::LeaseTerms,
    local_usage::ReportTerms,
    sync::{AtomicBool, AtomicUsize, Mutex, Ordering, lock},
    table::key_table::TableKey,
};

/// One quota of one rule, with its consistency.
///
/// Rule sets that have the same rule with the same quota share it, so leases, local usage and denials outlive each of them.
pub(crate) struct Limit {
    /// No other limit of the engine has it.
    pub(crate) id: u32,
    /// The number of its rule, by the name.
    rule: u32,
    pub(crate) quota: Quota,
    pub(crate) effective: Effective,
    /// If it is leased, and is not a bucket.
    pub(crate) windows: Option<Windows>,
    pub(crate) denials: Denials,
    /// Whether its rule has other quotas, for other plans.
    pub(crate) has_plans: bool,
    /// How long requests wait for it at most.
    pub(crate) wait: Option<Duration>,
    /// Whether units of it may be owed.
    has_debt: bool,
    /// When its rule blocks keys.
    pub(crate) block: Option<Block>,
    /// Keys of which something may have to be sent: they have a lease, or unreported units.
    listed: Mutex<Listed>,
    has_listed: AtomicBool,
    /// Held by who goes through them: meanwhile keys are missing that stay.
    visiting: Mutex<()>,
    /// How many rule sets that are in use have it.
    in_use: AtomicUsize,
    /// How many rule sets have it, in use or retired.
    bound: AtomicUsize,
}

impl Limit {
    /// One of a rule's quotas; its own limit if `id` is that of no other.
    pub(crate) fn new(id: u32, rule: &Rule, quota: Quota, effective: Effective) -> Self {
        let has_plans = rule.quotas() > 1 || rule.has_variable_quota();
        let wait = rule.at_most_wait().filter(|_| !rule.has_slots());
        let has_debt = rule.debt_of() > 0;
        Self {
            id,
            rule: number_of(rule.name()),
            wait,
            block: rule.block_setting().cloned(),
            windows: Windows::new(&quota, &effective),
            denials: Denials::new(&quota, has_plans, wait, has_debt),
            has_debt,
            quota,
            effective,
            has_plans,
            listed: Mutex::default(),
            has_listed: AtomicBool::new(false),
            visiting: Mutex::new(()),
            in_use: AtomicUsize::new(0),
            bound: AtomicUsize::new(0),
        }
    }

    /// Whether it is the limit of a rule with this quota and consistency.
    pub(crate) fn is_of(&self, rule: &Rule, quota: &Quota, effective: &Effective) -> bool {
        self.quota == *quota
            && self.effective == *effective
            && self.has_plans == (rule.quotas() > 1 || rule.has_variable_quota())
            && self.wait == rule.at_most_wait().filter(|_| !rule.has_slots())
            && self.has_debt == (rule.debt_of() > 0)
            && self.block.as_ref() == rule.block_setting()
    }

    /// Where what is kept of a key is.
    #[inline]
    pub(crate) fn at(&self, key: Fingerprint) -> TableKey {
        TableKey::new(self.rule, key)
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
            Effective::Eventual(terms) => Some((terms.interval / 2).clamp(SHORTEST, LEASES)),
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
        self.report_terms().is_some() && self.has_listed.load(Ordering::Relaxed)
    }

    /// Something may have to be sent of a key from now on.
    pub(crate) fn list(&self, key: Fingerprint) {
        let mut listed = lock(&self.listed);
        listed.keys.push_back(key);
        self.has_listed.store(true, Ordering::Relaxed);
    }

    /// All listed keys are to be visited anew. Those that are left from before come first.
    pub(crate) fn begin_visits(&self) {
        let mut listed = lock(&self.listed);
        listed.unvisited = listed.keys.len();
    }

    /// Whether keys are left to visit.
    pub(crate) fn has_visits(&self) -> bool {
        lock(&self.listed).unvisited > 0
    }

    /// Visits up to `most` of the keys that are left, or all anew, and gives how many. Those for which `visit` returns `Visit::Keep` are
    /// visited again next time.
    pub(crate) fn visit(
        &self,
        most: Option<usize>,
        mut visit: impl FnMut(Fingerprint) -> Visit,
    ) -> usize {
        let _visiting = lock(&self.visiting);
        if most.is_none() {
            self.begin_visits();
        }
        let (mut kept, mut visited) = (Vec::new(), 0);
        let most = most.unwrap_or(usize::MAX).min(lock(&self.listed).unvisited);
        while visited < most {
            let next = {
                let mut listed = lock(&self.listed);
                listed.unvisited = listed.unvisited.saturating_sub(1);
                listed.keys.pop_front()
            };
            let Some(key) = next else { break };
            match visit(key) {
                Visit::Keep => kept.push(key),
                Visit::Drop => {}
                Visit::Stop => {
                    lock(&self.listed).keys.push_front(key);
                    break;
                }
            }
            visited += 1;
        }
        let mut listed = lock(&self.listed);
        listed.keys.extend(kept);
        self.has_listed
            .store(!listed.keys.is_empty(), Ordering::Relaxed);
        visited
    }
}

/// The number of a rule, by its name. Two rules count by one key in a partition by key alone, and share a number once in four billion.
pub(crate) fn number_of(rule: &str) -> u32 {
    // FNV-1a.
    rule.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// Keys of which something may have to be sent. The first ones are yet to be visited.
#[derive(Debug, Default)]
struct Listed {
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

impl Visit {
    pub(crate) fn keep(stays: bool) -> Self {
        if stays { Self::Keep } else { Self::Drop }
    }
}

// The windows of a quota that is granted, by the store's clock.

/// How long a window is, and in how many of them its units weigh.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows {
    length: Tick,
    weighs: u64,
}

impl Windows {
    /// `None`: the quota is not granted, or is a bucket.
    pub(crate) fn new(quota: &Quota, effective: &Effective) -> Option<Self> {
        let Effective::Leased(terms) = effective else {
            return None;
        };
        let length = terms.window.filter(|length| *length > 0)?;
        let weighs = match quota.algorithm() {
            // For the window after it too.
            AlgorithmKind::SlidingWindow => 2,
            _ => 1,
        };
        Some(Self { length, weighs })
    }

    /// Until when the units weigh that are counted in the window of this number.
    pub(crate) fn counts_until(self, window: u64) -> Tick {
        let after = window.saturating_add(self.weighs);
        after.saturating_mul(self.length)
    }

    /// Whether units of a window weigh in the next one too.
    pub(crate) fn slide(self) -> bool {
        self.weighs > 1
    }

    /// The number of the window whose units weigh until this time, which is known to half a window.
    pub(crate) fn that_counts_until(self, until: Tick) -> Option<u64> {
        let after = until.saturating_add(self.length / 2) / self.length;
        after.checked_sub(self.weighs)
    }
}
