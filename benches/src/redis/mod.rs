//! Checks that go to Redis: a server of the bench's own, callers that ask all the time, and what came of it.

pub mod load;
pub mod local;
pub mod server;
pub mod store;
