//! Metrics for Prometheus, on a route of the service.

use axum::{Router, routing::get};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tollgate::observe::{BUCKETS, flush_metrics};

/// Installs the recorder of this process. Call it before anything is limited: what was used before is not recorded.
pub(crate) fn install() -> Result<PrometheusHandle, BuildError> {
    let mut builder = PrometheusBuilder::new();
    for &(metric, buckets) in BUCKETS {
        builder = builder.set_buckets_for_metric(Matcher::Full(metric.to_owned()), buckets)?;
    }
    builder.install_recorder()
}

/// All that is recorded, as Prometheus reads it.
pub(crate) fn text(recorder: PrometheusHandle) -> impl Fn() -> String + Clone + Send + Sync {
    move || {
        // What was counted in the last millisecond.
        flush_metrics();
        recorder.run_upkeep();
        recorder.render()
    }
}

/// The route `/metrics`. Merge it outside of the limits, and keep clients away from it.
pub(crate) fn route(recorder: PrometheusHandle) -> Router {
    let text = text(recorder);
    Router::new().route("/metrics", get(|| async move { text() }))
}
