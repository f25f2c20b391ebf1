//! The layer as clients of other ecosystems meet it: grpcio, curl, a browser, parsers of structured fields, and clients
//! that wait as they are told.
//!
//! `./test.sh` installs these programs. A test whose program is missing fails and says so.

mod browser;
mod cors;
mod curl;
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

use tollgate::{
    MINUTE, ManualClock, MemoryStore, Quota, RateLimitLayer, RequestRule, Rule, key::constant,
};

/// Noon of some day, so that windows begin where the tests do.
const NOON: u64 = 1_767_268_800_000_000;

/// A store whose time moves only when told to.
fn still() -> (MemoryStore, ManualClock) {
    let clock = ManualClock::new(NOON);
    (MemoryStore::builder().clock(&clock).build(), clock)
}

/// So many requests a minute, of everybody together.
fn per_minute(name: &'static str, limit: u64) -> RequestRule {
    Rule::new(name, Quota::fixed_window(limit, MINUTE)).by(constant("all"))
}

/// A layer whose time stands still.
fn layer(rules: impl IntoIterator<Item = RequestRule>) -> RateLimitLayer {
    RateLimitLayer::new(still().0, rules).expect("valid rules")
}
