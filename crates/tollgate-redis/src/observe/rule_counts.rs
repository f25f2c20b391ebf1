//! What is counted of one rule, under one consistency.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tollgate_core::{Source, Tick};
use tollgate_prefilter::Effective;

use crate::observe::labels::Labels;
#[cfg(feature = "metrics")]
use crate::observe::rule_meters::RuleMeters;

/// The counters of one rule under one consistency: for the metrics, and for callers that read the meter in code.
#[derive(Debug)]
pub(crate) struct RuleCounts {
    labels: Labels,
    pub(crate) followed: AtomicU64,
    pub(crate) over_admitted: AtomicU64,
    pub(crate) falsely_refused: AtomicU64,
    pub(crate) dropped: AtomicU64,
    /// Units of requests that waited and gave up, and that others were behind.
    lapsed_units: AtomicU64,
    /// Since when the meter has lost no event; 0: it is off.
    whole_since: AtomicU64,
    /// The most of its quotas.
    max_unreported: AtomicU64,
    reserve: AtomicU64,
    #[cfg(feature = "metrics")]
    meters: RuleMeters,
}

impl RuleCounts {
    pub(super) fn new(rule: Arc<str>, consistency: &'static str) -> Self {
        Self {
            labels: Labels { rule, consistency },
            followed: AtomicU64::new(0),
            over_admitted: AtomicU64::new(0),
            falsely_refused: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            lapsed_units: AtomicU64::new(0),
            whole_since: AtomicU64::new(0),
            max_unreported: AtomicU64::new(0),
            reserve: AtomicU64::new(0),
            #[cfg(feature = "metrics")]
            meters: RuleMeters::default(),
        }
    }

    /// What a consistency is called in labels.
    pub(super) fn label(effective: &Effective) -> &'static str {
        match effective {
            Effective::Leased(_) => "leased",
            Effective::Eventual(_) => "eventual",
            _ => "exact",
        }
    }

    pub(crate) fn rule(&self) -> &Arc<str> {
        &self.labels.rule
    }

    pub(crate) fn consistency(&self) -> &'static str {
        self.labels.consistency
    }

    /// Whether the meter follows the rule, or has.
    pub(crate) fn is_followed(&self) -> bool {
        self.whole_since.load(Ordering::Relaxed) > 0
    }

    /// The meter follows from now on, if it has not before.
    pub(crate) fn follow(&self, now: Tick) {
        let _ =
            self.whole_since
                .compare_exchange(0, now.max(1), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether the meter has lost no event for as long as `memory`.
    pub(crate) fn is_whole(&self, now: Tick, memory: Tick) -> bool {
        now >= self
            .whole_since
            .load(Ordering::Relaxed)
            .saturating_add(memory)
    }

    /// Audited requests: the units above the limit, and the units denied falsely.
    pub(crate) fn audited(&self, requests: u64, over: u64, falsely: u64) {
        self.followed.fetch_add(requests, Ordering::Relaxed);
        self.over_admitted.fetch_add(over, Ordering::Relaxed);
        self.falsely_refused.fetch_add(falsely, Ordering::Relaxed);
        #[cfg(feature = "metrics")]
        self.meters.audited(&self.labels, requests, over, falsely);
    }

    /// The account does not know of all that was let through.
    pub(crate) fn not_whole(&self, now: Tick) {
        self.whole_since.store(now.max(1), Ordering::Relaxed);
    }

    /// Requests were not followed, or not to the end.
    pub(crate) fn dropped(&self, requests: u64) {
        self.dropped.fetch_add(requests, Ordering::Relaxed);
        #[cfg(feature = "metrics")]
        self.meters.dropped(&self.labels, requests);
    }

    /// Units that were refunded did not go back.
    pub(crate) fn lapse(&self, units: u64) {
        self.lapsed_units.fetch_add(units, Ordering::Relaxed);
    }

    pub(crate) fn lapsed_units(&self) -> u64 {
        self.lapsed_units.load(Ordering::Relaxed)
    }

    /// A check was decided.
    #[inline]
    pub(crate) fn decided(&self, source: Source) {
        #[cfg(feature = "metrics")]
        self.meters.decided(&self.labels, source);
        #[cfg(not(feature = "metrics"))]
        let _ = source;
    }

    /// A check has created a key.
    pub(crate) fn new_key(&self) {
        #[cfg(feature = "metrics")]
        self.meters.new_key(&self.labels);
    }

    /// A client beyond the cap on new keys went to the bucket that all such share.
    pub(crate) fn new_key_refused(&self) {
        #[cfg(feature = "metrics")]
        self.meters.new_key_refused(&self.labels);
    }

    /// One of the rule's quotas is counted so. `anew` where it is the first.
    pub(crate) fn bind(&self, effective: &Effective, anew: bool) {
        let (unreported, reserve) = match effective {
            Effective::Leased(terms) => (0, terms.reserve()),
            Effective::Eventual(terms) => (terms.max_unreported(), 0),
            _ => (0, 0),
        };
        for (most, units) in [(&self.max_unreported, unreported), (&self.reserve, reserve)] {
            if anew {
                most.store(units, Ordering::Relaxed);
            } else {
                most.fetch_max(units, Ordering::Relaxed);
            }
        }
    }

    /// Sets the bounds for a number of instances: the units above the limit, and the units that may sit idle.
    #[cfg(feature = "metrics")]
    pub(super) fn publish_bounds(&self, instances: u32) {
        let unreported = self.max_unreported.load(Ordering::Relaxed);
        let bound = unreported.saturating_mul(u64::from(instances.max(1)));
        RuleMeters::bounds(&self.labels, bound, self.reserve.load(Ordering::Relaxed));
    }
}
