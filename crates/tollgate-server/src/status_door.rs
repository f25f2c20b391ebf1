//! Where operators read the metrics, and whether the server is well.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::body::Incoming;
use metrics::gauge;
use metrics_exporter_prometheus::PrometheusHandle;
use tollgate::observe::flush_metrics;

use crate::listener::Door;

/// The metrics, and whether the server is well: it is with a Redis that is down, since the rules answer then.
pub(crate) struct StatusDoor {
    pub(crate) recorder: Option<PrometheusHandle>,
    pub(crate) draining: Arc<AtomicBool>,
}

impl Door for StatusDoor {
    type Body = Full<Bytes>;
    const NAME: &'static str = "metrics";

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
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
