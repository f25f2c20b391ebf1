//! The guide: how to choose, how to build the usual things, and how to run them.
//!
//! | page | for |
//! | --- | --- |
//! | [`start`] | a route limited by your own key, a test of it, Redis, and a file, in some minutes each |
//! | [`choosing`] | which algorithm, which key, where the layer goes, what to answer when the store fails, what to tell whom |
//! | [`recipes`] | complete programs: proxies, log-ins, plans, costs, users and machines, risk scores, outages |
//! | [`services`] | complete programs: workers, real costs, trials, CORS, services without axum, tests |
//! | [`migrating`] | the same limits as in tower_governor, nginx, or Envoy's rate limit service |
//! | [`at_once`] | limits on how many run at once: exports, streams, jobs |
//! | [`delay`] | letting a request wait instead of denying it |
//! | [`count_failures`] | limits on what fails: log-ins, codes, misses; and costs that only the response tells |
//! | [`goes_together`] | which kinds of rules work on which store, at which consistency, with which settings |
//! | [`grpc`] | around a server, a service, a method; long streams; REST in the same service; what clients see |
//! | [`operating`] | metrics, events, memory, clocks, and changing a quota while it is in use |
//! | [`guarantees`] | what is promised, and held by tests |
//! | [`wrong_tool`] | when a rate limiter is not what you need |
//! | [`glossary`] | what the words mean |
//!
//! The pages hold text and pictures. Every program in them is compiled and run with the tests of this crate. The pages are those of the
//! book in the repository, `docs/guide/`. Their links are defined in `guide/links.md` for rustdoc, their pictures in
//! `guide/pictures.md`, and both at the foot of each page for the book.

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/at-once.md")]
pub mod at_once {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/pictures.md")]
#[doc = include_str!("../guide/choosing.md")]
pub mod choosing {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/count-failures.md")]
pub mod count_failures {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/delay.md")]
pub mod delay {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/glossary.md")]
pub mod glossary {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/goes-together.md")]
pub mod goes_together {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/grpc.md")]
pub mod grpc {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/guarantees.md")]
pub mod guarantees {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/pictures.md")]
#[doc = include_str!("../guide/overload.md")]
pub mod overload {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/migrating.md")]
pub mod migrating {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/operating.md")]
pub mod operating {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/recipes.md")]
pub mod recipes {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/services.md")]
pub mod services {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/start.md")]
pub mod start {}

#[doc = include_str!("../guide/links.md")]
#[doc = include_str!("../guide/wrong-tool.md")]
pub mod wrong_tool {}
