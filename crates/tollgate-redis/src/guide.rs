//! The operator's pages: what Redis needs, what its failures cost, and what to watch.
//!
//! | page | for |
//! | --- | --- |
//! | [`many_processes`] | the first steps: a store on Redis, its secret, how often Redis is asked, what happens without it |
//! | [`sizing`] | memory for each key, the eviction policy, what to keep on disk, several services on one Redis |
//! | [`access`] | a user with no more rights than it needs, encryption, patched servers |
//! | [`servers`] | settings of Redis, Sentinel and Cluster; which servers are tested; timeouts |
//! | [`consistency`] | how often a rule calls Redis: exact, leased or eventual; promises, prices, bounds |
//! | [`failures`] | what each failure costs, as a bound; clocks that step |
//! | [`upgrading`] | what happens while processes of two releases run side by side |
//! | [`by_hand`] | looking a client up, resetting it, and the script from `redis-cli` and other languages |
//! | [`watching`] | metrics to alarm on |
//!
//! The short answer: a Redis or Valkey for limits alone, `maxmemory` with `noeviction` and an alarm at 70 %, nothing on disk,
//! a user of its own, clocks that are slewed and never stepped, and each rule's answer to a failure chosen by what it
//! protects.
//!
//! The pages hold text and pictures. Their programs, their table of memory and their access list are held to a server by tests.

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/access.md")]
pub mod access {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/by-hand.md")]
pub mod by_hand {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/pictures.md")]
#[doc = include_str!("../guide/consistency.md")]
pub mod consistency {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/failures.md")]
pub mod failures {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/many-processes.md")]
pub mod many_processes {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/servers.md")]
pub mod servers {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/sizing.md")]
pub mod sizing {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/upgrading.md")]
pub mod upgrading {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/watching.md")]
pub mod watching {}
