//! Redis Cluster: which server has a key, and what to do when it no longer has it.
//!
//! A [`Cluster`](router::Cluster) is a [`Node`](crate::connection::node::Node) for each primary and a map from hash slots to them.
//! A task learns the map from any server that answers, on a connection of its own, so that neither a request nor another
//! server ever waits for one that does not. A call goes to the server that the map names. Only an answer that says that the
//! call did not run and who would run it, `MOVED` or `ASK`, sends it on: twice at most, within its deadline.
//!
//! A server that is lost takes only its own hash slots along, for each node has its own breaker. Its hash slots are back when another
//! server has taken them and the map says so.
//!
//! Encrypted connections need `tls-cluster yes` at the servers, which otherwise name each other's ports for what is not
//! encrypted.
//!
//! ```text
//! router ── topology_refresh ── map
//! ```

mod map;
pub(crate) mod router;
mod topology_refresh;
