//! What the tests of tollgate share.

pub mod app;
pub mod counted;
pub mod events;
pub mod frames;
pub mod grpc;
pub mod probe;
pub mod server;

pub use tollgate_test_weather as weather;
