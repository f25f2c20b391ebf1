//! A tonic server behind the layer, which sees the attempts of its clients, and grpcio as a client of it.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use http::{HeaderMap, Request, Response};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::Barrier, task::JoinHandle};
use tokio_stream::{StreamExt, wrappers::TcpListenerStream};
use tollgate::RateLimitLayer;
use tollgate_tests::weather::{Mild, v1::weather_server::WeatherServer};
use tonic::body::Body;
use tower::{ServiceBuilder, util::MapFutureLayer};

use crate::program::python;

/// A tonic server, until it is dropped.
pub(crate) struct Weather {
    address: SocketAddr,
    task: JoinHandle<()>,
    service: Mild,
    connections: Arc<AtomicU64>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

/// What a server sees of an attempt of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It comes, as the n-th retry of its call.
    Retry(u64),
    /// It is answered with this status, before any message.
    Denied(u64),
}

impl Weather {
    pub(crate) async fn behind(limits: RateLimitLayer) -> Self {
        Self::watched(limits, 1, |_| {}).await
    }

    /// Allowed calls begin when so many of them are there.
    pub(crate) async fn for_groups_of(size: usize, limits: RateLimitLayer) -> Self {
        Self::watched(limits, size, |_| {}).await
    }

    /// `watch` gets each attempt outside of the layer.
    pub(crate) async fn watched(
        limits: RateLimitLayer,
        group: usize,
        watch: impl Fn(Seen) + Clone + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let service = Mild::default();
        let connections = Arc::<AtomicU64>::default();
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let tell = {
            let seen = Arc::clone(&seen);
            move |what| {
                watch(what);
                seen.lock().unwrap().push(what);
            }
        };
        let comes = {
            let tell = tell.clone();
            move |request: Request<Body>| {
                let attempts = number(request.headers(), "grpc-previous-rpc-attempts");
                tell(Seen::Retry(attempts.unwrap_or_default()));
                request
            }
        };
        let goes = move |response: Response<_>| {
            // The service itself has its status in the trailers.
            if let Some(status) = number(response.headers(), "grpc-status") {
                tell(Seen::Denied(status));
            }
            response
        };
        let barrier = Arc::new(Barrier::new(group));
        let gather = MapFutureLayer::new(move |call| {
            let barrier = Arc::clone(&barrier);
            async move {
                barrier.wait().await;
                call.await
            }
        });
        let layers = ServiceBuilder::new()
            .map_request(comes)
            .map_response(goes)
            .layer(limits)
            .layer(gather);
        let count = {
            let connections = Arc::clone(&connections);
            move |connection| {
                connections.fetch_add(1, Ordering::SeqCst);
                connection
            }
        };
        let serve = tonic::transport::Server::builder()
            .layer(layers)
            .add_service(WeatherServer::new(service.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener).map(count));
        Self {
            address,
            task: tokio::spawn(async move { serve.await.expect("it serves") }),
            service,
            connections,
            seen,
        }
    }

    /// What grpcio says of these calls, one after the other, without retries.
    pub(crate) async fn calls(&self, methods: &[&str]) -> Vec<Value> {
        self.send(json!({ "calls": calls(methods) })).await
    }

    /// What grpcio says of these calls where it retries this status after 10 ms, or after the server's pushback, twice.
    pub(crate) async fn calls_with_retries_of(&self, status: &str, methods: &[&str]) -> Vec<Value> {
        let policy = json!({
            "maxAttempts": 3,
            "initialBackoff": "0.01s",
            "maxBackoff": "0.01s",
            "backoffMultiplier": 1,
            "retryableStatusCodes": [status],
        });
        let config = json!({ "methodConfig": [{ "name": [{}], "retryPolicy": policy }] });
        let sent = json!({ "calls": calls(methods), "config": config });
        self.send(sent).await
    }

    /// What grpcio says of calls with these keys, all at once.
    pub(crate) async fn calls_together(&self, keys: &[&str]) -> Vec<Value> {
        let call = |key: &&str| json!({ "method": "Current", "metadata": [["x-api-key", key]] });
        let calls: Value = keys.iter().map(call).collect();
        self.send(json!({ "calls": calls, "together": true })).await
    }

    async fn send(&self, mut sent: Value) -> Vec<Value> {
        sent["target"] = json!(self.address.to_string());
        match python("grpc_calls.py", &sent).await {
            Value::Array(reported) => reported,
            other => panic!("not a list: {other}"),
        }
    }

    /// The calls and messages that the service itself has seen.
    pub(crate) fn reached(&self) -> (u64, u64) {
        (self.service.calls(), self.service.messages())
    }

    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Weather {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn calls(methods: &[&str]) -> Value {
    let calls = methods.iter().map(|method| json!({ "method": method }));
    calls.collect()
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}
