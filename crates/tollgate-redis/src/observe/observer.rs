//! The one place where everything is reported.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tollgate_core::{Rule, RuleSet};
#[cfg(feature = "metrics")]
use tollgate_prefilter::EngineUsage;
use tollgate_prefilter::{Effective, EngineEvents, LeaseEvent, ReportEvent, TableUsage};

#[cfg(feature = "metrics")]
use crate::observe::{meters::Meters, traffic_meters::TrafficMeters};
use crate::{
    connection::{
        error::CallError,
        event::{CallSink, NodeEvent},
    },
    observe::{
        calls::{CallFor, Stopwatch},
        events::Events,
        rule_counts::RuleCounts,
    },
};

/// Tells metrics and events what happened. Without the features it is empty, and so are its calls.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    events: Events,
    /// Those that are bound.
    rules: Mutex<Vec<Arc<RuleCounts>>>,
    units_lost: AtomicU64,
    #[cfg(feature = "metrics")]
    meters: Meters,
    #[cfg(feature = "metrics")]
    traffic: Arc<TrafficMeters>,
}

/// Counts what happens in the engine.
#[derive(Debug)]
pub(crate) struct EngineObserver(pub(crate) Arc<Observer>);

impl EngineEvents for EngineObserver {
    fn lease(&self, event: LeaseEvent) {
        #[cfg(feature = "metrics")]
        self.0.meters.lease(event);
        #[cfg(not(feature = "metrics"))]
        let _ = event;
    }

    fn reports(&self, event: ReportEvent, count: usize) {
        #[cfg(feature = "metrics")]
        self.0.meters.reports(event, count);
        #[cfg(not(feature = "metrics"))]
        let _ = (event, count);
    }

    fn units_lost(&self, units: u64) {
        self.0.lose_units(units);
    }
}

impl Observer {
    /// Rules are bound, and counted so: each quota of each rule. Gives what is counted of them, by rule and plan.
    pub(crate) fn bound(
        &self,
        rules: &RuleSet,
        effective: impl Fn(usize, usize) -> Option<Effective>,
        instances: u32,
    ) -> Box<[Box<[Arc<RuleCounts>]>]> {
        // Those of names that are gone; the metrics have what they counted.
        self.rules().retain(|counts| Arc::strong_count(counts) > 1);
        let mut seen: Vec<Arc<RuleCounts>> = Vec::new();
        let bound = rules.rules().iter().enumerate().map(|(place, rule)| {
            let plans = (0..rule.quotas()).map(|plan| {
                let effective = effective(place, plan).unwrap_or(Effective::Exact(None));
                if let Effective::Exact(Some(why)) = &effective {
                    self.exact(rule, plan, why);
                }
                let counts = self.rule(rule.shared_name(), RuleCounts::label(&effective));
                let anew = !seen.iter().any(|other| Arc::ptr_eq(other, &counts));
                counts.bind(&effective, anew);
                seen.push(Arc::clone(&counts));
                counts
            });
            plans.collect()
        });
        let bound = bound.collect();
        self.publish_bounds(instances);
        bound
    }

    fn rule(&self, name: &Arc<str>, consistency: &'static str) -> Arc<RuleCounts> {
        let mut rules = self.rules();
        let known = rules
            .iter()
            .find(|rule| *rule.rule() == *name && rule.consistency() == consistency);
        match known {
            Some(rule) => Arc::clone(rule),
            None => {
                let rule = Arc::new(RuleCounts::new(Arc::clone(name), consistency));
                rules.push(Arc::clone(&rule));
                rule
            }
        }
    }

    /// What is counted of every rule so far.
    pub(crate) fn rules(&self) -> MutexGuard<'_, Vec<Arc<RuleCounts>>> {
        // Each change is one step.
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A rule is counted exactly, because its quota does not support its consistency.
    #[cold]
    fn exact(&self, rule: &Rule, plan: usize, why: &str) {
        self.events.exact(rule.name(), rule.plan_name(plan), why);
    }

    /// Publishes by how much `instances` instances may exceed each limit.
    pub(crate) fn publish_bounds(&self, instances: u32) {
        #[cfg(feature = "metrics")]
        for rule in &*self.rules() {
            rule.publish_bounds(instances);
        }
        #[cfg(not(feature = "metrics"))]
        let _ = instances;
    }

    /// A call is sent, or cannot be.
    #[inline]
    pub(crate) fn sent(&self, what_for: CallFor) {
        #[cfg(feature = "metrics")]
        self.meters.sent(what_for);
        #[cfg(not(feature = "metrics"))]
        let _ = what_for;
    }

    /// Redis has answered a call, or not.
    #[inline]
    pub(crate) fn called(&self, stopwatch: Stopwatch, error: Option<&CallError>) {
        #[cfg(feature = "metrics")]
        self.meters.called(stopwatch, error);
        #[cfg(not(feature = "metrics"))]
        let _ = stopwatch;
        if let Some(error) = error {
            self.events.failed(error);
        }
    }

    /// Redis has answered something that is no reply of the script.
    #[cold]
    pub(crate) fn misunderstood(&self) {
        #[cfg(feature = "metrics")]
        self.meters.misunderstood();
        self.events.misunderstood();
    }

