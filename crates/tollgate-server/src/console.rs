//! The page for operators, on an address of this machine.

use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
};

use axum::{Router, body::Body, extract::ConnectInfo};
use http::{Request, Response};
use hyper::body::Incoming;
use metrics_exporter_prometheus::PrometheusHandle;
use tollgate::observe::flush_metrics;
use tollgate_console::Console;
use tower_service::Service;

use crate::listener::Door;

pub(crate) struct ConsoleDoor {
    router: Router,
}

impl ConsoleDoor {
    pub(crate) fn new(mut console: Console, recorder: Option<PrometheusHandle>) -> Self {
        if let Some(recorder) = recorder {
            console = console.metrics(move || {
                flush_metrics();
                recorder.run_upkeep();
                recorder.render()
            });
        }
        Self {
            router: console.router(),
        }
    }
}

impl Door for ConsoleDoor {
    type Body = Body;
    const NAME: &'static str = "console";

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let mut request = request.map(Body::new);
        // Whoever reaches a loopback address is on this machine; the console looks at the host and at proxies.
        let peer = ConnectInfo(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        request.extensions_mut().insert(peer);
        // A router is always ready.
        let answered: Result<_, Infallible> = self.router.clone().call(request).await;
        match answered {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    fn refuse(&self) -> Response<Body> {
        Response::default()
    }
}
