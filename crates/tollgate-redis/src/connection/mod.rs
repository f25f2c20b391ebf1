//! Connections that look after themselves.
//!
//! A [`Node`](node::Node) is one server. Its supervisor connects, tries again with growing pauses, and probes; requests only
//! ever find a connection that is there, or fail at once. A [`Driver`](driver::Driver) is one connection
//! while it lasts: what waits goes out in one write, one timer serves every call, and a call that may have run is not sent again.
//!
//! Commands are written to the socket itself. A multiplexed connection of redis-rs does not say which bytes have left, keeps
//! no bound on what is unanswered, and wants a timer for each call: a stalled server would run whatever had been buffered.
//!
//! A [`Cluster`](cluster::router::Cluster) is a node for each primary, and a map that says whose hash slot a key is in.
//!
//! ```text
//! cluster
//! └─ supervisor ── driver ── node ── breaker, options
//!               │                 └─ command, error
//!               └─ sentinel ── connect ── stream, resp ── error
//! ```

pub(crate) mod breaker;
pub(crate) mod cluster;
pub(crate) mod command;
mod connect;
mod driver;
pub(crate) mod error;
pub(crate) mod node;
pub(crate) mod options;
pub(crate) mod resp;
mod sentinel;
pub(crate) mod stream;
pub(crate) mod supervisor;