    /// A settlement was lost: its request has ended already, and no one sees the failure.
    pub(crate) fn settlement_lost(&self) {
        #[cfg(feature = "metrics")]
        self.meters.settlement_lost();
    }

    /// `count` instances share the store now.
    pub(crate) fn instances(&self, count: u32) {
        #[cfg(feature = "metrics")]
        self.meters.instances(count);
        self.publish_bounds(count);
    }

    /// A heartbeat has failed, or a look at the size of the namespace. No request waits for it, so that nothing else would tell
    /// of a right that is missing.
    pub(crate) fn background_failed(&self, error: &CallError) {
        self.events.failed(error);
    }

    /// The keys of the namespace, and about how many bytes they take. `used` is the share of the memory that is in use, on the server
    /// that is nearest to its bound.
    #[cfg(feature = "metrics")]
    pub(crate) fn namespace_size(&self, keys: u64, bytes: u64, used: Option<f64>) {
        self.meters.namespace_size(keys, bytes, used);
    }

    /// Other instances have this many other quotas for a rule of this instance.
    pub(crate) fn quota_conflicts(&self, rule: &str, others: usize) {
        #[cfg(feature = "metrics")]
        self.meters.quota_conflicts(rule, others);
        #[cfg(not(feature = "metrics"))]
        let _ = (rule, others);
    }

    /// Another instance has had another quota for a rule for longer than a deployment takes.
    #[cold]
    pub(crate) fn quotas_differ(&self, rule: &str, here: &str, elsewhere: &str, since: Duration) {
        self.events.quotas_differ(rule, here, elsewhere, since);
    }

    /// Instances of the namespace write keys in this many other ways, and share no state with this one.
    pub(crate) fn key_conflicts(&self, others: usize) {
        #[cfg(feature = "metrics")]
        self.meters.key_conflicts(others);
        #[cfg(not(feature = "metrics"))]
        let _ = others;
    }

    /// An instance that writes keys otherwise has come.
    #[cold]
    pub(crate) fn keys_differ(&self, here: &str, elsewhere: &str) {
        self.events.keys_differ(here, elsewhere);
    }

    /// This process holds so much now.
    #[cfg(feature = "metrics")]
    pub(crate) fn usage(&self, usage: &EngineUsage) {
        self.meters.usage(usage);
    }

    /// A request was decided without a call.
    #[inline]
    pub(crate) fn saved_call(&self) {
        #[cfg(feature = "metrics")]
        self.meters.saved_call();
    }

    /// What became of slots since the last call: keys that were reported, grants that were void, requests that outlived their slots;
    /// and the slots in use.
    pub(crate) fn slots(&self, counts: [u64; 3], in_use: u64) {
        #[cfg(feature = "metrics")]
        self.meters.slots(counts, in_use);
        #[cfg(not(feature = "metrics"))]
        let _ = (counts, in_use);
    }

    /// The table of slots is so large now.
    pub(crate) fn slot_table(&self, usage: TableUsage) {
        #[cfg(feature = "metrics")]
        self.meters.slot_table(usage);
        #[cfg(not(feature = "metrics"))]
        let _ = usage;
    }

    /// Redis may not have counted these units, and they are not reported again.
    #[cold]
    pub(crate) fn lose_units(&self, units: u64) {
        self.units_lost.fetch_add(units, Ordering::Relaxed);
        #[cfg(feature = "metrics")]
        self.meters.reports_lost_units(units);
    }

    /// The units that Redis may not have counted, and that are not reported again.
    pub(crate) fn units_lost(&self) -> u64 {
        self.units_lost.load(Ordering::Relaxed)
    }

    /// A start waits for Redis.
    pub(crate) fn waits(&self, since: Duration, why: &str) {
        self.events.waits(since, why);
    }

    /// What counts calls on their way.
    pub(crate) fn calls(&self) -> CallSink {
        #[cfg(feature = "metrics")]
        return Some({
            let traffic = Arc::clone(&self.traffic);
            Arc::new(move |event| traffic.count(event))
        });
        #[cfg(not(feature = "metrics"))]
        None
    }

    /// Something happened to a connection.
    pub(crate) fn node(&self, node: &str, event: &NodeEvent) {
        #[cfg(feature = "metrics")]
        self.meters.node(node, event);
        self.events.node(node, event);
    }

    /// A server is no longer part of the cluster.
    pub(crate) fn node_left(&self, node: &str) {
        self.events.node_left(node);
    }

    /// No server could say what the cluster is.
    pub(crate) fn not_learnt(&self, why: &str) {
        self.events.not_learnt(why);
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{MINUTE, Quota};

    use super::*;

    #[test]
    fn nothing_is_kept_of_names_that_are_gone() {
        let observer = Observer::default();
        let bind = |name: &str| {
            let rules = RuleSet::new([Rule::new(name, Quota::gcra(5, MINUTE))]);
            observer.bound(&rules.expect("a valid rule"), |_, _| None, 1)
        };
        let live = bind("live");
        for n in 0..1_000 {
            bind(&format!("gone-{n}"));
        }
        let names = |rules: &[Arc<RuleCounts>]| {
            let names = rules.iter().map(|rule| rule.rule().to_string());
            names.collect::<Vec<_>>()
        };
        assert_eq!(names(&observer.rules()), ["live", "gone-999"]);
        drop(live);
    }
}
