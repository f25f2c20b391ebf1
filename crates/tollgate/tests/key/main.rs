//! Whom a request counts against.

#[cfg(feature = "axum")]
mod axum;
mod client_ip;
mod combining;
mod cookie;
mod forwarded;
mod look_up;
mod properties;
mod query;
mod settings;
mod support;
mod values;
