//! The guide: how to choose, how to build the usual things, and how to run them.
//!
//! | page | for |
//! | --- | --- |
//! | [`choosing`] | which algorithm, which key, where the layer goes, what to answer when the store fails, what to tell whom |
//! | [`recipes`] | complete programs: proxies, log-ins, plans, costs, workers, trials, refunds, tests |
//! | [`at_once`] | limits on how many run at once: exports, streams, jobs |
//! | [`delay`] | letting a request wait instead of denying it |
//! | [`count_failures`] | limits on what fails: log-ins, codes, misses; and costs that only the response tells |
//! | [`goes_together`] | which kinds of rules work on which store, at which consistency, with which settings |
//! | [`grpc`] | around a server, a service, a method; long streams; REST beside it; what clients see |
//! | [`operating`] | metrics, events, memory, clocks, and changing a quota while it is in use |
//! | [`wrong_tool`] | when a rate limiter is not what you need |
//!
//! The pages hold text only. Every program in them is compiled and run with the tests of this crate.

pub mod at_once;
pub mod choosing;
pub mod count_failures;
pub mod delay;
pub mod goes_together;
pub mod grpc;
pub mod operating;
pub mod recipes;
pub mod wrong_tool;
