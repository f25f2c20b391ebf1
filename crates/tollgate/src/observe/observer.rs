//! What a layer reports in addition to its limiter: counters with the feature `metrics`, and set-up mistakes, once each. Never a key.

#[cfg(feature = "metrics")]
use std::sync::OnceLock;
use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU32, Ordering},
    },
};

use http::Extensions;
use tollgate_core::{
    Limiter, MAX_UNITS, Rule, RuleError, RuleErrorKind,
    sync::{Mutex, lock},
};

use crate::diagnostics;

// Labels are rule names, so their number is bounded by the code.
#[cfg(feature = "metrics")]
tollgate_core::metric_names! {
    counter KEYLESS "tollgate_keyless_requests_total" "Requests without a key, whatever the rule does with them."
    counter LOOK_UP_FAILURES "tollgate_look_up_failures_total" "Requests whose key look-up failed or timed out."
    counter REFUNDED "tollgate_refunded_requests_total"
        "Requests refunded because the service did not serve them, or because their response does not count."
    counter MISCONFIGURED_REQUESTS "tollgate_misconfigured_total" "Requests without a key because the service is misconfigured."
    counter PREFLIGHTS "tollgate_preflights_total" "CORS preflights passed uncounted."
}

/// This many requests without a key, and none with one, indicate a set-up mistake.
const KEYLESS_WARNING: u32 = 100;

/// The mistakes in computed quotas of a rule that are reported.
const QUOTA_MISTAKES: usize = 64;

/// The name of an unknown plan may come from a client.
const LONGEST_NAME: usize = 64;

/// Reports requests without a key and set-up mistakes; the limiter's reports the rest.
#[derive(Debug)]
pub(crate) struct Observer {
    rules: Box<[Arc<RuleReports>]>,
    of_layer: Arc<Reported>,
}

/// What is counted of each rule.
#[derive(Clone, Copy, Debug)]
enum Metric {
    Keyless,
    LookUpFailures,
    Refunded,
    Misconfigured,
}

/// What was reported of a rule.
#[derive(Debug, Default)]
struct RuleReports {
    name: Arc<str>,
    reported: Reported,
    /// What was said of computed quotas: each tenant may have a mistake of its own.
    quota_mistakes: Mutex<HashSet<String>>,
    /// The number of requests without a key before the first with one.
    keyless: AtomicU32,
    /// In the order of [`Metric`]. Made when the rule is first used: handles that are made before the application has installed its
    /// recorder would never count.
    #[cfg(feature = "metrics")]
    counters: OnceLock<[metrics::Counter; 4]>,
}

#[cfg(feature = "metrics")]
impl RuleReports {
    fn counters(&self) -> &[metrics::Counter; 4] {
        self.counters.get_or_init(|| {
            describe();
            let name = &self.name;
            [KEYLESS, LOOK_UP_FAILURES, REFUNDED, MISCONFIGURED_REQUESTS]
                .map(|metric| metrics::counter!(metric, "rule" => Arc::clone(name)))
        })
    }
}

/// A bit for each mistake that was reported.
#[derive(Debug, Default)]
struct Reported(AtomicU8);

const MISCONFIGURED: u8 = 1;
const COST_ABOVE_LIMIT: u8 = 1 << 1;
const LOOK_UP_FAILED: u8 = 1 << 2;
/// Any request had a key.
const KEYED: u8 = 1 << 3;
const UNKNOWN_PLAN: u8 = 1 << 4;
const TOO_MANY_QUOTAS: u8 = 1 << 5;
/// As many of its mistakes in quotas were reported as are.
const QUOTA_MISTAKES_REPORTED: u8 = 1 << 6;
const LISTED_WITHIN: u8 = 1 << 7;

// Of the layer.
const WRONG_NAME: u8 = 1;
const UNTRANSLATED_GRPC_WEB: u8 = 1 << 1;

