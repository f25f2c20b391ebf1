//! What the tests of tollgate share.

pub mod counted;
pub mod events;
pub mod grpc;
pub mod probe;
pub mod server;
pub mod slow;

pub use tollgate_examples::weather;
