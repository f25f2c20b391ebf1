//! Envoy's rate limit service, compiled from `proto/rls.proto`.
#![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]

tonic::include_proto!("envoy.service.ratelimit.v3");