impl Reported {
    #[inline]
    fn has(&self, mistake: u8) -> bool {
        self.0.load(Ordering::Relaxed) & mistake != 0
    }

    /// Reads before it writes: the many later calls must not share a write.
    #[inline]
    fn is_first(&self, mistake: u8) -> bool {
        !self.has(mistake) && self.0.fetch_or(mistake, Ordering::Relaxed) & mistake == 0
    }
}

impl Observer {
    /// What was reported of rules with the same names `before` is not reported again.
    pub(crate) fn new(limiter: &Limiter, before: Option<&Self>) -> Self {
        let known = before.into_iter().flat_map(|before| &before.rules);
        let known: HashMap<&str, &Arc<RuleReports>> =
            known.map(|reports| (&*reports.name, reports)).collect();
        let reports = |rule: &Rule| match known.get(rule.name()) {
            Some(known) => Arc::clone(known),
            None => Arc::new(RuleReports {
                name: Arc::clone(rule.shared_name()),
                ..RuleReports::default()
            }),
        };
        Self {
            rules: limiter.rules().rules().iter().map(reports).collect(),
            of_layer: before.map_or_else(Arc::default, |before| Arc::clone(&before.of_layer)),
        }
    }

    fn count(&self, rule: u16, metric: Metric) {
        #[cfg(feature = "metrics")]
        if let Some(rule) = self.rules.get(usize::from(rule)) {
            rule.counters()[metric as usize].increment(1);
        }
        #[cfg(not(feature = "metrics"))]
        let _ = (rule, metric);
    }

    /// The rule, where a mistake is found for the first time.
    fn first(&self, rule: u16, mistake: u8) -> Option<&RuleReports> {
        let rule = self.rules.get(usize::from(rule))?;
        rule.reported.is_first(mistake).then_some(&**rule)
    }

    /// A CORS preflight passed uncounted.
    pub(crate) fn preflight(&self) {
        #[cfg(feature = "metrics")]
        {
            describe();
            metrics::counter!(PREFLIGHTS).increment(1);
        }
    }

    /// The service is not set up for an extractor.
    pub(crate) fn misconfigured(&self, rule: u16, what: &str) {
        self.count(rule, Metric::Misconfigured);
        if let Some(RuleReports { name, .. }) = self.first(rule, MISCONFIGURED) {
            diagnostics::error(&format!("rule {name:?} finds no key: {what}"));
        }
    }

    /// A request had a key.
    #[inline]
    pub(crate) fn keyed(&self, rule: u16) {
        if let Some(rule) = self.rules.get(usize::from(rule))
            && rule.reported.is_first(KEYED)
        {
            #[cfg(feature = "metrics")]
            rule.counters();
        }
    }

