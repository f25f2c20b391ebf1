//! The one place where everything is reported.

#[cfg(feature = "metrics")]
use std::sync::OnceLock;
use std::{
    collections::HashMap,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

#[cfg(feature = "metrics")]
use metrics::{counter, gauge};
use tokio::time::Instant;
use tollgate_core::{
    Rule, RuleSet,
    sync::{Mutex, lock},
};
use tollgate_prefilter::Effective;
#[cfg(feature = "metrics")]
use tollgate_prefilter::EngineUsage;

use crate::connection::{
    error::{CallError, CallErrorKind},
    options::NodeEvent,
};
#[cfg(feature = "metrics")]
use crate::observe::metrics::{self as names, Handles, count_node};
#[cfg(feature = "tracing")]
use crate::observe::standing::{Standings, Transition};

/// Tells metrics (feature `metrics`) and logs (feature `tracing`) what happened: a server that is lost and that is back, and mistakes
/// of the set-up now and then; never a key or a password. Without the features its calls are empty.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    /// Units of requests that waited and gave up, and that others were behind, by the names of the rules that are bound.
    lapsed_units: Mutex<HashMap<Arc<str>, Arc<AtomicU64>>>,
    #[cfg(feature = "tracing")]
    standings: Standings,
    /// What has happened in the engine, as the metrics have it already.
    #[cfg(feature = "metrics")]
    counted: Mutex<[u64; 11]>,
    #[cfg(feature = "metrics")]
    handles: OnceLock<Handles>,
}

/// An event of tracing: its level, fields, and message. Without the feature it is nothing.
macro_rules! log {
    ($level:ident: $($what:tt)*) => {
        #[cfg(feature = "tracing")]
        tracing::$level!(target: "tollgate", $($what)*);
    };
}

#[cfg_attr(
    not(all(feature = "metrics", feature = "tracing")),
    allow(unused_variables, clippy::unused_self, reason = "the features")
)]
impl Observer {
    #[cfg(feature = "metrics")]
    fn handles(&self) -> &Handles {
        self.handles.get_or_init(Handles::new)
    }

    /// Rules are bound, and counted so: each quota of each rule. Gives where the units of each rule that lapse are counted, in all rule sets
    /// that have it.
    pub(crate) fn bound(
        &self,
        rules: &RuleSet,
        effective: impl Fn(usize, usize) -> Option<Effective>,
    ) -> Box<[Arc<AtomicU64>]> {
        let mut all = lock(&self.lapsed_units);
        // Those of names that are gone; the metrics have what they counted.
        all.retain(|_, units| Arc::strong_count(units) > 1);
        let bound = rules.rules().iter().enumerate().map(|(place, rule)| {
            for plan in 0..rule.quotas() {
                if let Some(Effective::Exact(Some(why))) = effective(place, plan) {
                    let (rule, plan) = (rule.name(), rule.plan_name(plan));
                    log!(warn: rule, plan, why, "the rule is counted exactly: its quota does not support the configured consistency");
                }
            }
            Arc::clone(all.entry(Arc::clone(rule.shared_name())).or_default())
        });
        bound.collect()
    }

    /// A call is sent, or cannot be.
    pub(crate) fn sent(&self, what_for: CallFor) {
        #[cfg(feature = "metrics")]
        self.handles().calls[what_for as usize].increment(1);
    }

    /// Redis has answered a call, or not.
    pub(crate) fn called(&self, began: Instant, error: Option<&CallError>) {
        #[cfg(feature = "metrics")]
        match error {
            None => self.handles().answered.record(began.elapsed()),
            Some(error) => {
                self.handles().failed.record(began.elapsed());
                self.handles().errors[error.kind() as usize].increment(1);
            }
        }
        if let Some(error) = error {
            self.background_failed(error);
        }
    }

    /// A call has failed. Logged where it goes on until the set-up changes: no request waits for a heartbeat, or for a look at the
    /// size of the namespace, so that nothing else would tell of a right that is missing.
    pub(crate) fn background_failed(&self, error: &CallError) {
        match error.kind() {
            CallErrorKind::Misconfigured | CallErrorKind::NotWritable if self.may_log() => {
                log!(error: %error, "a call to Redis is refused, and will be until this is changed (logged at most every 10 s)");
            }
            CallErrorKind::Protocol if self.may_log() => {
                log!(error: "Redis sent a reply that is not the script's; is it behind a proxy? (logged at most every 10 s)");
            }
            _ => {}
        }
    }

    /// A settlement was lost: its request has ended already, and no one sees the failure.
    pub(crate) fn settlement_lost(&self) {
        #[cfg(feature = "metrics")]
        self.handles().settlements_lost.increment(1);
    }

    /// A check has created a key. The call took a round trip, so that the handle is looked up.
    pub(crate) fn new_key(&self, rule: &Rule) {
        #[cfg(feature = "metrics")]
        counter!(names::NEW_KEYS, "rule" => Arc::clone(rule.shared_name())).increment(1);
    }

    /// A client beyond the cap on new keys went to the bucket that all such share.
    pub(crate) fn new_key_refused(&self, rule: &Rule) {
        #[cfg(feature = "metrics")]
        counter!(names::NEW_KEYS_REFUSED, "rule" => Arc::clone(rule.shared_name())).increment(1);
    }

    /// `count` instances share the store now.
    pub(crate) fn instances(&self, count: u32) {
        #[cfg(feature = "metrics")]
        self.gauge(names::INSTANCES, f64::from(count));
    }

    /// A gauge that is set each few seconds, so that its handle is looked up.
    #[cfg(feature = "metrics")]
    fn gauge(&self, name: &'static str, value: f64) {
        self.handles();
        gauge!(name).set(value);
    }

