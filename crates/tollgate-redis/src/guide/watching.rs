//! What to watch.
//!
//! # Alarms
//!
//! | what | alarm on | because |
//! | --- | --- | --- |
//! | `tollgate_store_failures_total` | any increase | Redis did not decide |
//! | `tollgate_fallback_decisions_total` | any increase, by `answer` | what the rules answered instead |
//! | `tollgate_units_admitted_alone_total` | by its sum after an outage | what the outage has let through |
//! | `tollgate_requests_total` with `decision` `degraded` or `error_denied` | any increase | clients notice |
//! | `tollgate_check_duration_seconds` | a high quantile near the deadline | Redis or the way to it is slow |
//! | `used_memory` / `maxmemory` of Redis | 70 % | at 100 % takes are refused |
//! | `evicted_keys` of Redis | any increase | limits are forgotten; the policy is wrong |
//! | `instantaneous_ops_per_sec`, the processor of Redis | 60 % of one core | a server decides on one core |
//! | `connected_clients` of Redis | near `maxclients` | instances would be turned away |
//! | the offset of the clock, by `chronyc tracking` | 100 ms | [steps](super::failures#when-a-clock-steps) |
//!
//! The first five are those of the layer, with the feature `metrics` of `tollgate`; its guide says more.
//!
//! # Metrics of this crate
//!
//! <!-- The table of `tollgate_redis_*` belongs here: call duration, errors by type, unknown outcomes, the breaker's state, keys
//! made, instances. -->
//!
//! Until an alarm tells you, [`RedisStore::breaker`](crate::RedisStore::breaker) says whether requests reach Redis at present:
//!
//! ```no_run
//! use tollgate_redis::{BreakerState, Keys, RedisStore, Secret};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let keys = Keys::hashed(Secret::from_env("TOLLGATE_SECRET")?);
//! let store = RedisStore::builder("redis://localhost", "shop", keys)?.connect()?;
//! // For a page that people read. A health check that fails on it takes instances away that would serve.
//! let text = match store.breaker() {
//!     BreakerState::Closed => "Redis decides",
//!     BreakerState::Open | BreakerState::Probing => "each instance decides for itself",
//!     BreakerState::Ramping { .. } => "Redis is back, and is asked about some requests",
//! };
//! println!("{text}");
//! # Ok(())
//! # }
//! ```
