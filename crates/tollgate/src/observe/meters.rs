//! Counters of a layer through the `metrics` facade.
//!
//! Labels are rule names, so their number is bounded by the code. Handles are created when a rule is first used: one created
//! before the application has installed its recorder would never count.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use metrics::{Counter, Unit, counter};
use tollgate_core::{Rule, RuleSet};

#[derive(Debug)]
pub(crate) struct Meters {
    rules: Box<[Arc<RuleMeters>]>,
    preflights: OnceLock<Counter>,
}

#[derive(Debug)]
struct RuleMeters {
    name: Arc<str>,
    handles: OnceLock<Handles>,
}

#[derive(Clone)]
struct Handles {
    keyless: Counter,
    look_up_failures: Counter,
    refunded: Counter,
    misconfigured: Counter,
}

impl std::fmt::Debug for Handles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handles(..)")
    }
}

const MISCONFIGURED: &str = "tollgate_misconfigured_total";
const KEYLESS: &str = "tollgate_keyless_requests_total";
const LOOK_UP_FAILURES: &str = "tollgate_look_up_failures_total";
const REFUNDED: &str = "tollgate_refunded_requests_total";
const PREFLIGHTS: &str = "tollgate_preflights_total";

fn describe() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        metrics::describe_counter!(
            MISCONFIGURED,
            Unit::Count,
            "Requests without a key because the service is misconfigured."
        );
        metrics::describe_counter!(
            KEYLESS,
            Unit::Count,
            "Requests without a key, whatever the rule does with them."
        );
        metrics::describe_counter!(
            LOOK_UP_FAILURES,
            Unit::Count,
            "Requests whose key look-up failed or timed out."
        );
        metrics::describe_counter!(
            REFUNDED,
            Unit::Count,
            "Requests refunded because the service did not serve them, or because their response does not count."
        );
        metrics::describe_counter!(PREFLIGHTS, Unit::Count, "CORS preflights passed uncounted.");
    });
}

impl Handles {
    fn new(name: &Arc<str>) -> Self {
        describe();
        let of_rule = |metric: &'static str| counter!(metric, "rule" => Arc::clone(name));
        Self {
            keyless: of_rule(KEYLESS),
            look_up_failures: of_rule(LOOK_UP_FAILURES),
            refunded: of_rule(REFUNDED),
            misconfigured: of_rule(MISCONFIGURED),
        }
    }
}

impl Meters {
    /// Rules with the same names `before` keep their handles.
    pub(crate) fn new(rules: &RuleSet, before: Option<&Self>) -> Self {
        let known = before.into_iter().flat_map(|before| &before.rules);
        let known: HashMap<&str, &Arc<RuleMeters>> =
            known.map(|meters| (&*meters.name, meters)).collect();
        let meters = |rule: &Rule| match known.get(rule.name()) {
            Some(known) => Arc::clone(known),
            None => Arc::new(RuleMeters {
                name: Arc::clone(rule.shared_name()),
                handles: OnceLock::new(),
            }),
        };
        Self {
            rules: rules.rules().iter().map(meters).collect(),
            preflights: before.map_or_else(OnceLock::new, |before| before.preflights.clone()),
        }
    }

    /// A request has passed a rule: its counters begin at 0, so that an increase is seen.
    #[inline]
    pub(crate) fn begin(&self, rule: u16) {
        if let Some(rule) = self.rules.get(usize::from(rule))
            && rule.handles.get().is_none()
        {
            rule.handles();
        }
    }

    pub(crate) fn keyless(&self, rule: u16) {
        self.with(rule, |handles| handles.keyless.increment(1));
    }

    pub(crate) fn look_up_failed(&self, rule: u16) {
        self.with(rule, |handles| handles.look_up_failures.increment(1));
    }

    pub(crate) fn refunded(&self, rule: u16) {
        self.with(rule, |handles| handles.refunded.increment(1));
    }

    pub(crate) fn misconfigured(&self, rule: u16) {
        self.with(rule, |handles| handles.misconfigured.increment(1));
    }

    pub(crate) fn preflight(&self) {
        self.preflights
            .get_or_init(|| {
                describe();
                counter!(PREFLIGHTS)
            })
            .increment(1);
    }

    fn with(&self, rule: u16, count: impl FnOnce(&Handles)) {
        if let Some(rule) = self.rules.get(usize::from(rule)) {
            count(rule.handles());
        }
    }
}

impl RuleMeters {
    fn handles(&self) -> &Handles {
        self.handles.get_or_init(|| Handles::new(&self.name))
    }
}