    /// The keys of the namespace, and about how many bytes they take. `used` is the share of the memory that is in use, on the server
    /// that is nearest to its bound.
    #[cfg(feature = "metrics")]
    pub(crate) fn namespace_size(&self, keys: u64, bytes: u64, used: Option<f64>) {
        self.gauge(names::NAMESPACE_KEYS, keys as f64);
        self.gauge(names::NAMESPACE_BYTES, bytes as f64);
        if let Some(used) = used {
            self.gauge(names::MEMORY_USED, used);
        }
    }

    /// Other instances have this many other quotas for a rule of this instance. `lasting`: what there is here and elsewhere, once that
    /// has gone on for longer than a deployment takes.
    pub(crate) fn quota_conflicts(&self, rule: &str, others: usize, lasting: Option<[String; 2]>) {
        #[cfg(feature = "metrics")]
        gauge!(names::QUOTA_CONFLICTS, "rule" => rule.to_owned()).set(others as f64);
        if let Some([here, elsewhere]) = lasting {
            log!(error: rule, here, elsewhere,
                "two quotas have counted against one state for ten minutes: give the rule the same quota in every service of the \
                 namespace, or another name in one of them");
        }
    }

    /// Instances of the namespace write keys in this many other ways, and share no state with this one. `new`: those that have come.
    pub(crate) fn key_conflicts<'a>(
        &self,
        others: usize,
        here: &str,
        new: impl Iterator<Item = &'a String>,
    ) {
        #[cfg(feature = "metrics")]
        self.gauge(names::KEY_CONFLICTS, others as f64);
        for elsewhere in new {
            log!(error: here, elsewhere,
                "an instance of the namespace writes the keys of clients by another secret or partition, so that each client has \
                 two budgets: give all of them the same, or change the secret in the three steps of `Keys`");
        }
    }

    /// This process holds so much now, if it was looked at, and so much has happened to it.
    #[cfg(feature = "metrics")]
    pub(crate) fn engine(&self, usage: Option<&EngineUsage>, counts: [u64; 11]) {
        // Each change is one step.
        let mut before = lock(&self.counted);
        for (place, counter) in self.handles().events.iter().enumerate() {
            counter.increment(counts[place].saturating_sub(before[place]));
        }
        *before = counts;
        let Some(usage) = usage else { return };
        for (name, number) in [
            (names::ON_LEASE, usage.units_on_lease),
            (names::UNREPORTED, usage.units_unreported),
            (names::SLOTS_IN_USE, usage.slots_in_use),
            (names::TABLE_KEYS, usage.keys),
            (names::TABLE_BYTES, usage.bytes),
        ] {
            gauge!(name).set(number as f64);
        }
        gauge!(names::LEASED_KEYS, "kind" => "lease").set(usage.leased_keys as f64);
        gauge!(names::LEASED_KEYS, "kind" => "scheduled").set(usage.scheduled_keys as f64);
    }

    /// A request was decided without a call.
    pub(crate) fn saved_call(&self) {
        #[cfg(feature = "metrics")]
        self.handles().calls_saved.increment(1);
    }

    /// A start waits for Redis. Its caller says so seldom.
    pub(crate) fn waits(&self, since: Duration, why: &str) {
        log!(warn: ?since, why, "the start still waits for Redis");
    }

    /// Something happened to a server, or to its cluster.
    pub(crate) fn node(&self, node: &str, event: &NodeEvent) {
        #[cfg(feature = "metrics")]
        match event {
            NodeEvent::Queued(waited) => self.handles().queue.record(*waited),
            NodeEvent::RoundTrip(took) => self.handles().round_trip.record(*took),
            NodeEvent::Resent(why) => self.handles().resent[*why as usize].increment(1),
            event => count_node(node, event),
        }
        if let NodeEvent::Queued(_) | NodeEvent::RoundTrip(_) | NodeEvent::Resent(_) = event {
            return;
        }
        match event {
            #[cfg(feature = "tracing")]
            NodeEvent::Connected(peer) if self.standings.is_new_peer(node, peer) => {
                log!(info: node, %peer, "connected to Redis");
            }
            NodeEvent::NotLoggedInAnew(why) if self.may_log() => {
                log!(error: node, %why,
                    "a connection could not log in anew; it goes on until the server ends it, and tries again (logged at most every 10 s)");
            }
            NodeEvent::NotLearnt(why) if self.may_log() => {
                log!(warn: %why,
                    "no server of the cluster reported its topology; the last known one stays in use (logged at most every 10 s)");
            }
            _ => {}
        }
        #[cfg(feature = "tracing")]
        match self.standings.transition(node, event) {
            Some(Transition::Lost(why)) => {
                log!(warn: node, why, "Redis is unavailable; each rule applies its `on_store_error`");
            }
            Some(Transition::Found) => {
                log!(info: node, "Redis decides again");
            }
            None => {}
        }
    }

    /// Whether a mistake may be logged now.
    fn may_log(&self) -> bool {
        #[cfg(feature = "tracing")]
        return self.standings.may_log();
        #[cfg(not(feature = "tracing"))]
        false
    }
}

/// What a call is sent for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallFor {
    Requests,
    Settlements,
    Reports,
    /// Leases that go back without a request.
    Leases,
    Resets,
    /// What is in use of slots, without a request.
    Slots,
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
            observer.bound(&rules.expect("a valid rule"), |_, _| None)
        };
        let live = bind("live");
        for n in 0..1_000 {
            bind(&format!("gone-{n}"));
        }
        let lapsed_units = lock(&observer.lapsed_units);
        let mut names: Vec<_> = lapsed_units.keys().map(|rule| &**rule).collect();
        names.sort_unstable();
        assert_eq!(names, ["gone-999", "live"]);
        drop(live);
    }
}
