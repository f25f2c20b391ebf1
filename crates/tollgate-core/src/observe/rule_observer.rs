//! What is kept of one rule for metrics, the log and its top keys.

use std::sync::{Arc, OnceLock};

#[cfg(feature = "metrics")]
use crate::observe::{
    rule_counters::{RequestCount, RuleCounters},
    rule_metrics::RuleMetrics,
};
#[cfg(feature = "tracing")]
use crate::{
    check::Check,
    observe::events::DenialSampler,
    sync::{Mutex, lock},
};
use crate::{observe::top_keys::TopKeys, rule::Rule};

/// It costs little before the rule is used.
#[derive(Debug)]
pub(super) struct RuleObserver {
    history: Arc<RuleHistory>,
    #[cfg(feature = "metrics")]
    metrics: OnceLock<Box<RuleMetrics>>,
    pub(super) keeps_top_keys: bool,
}

/// What stays when another rule of the same name takes the place of one.
#[derive(Debug, Default)]
struct RuleHistory {
    #[cfg(feature = "metrics")]
    counters: OnceLock<Arc<RuleCounters>>,
    #[cfg(feature = "tracing")]
    denials: Mutex<DenialSampler>,
    top_keys: OnceLock<Box<TopKeys>>,
}

impl RuleObserver {
    pub(super) fn new(rule: &Rule) -> Self {
        Self::of(rule, Arc::default())
    }

    /// The observer of a rule that takes the place of `replaced`, which this observes.
    pub(super) fn succeeded_by(self: &Arc<Self>, replaced: &Rule, rule: &Rule) -> Arc<Self> {
        let keeps_top_keys = rule.keeps_top_keys() == self.keeps_top_keys;
        #[cfg(feature = "metrics")]
        let is_same = keeps_top_keys && RuleMetrics::is_same(replaced, rule);
        #[cfg(not(feature = "metrics"))]
        let (is_same, _) = (keeps_top_keys, replaced);
        match is_same {
            true => Arc::clone(self),
            false => Arc::new(Self::of(rule, Arc::clone(&self.history))),
        }
    }

    fn of(rule: &Rule, history: Arc<RuleHistory>) -> Self {
        Self {
            history,
            #[cfg(feature = "metrics")]
            metrics: OnceLock::new(),
            keeps_top_keys: rule.keeps_top_keys(),
        }
    }

    /// The top keys, from the first use on.
    pub(super) fn top_keys(&self) -> &TopKeys {
        self.history
            .top_keys
            .get_or_init(|| Box::new(TopKeys::new()))
    }

    /// The same, if the rule keeps them and there was a request.
    pub(super) fn top_keys_before(&self) -> Option<&TopKeys> {
        let top_keys = self.history.top_keys.get().map(|it| &**it);
        top_keys.filter(|_| self.keeps_top_keys)
    }

    /// What the application calls the client of a check, if it came often enough to be called.
    #[cfg(feature = "tracing")]
    pub(super) fn label(&self, check: Option<&Check>) -> Option<Arc<str>> {
        self.top_keys_before()?.label(check?)
    }

    /// A denial in this second. `Some`: it is logged, and stands for this number of denials.
    #[cfg(feature = "tracing")]
    pub(super) fn logs_denial(&self, second: u64) -> Option<u64> {
        lock(&self.history.denials).log(second)
    }

    /// The metrics, from the first use on.
    #[cfg(feature = "metrics")]
    pub(super) fn metrics(&self, rule: &Rule) -> &RuleMetrics {
        self.metrics.get_or_init(|| {
            let counters = self.history.counters.get_or_init(RuleCounters::register);
            Box::new(RuleMetrics::new(rule, counters))
        })
    }

    /// The same, if the rule was used.
    #[cfg(feature = "metrics")]
    pub(super) fn metrics_before(&self) -> Option<&RuleMetrics> {
        self.metrics.get().map(|metrics| &**metrics)
    }

    #[cfg(feature = "metrics")]
    pub(super) fn counts(&self) -> Vec<RequestCount> {
        let counters = self.history.counters.get();
        counters.map_or_else(Vec::new, |counters| counters.counts())
    }
}
