//! What is counted of one rule, under one consistency. Labels are names of rules and fixed words.

#[cfg(feature = "metrics")]
use std::sync::OnceLock;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

#[cfg(feature = "metrics")]
use metrics::{Counter, counter, gauge};
use tollgate_core::Source;
use tollgate_prefilter::Effective;

#[cfg(feature = "metrics")]
use crate::observe::names::{BOUND, DECISIONS, NEW_KEYS, NEW_KEYS_REFUSED, RESERVE};

/// The counters of one rule under one consistency.
#[derive(Debug)]
pub(crate) struct RuleCounts {
    rule: Arc<str>,
    consistency: &'static str,
    /// Units of requests that waited and gave up, and that others were behind.
    lapsed_units: AtomicU64,
    /// The most of its quotas.
    max_unreported: AtomicU64,
    reserve: AtomicU64,
    /// By who answered. Made at the first event, after the application has installed its recorder.
    #[cfg(feature = "metrics")]
    decisions: OnceLock<[Counter; 4]>,
}

impl RuleCounts {
    pub(super) fn new(rule: Arc<str>, consistency: &'static str) -> Self {
        Self {
            rule,
            consistency,
            lapsed_units: AtomicU64::new(0),
            max_unreported: AtomicU64::new(0),
            reserve: AtomicU64::new(0),
            #[cfg(feature = "metrics")]
            decisions: OnceLock::new(),
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
        &self.rule
    }

    pub(crate) fn consistency(&self) -> &'static str {
        self.consistency
    }

    /// Units that were refunded did not go back.
    pub(crate) fn lapse(&self, units: u64) {
        self.lapsed_units.fetch_add(units, Ordering::Relaxed);
    }

    pub(crate) fn lapsed_units(&self) -> u64 {
        self.lapsed_units.load(Ordering::Relaxed)
    }

    /// A check was decided.
    pub(crate) fn decided(&self, source: Source) {
        #[cfg(feature = "metrics")]
        {
            let decisions = self.decisions.get_or_init(|| {
                ["store", "deny_cache", "lease", "local"].map(|source| {
                    let (rule, consistency) = (self.name(), self.consistency);
                    counter!(DECISIONS, "rule" => rule, "consistency" => consistency, "source" => source)
                })
            });
            let place = match source {
                Source::Store => 0,
                Source::DenyCache => 1,
                Source::Lease => 2,
                Source::Local => 3,
                _ => return,
            };
            decisions[place].increment(1);
        }
        #[cfg(not(feature = "metrics"))]
        let _ = source;
    }

    /// A check has created a key. The call took a round trip, so that the handle is looked up.
    pub(crate) fn new_key(&self) {
        // Of the rule: a key has no consistency.
        #[cfg(feature = "metrics")]
        counter!(NEW_KEYS, "rule" => self.name()).increment(1);
    }

    /// A client beyond the cap on new keys went to the bucket that all such share.
    pub(crate) fn new_key_refused(&self) {
        #[cfg(feature = "metrics")]
        counter!(NEW_KEYS_REFUSED, "rule" => self.name()).increment(1);
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

    /// Sets the bounds for a number of instances: the units above the limit, and the units that may sit idle. Seldom, so that
    /// handles are looked up.
    #[cfg(feature = "metrics")]
    pub(super) fn publish_bounds(&self, instances: u32) {
        let unreported = self.max_unreported.load(Ordering::Relaxed);
        let bound = unreported.saturating_mul(u64::from(instances.max(1)));
        let reserve = self.reserve.load(Ordering::Relaxed);
        let publish = |name: &'static str, units: u64| {
            gauge!(name, "rule" => self.name(), "consistency" => self.consistency)
                .set(units as f64);
        };
        publish(BOUND, bound);
        if reserve > 0 {
            publish(RESERVE, reserve);
        }
    }

    #[cfg(feature = "metrics")]
    fn name(&self) -> Arc<str> {
        Arc::clone(&self.rule)
    }
}
