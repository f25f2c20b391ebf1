//! `tollgate-server` as proxies meet it: Envoy's programs and a client of gRPC ask it, on loopback.

mod envoy_answers;
mod envoy_requests;
mod grpc_door;
mod http_door;
mod outages;
mod schema;
mod settings;
mod support;
