//! The operator's pages: what Redis needs, what its failures cost, and what to watch.
//!
//! | page | for |
//! | --- | --- |
//! | [`redis`] | the first steps, servers, a user, memory, timeouts, upgrades; a client looked up by hand, the script from other languages |
//! | [`consistency`] | how often a rule calls Redis: exact, leased or eventual; promises, prices, bounds; several regions |
//! | [`failures`] | what each failure costs, as a bound; clocks that step |
//!
//! The short answer: a Redis or Valkey for limits alone, `maxmemory` with `noeviction` and an alarm at 70 %, nothing on disk,
//! a user of its own, clocks that are slewed and never stepped, and each rule's answer to a failure chosen by what it
//! protects.
//!
//! The pages hold text and pictures. Their programs, their table of memory and their access list are held to a server by tests.

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/pictures.md")]
#[doc = include_str!("../guide/consistency.md")]
pub mod consistency {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/failures.md")]
pub mod failures {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/redis.md")]
pub mod redis {}
