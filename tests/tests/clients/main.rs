//! The layer as clients meet it: grpcio, curl, a browser, parsers of structured fields, and clients that wait as they are told;
//! tonic's (`grpc/`), and the layer for outgoing requests (`client/`).
//!
//! `./test.sh` installs these programs. A test whose program is missing fails and says so.

mod browser;
mod calendars;
mod challenge;
mod client;
mod cors;
mod curl;
mod grpc;
mod grpc_web;
mod grpcio;
mod http_versions;
mod program;
mod random_rules;
mod structured_fields;
mod upgrade;
mod upload;
mod waiting_clients;
mod weather;

use tollgate::RequestRule;
use tollgate_tests::app::{self, all};

/// A rule of `limit` requests a minute, for all clients together.
fn per_minute(name: &'static str, limit: u64) -> RequestRule {
    all(app::per_minute(name, limit))
}
