//! What the server counts besides the layer and the store.

use std::{
    collections::HashMap,
    fmt,
    net::IpAddr,
    sync::atomic::{AtomicU64, Ordering},
};

use metrics::{Counter, Histogram, counter, histogram};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::time::Instant;
use tollgate::{
    Decision,
    decision::{Source, Verdict},
    observe::BUCKETS,
};
use tollgate_core::{
    sync::{Mutex, lock},
    wall_clock,
};

const CHECKS: &str = "tollgate_checks_total";
const SECONDS: &str = "tollgate_check_seconds";
/// Domains are those of Envoy's configuration; there are not more by a mistake.
const MAX_DOMAINS: usize = 64;

/// Installs the recorder of this process.
///
/// # Errors
///
/// There is one already.
pub fn install_metrics() -> Result<PrometheusHandle, BuildError> {
    let mut builder = PrometheusBuilder::new();
    let seconds: &[f64] = &[
        0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1,
    ];
    for &(metric, buckets) in BUCKETS.iter().chain(&[(SECONDS, seconds)]) {
        builder = builder.set_buckets_for_metric(Matcher::Full(metric.to_owned()), buckets)?;
    }
    builder.install_recorder()
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Ok,
    OverLimit,
    Invalid,
}

impl Code {
    pub(crate) fn of(is_allowed: bool) -> Self {
        if is_allowed {
            Self::Ok
        } else {
            Self::OverLimit
        }
    }
}

/// The checks of a door.
pub(crate) struct Checks {
    door: &'static str,
    by_domain: Mutex<HashMap<Box<str>, [Counter; 3]>>,
    seconds: Histogram,
    without_store: Counter,
    pub(crate) unmatched: Counter,
}

impl Checks {
    pub(crate) fn new(door: &'static str) -> Self {
        Self {
            door,
            by_domain: Mutex::default(),
            seconds: histogram!(SECONDS, "door" => door),
            without_store: counter!("tollgate_checks_without_store_total", "door" => door),
            unmatched: counter!("tollgate_unmatched_descriptors_total", "door" => door),
        }
    }

    /// Whether a store has decided.
    pub(crate) fn note(&self, decision: &Decision) {
        let by_rule = |verdict: &Verdict| verdict.source() == Source::Fallback;
        if decision.verdicts().iter().any(by_rule) {
            self.without_store.increment(1);
        }
    }

    pub(crate) fn count(&self, domain: &str, code: Code, began: Instant) {
        self.seconds.record(began.elapsed());
        let mut known = lock(&self.by_domain);
        if let Some(counters) = known.get(domain) {
            return counters[code as usize].increment(1);
        }
        let domain = if known.len() < MAX_DOMAINS {
            domain
        } else {
            "(other)"
        };
        // All of them, so that the first one is not missed that somebody waits for.
        let counters = known.entry(domain.into()).or_insert_with(|| {
            ["ok", "over_limit", "invalid"].map(
                |code| counter!(CHECKS, "door" => self.door, "domain" => domain.to_owned(), "code" => code),
            )
        });
        counters[code as usize].increment(1);
    }
}

/// Tells of a caller that was refused: Envoy lets its clients pass then.
pub(crate) fn refused(door: &'static str, peer: Option<IpAddr>, why: &dyn fmt::Display) {
    counter!("tollgate_refused_callers_total", "door" => door).increment(1);
    static LAST: AtomicU64 = AtomicU64::new(0);
    if is_new_minute(&LAST) {
        let peer = peer.map_or_else(|| "a peer".to_owned(), |peer| peer.to_string());
        tracing::error!(target: "tollgate", door, "{peer} may not ask, and its proxy may let everything pass: {why}");
    }
}

/// A door has as many connections as it takes: others wait, and their proxies may let everything pass.
pub(crate) fn full(door: &'static str, connections: usize, last: &AtomicU64) {
    if is_new_minute(last) {
        tracing::error!(target: "tollgate", door, "{connections} connections are open, and more have to wait");
    }
}

/// Whether to say what may come often, once a minute.
fn is_new_minute(last: &AtomicU64) -> bool {
    let minute = wall_clock() / 60_000_000;
    last.swap(minute, Ordering::Relaxed) != minute
}
