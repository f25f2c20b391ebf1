//! The YAML of envoyproxy/ratelimit as rules for the edge.
//!
//! There, a tree of descriptors is walked by the entries of a request, as deep as both go, and what it ends at is the limit. At each
//! level an entry takes the node with its value, or the first of those with stars that match, or the node without a value; there is
//! no way back. Here, each limit is a rule of its own with the whole way as its condition, and without the ways that come before it.

mod rules;
mod tree;

pub use self::rules::import_envoy;
