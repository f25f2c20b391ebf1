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
//! The store's own, with the feature `metrics`:
//!
//! | metric | what it is | alarm |
//! | --- | --- | --- |
//! | `tollgate_redis_call_duration_seconds` | how long requests have waited for Redis, failed ones included | its 99th percentile near the deadline |
//! | `tollgate_redis_errors_total{error}` | requests that Redis has not decided: `unavailable`, `overloaded`, `expired` (it was never sent), `unknown` (it may have counted), `try_again` (a slot on the move), `misconfigured`, `protocol` | any `misconfigured` or `protocol`; a rate of the others |
//! | `tollgate_redis_connected{node}` | 1 or 0 | 0 |
//! | `tollgate_redis_connections_lost_total{node}` | connections that were lost | a rate |
//! | `tollgate_redis_breaker_share{node}` | the share of requests that the breaker lets through, 0 to 1 | below 1 |
//! | `tollgate_redis_instances` | instances that share the store | fewer or more than you run |
//! | `tollgate_redis_keys_made_total`, `tollgate_redis_keys_refused_total` | keys made under a [cap](crate::RedisStoreBuilder::cap_new_keys), and requests beyond it | any refused |
//! | `tollgate_redis_settlements_lost_total` | refunds and charges that could not be sent | |
//!
//! With the feature `tracing` there is one event (warn) when a server is lost and one (info) when it decides again, and at most
//! one in ten seconds (error) about rights or values that somebody has to change.
//!
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
