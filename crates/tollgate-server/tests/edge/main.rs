//! `tollgate-server` as proxies meet it: Envoy's programs and a client of gRPC ask it, on loopback.

mod envoy_answers;
mod support;
