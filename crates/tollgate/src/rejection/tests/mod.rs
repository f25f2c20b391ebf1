//! The responses as bytes.

mod grpc;
mod http;
mod scene;
