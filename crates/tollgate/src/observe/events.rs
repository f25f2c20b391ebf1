//! Events of set-up mistakes, once each. Never a key.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use tollgate_core::{Rule, RuleError, RuleErrorKind, RuleSet, UnknownName};

use crate::{diagnostics, observe::reported_names::ReportedNames};

/// This many requests without a key, and none with one, indicate a set-up mistake.
const KEYLESS_WARNING: u32 = 100;

#[derive(Debug)]
pub(crate) struct Events {
    rules: Box<[Arc<RuleEvents>]>,
    of_layer: Arc<LayerEvents>,
}

/// Which mistakes of a layer were reported.
#[derive(Debug, Default)]
struct LayerEvents {
    wrong_name: AtomicBool,
    applied_twice: AtomicBool,
    untranslated_grpc_web: AtomicBool,
}

/// A rule's name, and which of its mistakes were reported.
#[derive(Debug)]
struct RuleEvents {
    name: Arc<str>,
    misconfigured: AtomicBool,
    unknown_plans: ReportedNames,
    quota_refused: AtomicBool,
    too_many_quotas: AtomicBool,
    cost_above_limit: AtomicBool,
    look_up_failed: AtomicBool,
    /// Whether any request had a key.
    keyed: AtomicBool,
    /// The number of requests without a key before the first with one.
    keyless: AtomicU32,
}

impl RuleEvents {
    fn new(rule: &Rule) -> Self {
        Self {
            name: Arc::clone(rule.shared_name()),
            misconfigured: AtomicBool::new(false),
            unknown_plans: ReportedNames::default(),
            quota_refused: AtomicBool::new(false),
            too_many_quotas: AtomicBool::new(false),
            cost_above_limit: AtomicBool::new(false),
            look_up_failed: AtomicBool::new(false),
            keyed: AtomicBool::new(false),
            keyless: AtomicU32::new(0),
        }
    }
}

/// Whether this is the first time. Reads before it writes: the many later calls must not share a write.
fn is_first(reported: &AtomicBool) -> bool {
    !reported.load(Ordering::Relaxed) && !reported.swap(true, Ordering::Relaxed)
}

impl Events {
    /// What was reported of rules with the same names `before` is not reported again.
    pub(crate) fn new(rules: &RuleSet, before: Option<&Self>) -> Self {
        let known = before.into_iter().flat_map(|before| &before.rules);
        let known: HashMap<&str, &Arc<RuleEvents>> =
            known.map(|events| (&*events.name, events)).collect();
        let events = |rule: &Rule| match known.get(rule.name()) {
            Some(known) => Arc::clone(known),
            None => Arc::new(RuleEvents::new(rule)),
        };
        Self {
            rules: rules.rules().iter().map(events).collect(),
            of_layer: before.map_or_else(Arc::default, |before| Arc::clone(&before.of_layer)),
        }
    }

    fn once(
        &self,
        rule: u16,
        reported: impl Fn(&RuleEvents) -> &AtomicBool,
        report: impl FnOnce(&str),
    ) {
        if let Some(rule_events) = self.rules.get(usize::from(rule))
            && is_first(reported(rule_events))
        {
            report(&rule_events.name);
        }
    }

    /// Reports once per rule.
    pub(crate) fn misconfigured(&self, rule: u16, what: &str) {
        self.once(
            rule,
            |rule| &rule.misconfigured,
            |name| diagnostics::error(&format!("rule {name:?} finds no key: {what}")),
        );
    }

    /// A request had a key.
    #[inline]
    pub(crate) fn keyed(&self, rule: u16) {
        if let Some(rule) = self.rules.get(usize::from(rule))
            && !rule.keyed.load(Ordering::Relaxed)
        {
            rule.keyed.store(true, Ordering::Relaxed);
        }
    }

    /// A request had no key. `outcome` describes what the rule does with such requests.
    pub(crate) fn keyless(&self, rule: u16, outcome: &str) {
        let Some(rule) = self.rules.get(usize::from(rule)) else {
            return;
        };
        // `misconfigured` has reported the mistake already, with the remedy.
        if rule.keyed.load(Ordering::Relaxed)
            || rule.misconfigured.load(Ordering::Relaxed)
            || rule.keyless.load(Ordering::Relaxed) >= KEYLESS_WARNING
        {
            return;
        }
        if rule.keyless.fetch_add(1, Ordering::Relaxed) + 1 == KEYLESS_WARNING {
            diagnostics::warn(&format!(
                "rule {:?}: none of its first {KEYLESS_WARNING} requests had a key, and {outcome}; is the layer outside of the \
                 middleware that identifies clients, or is the name of a header misspelt?",
                rule.name
            ));
        }
    }

    /// A look-up failed. Reports once per rule.
    pub(crate) fn look_up_failed(&self, rule: u16, outcome: &str) {
        self.once(
            rule,
            |rule| &rule.look_up_failed,
            |name| {
                diagnostics::warn(&format!(
                    "rule {name:?}: a key was not looked up within the layer's look_up_deadline, and {outcome}"
                ));
            },
        );
    }

    /// Reports each name once, and a few names per rule.
    pub(crate) fn unknown_plan(
        &self,
        rule: u16,
        plan: &str,
        unknown: impl FnOnce() -> UnknownName,
    ) {
        if let Some(rule) = self.rules.get(usize::from(rule))
            && rule.unknown_plans.is_first(plan)
        {
            diagnostics::warn(&format!(
                "rule {:?}: {}; the request counts against the rule's own quota, as with None",
                rule.name,
                unknown()
            ));
        }
    }

    /// Reports once per rule that a quota cannot be counted, and once that there are too many.
    pub(crate) fn quota_refused(&self, rule: u16, error: &RuleError) {
        let Some(rule) = self.rules.get(usize::from(rule)) else {
            return;
        };
        let reported = match error.kind() {
            RuleErrorKind::TooManyQuotas => &rule.too_many_quotas,
            _ => &rule.quota_refused,
        };
        if is_first(reported) {
            diagnostics::error(&format!("quota_by: {error}; the rule's own quota applies"));
        }
    }

    /// Reports once per rule.
    pub(crate) fn cost_above_limit(&self, rule: u16, cost: u64, limit: u64) {
        self.once(
            rule,
            |rule| &rule.cost_above_limit,
            |name| {
                diagnostics::warn(&format!(
                    "rule {name:?}: cost_by returns {cost} units for a request, and the quota allows at most {limit} at \
                     once, so the request is always denied; cap the cost at {limit}, or use a limit or burst of at least {cost}"
                ));
            },
        );
    }

    /// Reports once.
    pub(crate) fn applied_twice(&self) {
        if is_first(&self.of_layer.applied_twice) {
            let names: Vec<_> = self
                .rules
                .iter()
                .map(|rule| format!("{:?}", rule.name))
                .collect();
            diagnostics::warn(&format!(
                "the layer with the rules {} is applied twice to one request, which is counted twice; apply it once, around \
                 the routes or around the router",
                names.join(", ")
            ));
        }
    }

    /// Reports once.
    pub(crate) fn untranslated_grpc_web(&self) {
        if is_first(&self.of_layer.untranslated_grpc_web) {
            diagnostics::error(
                "a MessageLimitLayer got a request in gRPC-Web and rejected it: put tonic_web::GrpcWebLayer outside of it, which \
                 translates such requests to gRPC",
            );
        }
    }

    /// Reports once.
    pub(crate) fn wrong_name(&self, unknown: &UnknownName) {
        if is_first(&self.of_layer.wrong_name) {
            diagnostics::error(&unknown.to_string());
        }
    }
}
