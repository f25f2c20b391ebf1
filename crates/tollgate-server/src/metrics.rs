//! What the server counts besides the layer and the store, and where it is read.

use std::{
    collections::HashMap,
    fmt,
    net::IpAddr,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::body::Incoming;
use metrics::{Counter, Histogram, counter, gauge, histogram};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::time::Instant;
use tollgate::{
    Clock,
    observe::{BUCKETS, flush_metrics},
};

use crate::listener::Door;

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

/// The checks of a door.
pub(crate) struct Checks {
    door: &'static str,
    by_domain: RwLock<HashMap<Box<str>, Arc<[Counter; 3]>>>,
    seconds: Histogram,
    pub(crate) without_store: Counter,
    pub(crate) unmatched: Counter,
}

impl Checks {
    pub(crate) fn new(door: &'static str) -> Self {
        Self {
            door,
            by_domain: RwLock::default(),
            seconds: histogram!(SECONDS, "door" => door),
            without_store: counter!("tollgate_checks_without_store_total", "door" => door),
            unmatched: counter!("tollgate_unmatched_descriptors_total", "door" => door),
        }
    }

    pub(crate) fn count(&self, domain: &str, code: Code, began: Instant) {
        self.seconds.record(began.elapsed());
        self.of(domain)[code as usize].increment(1);
    }

    fn of(&self, domain: &str) -> Arc<[Counter; 3]> {
        let known = self
            .by_domain
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(counters) = known.get(domain) {
            return Arc::clone(counters);
        }
        let domain = if known.len() < MAX_DOMAINS {
            domain
        } else {
            "(other)"
        };
        drop(known);
        let mut known = self
            .by_domain
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let counters = known.entry(domain.into()).or_insert_with(|| {
            Arc::new(["ok", "over_limit", "invalid"].map(
                |code| counter!(CHECKS, "door" => self.door, "domain" => domain.to_owned(), "code" => code),
            ))
        });
        Arc::clone(counters)
    }
}

/// Tells of a caller that was refused: Envoy lets its clients pass then.
pub(crate) fn refused(door: &'static str, peer: Option<IpAddr>, why: &dyn fmt::Display) {
    counter!("tollgate_refused_callers_total", "door" => door).increment(1);
    static LAST: AtomicU64 = AtomicU64::new(0);
    if once_a_minute(&LAST) {
        let peer = peer.map_or_else(|| "a peer".to_owned(), |peer| peer.to_string());
        tracing::error!(target: "tollgate", door, "{peer} may not ask, and its proxy may let everything pass: {why}");
    }
}

/// Whether it is the first time in this minute, by what is kept in `last`.
pub(crate) fn once_a_minute(last: &AtomicU64) -> bool {
    let minute = Clock::system().now() / 60_000_000;
    last.swap(minute, Ordering::Relaxed) != minute
}

/// The metrics, and whether the server is well: it is with a Redis that is down, since the rules answer then.
pub(crate) struct Status {
    pub(crate) recorder: Option<PrometheusHandle>,
    pub(crate) draining: Arc<AtomicBool>,
}

impl Door for Status {
    type Body = Full<Bytes>;
    const NAME: &'static str = "metrics";

    async fn answer(&self, request: Request<Incoming>, _: Option<IpAddr>) -> Response<Full<Bytes>> {
        let draining = self.draining.load(Ordering::Relaxed);
        let (status, text) = match request.uri().path() {
            "/healthz" => (StatusCode::OK, "it runs\n".to_owned()),
            "/readyz" if !draining => (StatusCode::OK, "it serves\n".to_owned()),
            "/readyz" => (
                StatusCode::SERVICE_UNAVAILABLE,
                "it is going to end\n".to_owned(),
            ),
            "/metrics" => {
                gauge!("tollgate_draining").set(f64::from(u8::from(draining)));
                flush_metrics();
                let text = self.recorder.as_ref().map(|recorder| {
                    recorder.run_upkeep();
                    recorder.render()
                });
                (StatusCode::OK, text.unwrap_or_default())
            }
            _ => (
                StatusCode::NOT_FOUND,
                "take /metrics, /healthz or /readyz\n".to_owned(),
            ),
        };
        let response = Response::builder().status(status);
        let response = response.header(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8");
        response.body(text.into()).unwrap_or_default()
    }

    fn refuse(&self) -> Response<Full<Bytes>> {
        Response::default()
    }
}
