//! Pages for operators: the metrics, whether the server is well, and the console, on addresses of their own.

use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{Router, body::Body, extract::ConnectInfo, routing::get};
use http::{Request, Response, StatusCode, header::CONTENT_TYPE};
use hyper::body::Incoming;
use metrics::gauge;
use metrics_exporter_prometheus::PrometheusHandle;
use tollgate::observe::flush_metrics;
use tollgate_console::Console;
use tower_service::Service as _;

use crate::listener::Door;

pub(crate) struct Pages(Router);

impl Pages {
    /// The metrics, and whether the server is well: it is with a Redis that is down, since the rules answer then.
    pub(crate) fn of_status(recorder: Option<PrometheusHandle>, draining: Arc<AtomicBool>) -> Self {
        let is_ready = Arc::clone(&draining);
        let ready = move || async move {
            match is_ready.load(Ordering::Relaxed) {
                false => (StatusCode::OK, "it serves\n"),
                true => (StatusCode::SERVICE_UNAVAILABLE, "it is going to end\n"),
            }
        };
        let metrics = move || async move {
            gauge!("tollgate_draining").set(f64::from(u8::from(draining.load(Ordering::Relaxed))));
            let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
            (kind, recorder.as_ref().map(rendered).unwrap_or_default())
        };
        let other = || async {
            let message = "take /metrics, /healthz or /readyz\n";
            (StatusCode::NOT_FOUND, message)
        };
        Self(
            Router::new()
                .route("/healthz", get(|| async { "it runs\n" }))
                .route("/readyz", get(ready))
                .route("/metrics", get(metrics))
                .fallback(other),
        )
    }

    pub(crate) fn of_console(mut console: Console, recorder: Option<PrometheusHandle>) -> Self {
        if let Some(recorder) = recorder {
            console = console.metrics(move || rendered(&recorder));
        }
        Self(console.router())
    }
}

fn rendered(recorder: &PrometheusHandle) -> String {
    flush_metrics();
    recorder.run_upkeep();
    recorder.render()
}

impl Door for Pages {
    const NAME: &'static str = "pages";

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let mut request = request.map(Body::new);
        // Whoever reaches the console is on this machine; it looks at the host and at proxies itself.
        let peer = ConnectInfo(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        request.extensions_mut().insert(peer);
        // A router is always ready.
        let answered: Result<_, Infallible> = self.0.clone().call(request).await;
        answered.unwrap_or_else(|never| match never {})
    }

    fn refuse(&self) -> Response<Body> {
        Response::default()
    }
}