    /// A request had no key. `outcome` describes what the rule does with such requests.
    pub(crate) fn keyless(&self, rule: u16, outcome: &str) {
        self.count(rule, Metric::Keyless);
        let Some(rule) = self.rules.get(usize::from(rule)) else {
            return;
        };
        // `misconfigured` has reported the mistake already, with the remedy.
        if rule.reported.has(KEYED | MISCONFIGURED)
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

    /// A look-up failed.
    pub(crate) fn look_up_failed(&self, rule: u16, outcome: &str) {
        self.count(rule, Metric::LookUpFailures);
        if let Some(RuleReports { name, .. }) = self.first(rule, LOOK_UP_FAILED) {
            diagnostics::warn(&format!(
                "rule {name:?}: a key was not looked up within the layer's look_up_deadline, and {outcome}"
            ));
        }
    }

    /// A request names a plan that its rule does not have.
    pub(crate) fn unknown_plan(&self, rule: &Rule, number: u16, plan: &str) {
        if let Some(RuleReports { name, .. }) = self.first(number, UNKNOWN_PLAN) {
            let plan: String = plan.chars().take(LONGEST_NAME).collect();
            diagnostics::warn(&format!(
                "rule {name:?}: {}; the request counts against the rule's own quota, as with None",
                RuleError::unknown("plan", &plan, rule.plan_names())
            ));
        }
    }

    /// A quota cannot be counted, or there are too many.
    pub(crate) fn quota_refused(&self, rule: u16, error: &RuleError) {
        let Some(rule) = self.rules.get(usize::from(rule)) else {
            return;
        };
        let message = || format!("quota_by: {error}; the rule's own quota applies");
        if error.kind() == RuleErrorKind::TooManyQuotas {
            if rule.reported.is_first(TOO_MANY_QUOTAS) {
                diagnostics::error(&message());
            }
        } else if !rule.reported.has(QUOTA_MISTAKES_REPORTED) {
            let message = message();
            let mut mistakes = lock(&rule.quota_mistakes);
            if mistakes.len() == QUOTA_MISTAKES {
                rule.reported.is_first(QUOTA_MISTAKES_REPORTED);
            } else if mistakes.insert(message.clone()) {
                drop(mistakes);
                diagnostics::error(&message);
            }
        }
    }

    /// A request costs more than its quota ever allows.
    pub(crate) fn cost_above_limit(&self, rule: u16, cost: u64, limit: u64) {
        if let Some(RuleReports { name, .. }) = self.first(rule, COST_ABOVE_LIMIT) {
            // No limit is above this one, and no check tells such costs apart.
            let (more, cost) = match cost > MAX_UNITS {
                true => ("more than ", MAX_UNITS),
                false => ("", cost),
            };
            diagnostics::warn(&format!(
                "rule {name:?}: cost_by returns {more}{cost} units for a request, and the quota allows at most {limit} at \
                 once, so the request is always denied; cap the cost at {limit}, or use a larger limit or burst"
            ));
        }
    }

    /// A response from within has the quota of a rule with the same name.
    pub(crate) fn listed_within(&self, rule: usize) {
        if let Some(RuleReports { name, reported, .. }) = self.rules.get(rule).map(|it| &**it)
            && reported.is_first(LISTED_WITHIN)
        {
            diagnostics::warn(&format!(
                "rule {name:?}: a response has its quota from a limiter further in; if that is the same layer, each request counts \
                 twice: apply it once; otherwise give one of the two rules another name"
            ));
        }
    }

    /// A request in gRPC-Web came to a layer for messages.
    pub(crate) fn untranslated_grpc_web(&self) {
        if self.of_layer.is_first(UNTRANSLATED_GRPC_WEB) {
            diagnostics::error(
                "a MessageLimitLayer got a request in gRPC-Web and rejected it: put tonic_web::GrpcWebLayer outside of it, which \
                 translates such requests to gRPC",
            );
        }
    }

    /// A request was refunded.
    pub(crate) fn refunded(&self, rule: u16) {
        self.count(rule, Metric::Refunded);
    }

    /// A handler checks a rule that its layer does not have.
    pub(crate) fn wrong_name(&self, unknown: &RuleError) {
        if self.of_layer.is_first(WRONG_NAME) {
            diagnostics::error(&unknown.to_string());
        }
    }
}

/// The pattern of a request's route, as axum has it: never the path, which a client writes and may hold who it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Route {
    #[cfg(all(feature = "axum", feature = "tracing"))]
    matched: Option<axum::extract::MatchedPath>,
}

impl Route {
    /// The route of a request, if denials are logged.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        let _ = extensions;
        Self {
            #[cfg(all(feature = "axum", feature = "tracing"))]
            matched: match tracing::enabled!(target: "tollgate", tracing::Level::DEBUG) {
                true => extensions.get().cloned(),
                false => None,
            },
        }
    }

    /// The pattern; empty where there is none.
    pub(crate) fn as_str(&self) -> &str {
        #[cfg(all(feature = "axum", feature = "tracing"))]
        if let Some(matched) = &self.matched {
            return matched.as_str();
        }
        ""
    }
}
