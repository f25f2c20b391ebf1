//! The layer around gRPC services, with tonic's server and client on sockets.

mod handler;
mod messages;
mod peers;
mod preflights;
mod rest;
mod services;
mod streams;

use tollgate::{RateLimitLayer, RequestRule};
use tollgate_tests::{
    app::{all, layer, per_minute},
    grpc::GrpcServer,
    weather::{Mild, v1::weather_server::WeatherServer},
};
use tonic::transport::Server;

/// A few calls a minute, for all clients together.
fn few(limit: u64) -> RequestRule {
    all(per_minute("few", limit))
}

/// A layer that lets one call a minute through, which was made already.
fn used_up() -> RateLimitLayer {
    let layer = layer([few(1)]);
    let (head, ()) = http::Request::new(()).into_parts();
    let key = layer.key_of("few", &head).expect("everybody's key");
    let taken = layer.limiter().try_acquire("few", &key).expect("in memory");
    assert!(taken.is_allowed());
    layer
}

/// The service on a socket, all of it behind the layer.
async fn serve(layer: RateLimitLayer, service: &Mild) -> GrpcServer {
    let mut server = Server::builder().layer(layer);
    GrpcServer::start(server.add_service(WeatherServer::new(service.clone()))).await
}
