//! The server, Envoy in front of it, and what Envoy is a proxy of: programs of the test's own.

pub(crate) mod envoy;
pub(crate) mod server;
pub(crate) mod upstream;
