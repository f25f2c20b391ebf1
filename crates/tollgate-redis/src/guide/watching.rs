//! What to watch.
//!
//! # Alarms
//!
//! | what | alarm on | because |
//! | --- | --- | --- |
//! | `tollgate_store_failures_total` | any increase | Redis did not decide |
//! | `tollgate_fallback_decisions_total` | any increase, by `answer` | what the rules answered instead |
//! | `tollgate_units_admitted_in_fallback_total` | by its sum after an outage | what the outage has let through |
//! | `tollgate_requests_total` with `reason="store_failed"` | any increase | clients notice |
//! | `tollgate_check_duration_seconds` | a high quantile near the deadline | Redis or the way to it is slow |
//! | `tollgate_redis_memory_used_ratio`, or `used_memory` / `maxmemory` of Redis | 70 % | at 100 % takes are refused |
//! | `tollgate_redis_namespace_keys` | thrice as many as within the last hour | somebody invents keys |
//! | `evicted_keys` of Redis | any increase | limits are forgotten; the policy is wrong |
//! | `instantaneous_ops_per_sec`, the processor of Redis | 60 % of one core | a server decides on one core |
//! | `connected_clients` of Redis | near `maxclients` | instances would be turned away |
//! | the offset of the clock, by `chronyc tracking` | 100 ms | [steps](super::failures#when-a-clock-steps) |
//! | `tollgate_redis_quota_conflicts` | above 0 for longer than a deployment takes | [two quotas count against one state](#two-quotas-of-one-rule) |
//! | `tollgate_redis_key_conflicts` | above 0 | [two secrets](#two-secrets-in-one-namespace): each client has two budgets |
//! | `tollgate_redis_meter_over_admitted_units_total` of exact and leased rules | any increase | a promise is broken: an eviction, a failover, a clock |
//! | `tollgate_redis_reports_lost_units_total` | any increase | eventual rules may have let through more than was counted |
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
//! | `tollgate_redis_round_trip_duration_seconds` | from a command that is sent to its answer: the network and Redis | it is near the deadline, while the next one is not: Redis or the network is slow |
//! | `tollgate_redis_queue_duration_seconds` | how long the first call of each command has waited to be sent | it is near the deadline: this process is busy, or has too many calls [in flight](crate::ConnectionOptions::in_flight) |
//! | `tollgate_redis_resent_total{why}` | calls that had not run and were sent once more: `noscript` (the server did not know the script), `alone` (another call of its command [was refused](super::failures#what-is-refused-alone)), `moved` and `ask` (redirects of a cluster) | a rate of `alone`: a right is missing; of `noscript`: somebody flushes scripts |
//! | `tollgate_redis_errors_total{error}` | requests that Redis has not decided: `unavailable`, `overloaded`, `expired` (it was never sent), `not_writable` (the server is full, cannot save, or has too few replicas), `unknown` (it may have counted), `try_again` (a slot on the move), `misconfigured`, `protocol` | any `misconfigured`, `not_writable` or `protocol`; a rate of the others |
//! | `tollgate_redis_connected{node}` | 1 or 0 | 0 |
//! | `tollgate_redis_connections_lost_total{node}` | connections that were lost | a rate |
//! | `tollgate_redis_connect_failures_total{node,kind}` | attempts to connect that failed: `dns` (the host is not found), `tcp`, `tls`, `login` (the password, or a right that a connection needs), `credentials` (the provider has given none), `timeout`, `not_master`, `unresolved` (sentinels or servers of a cluster do not say which server it is), `server` (it is loading, or full) | any `login`, `dns` or `tls` |
//! | `tollgate_redis_log_ins_anew_total{node,what}` | log-ins on open connections before their [credentials](super::access#passwords-that-change) expire, `ok` or `failed` | any `failed`: once they have expired the server ends the connection |
//! | `tollgate_redis_breaker_share{node}` | the share of requests that the breaker lets through, 0 to 1 | below 1 |
//! | `tollgate_redis_instances` | instances that share the store, for which shares are cut: fewer only after half a minute | fewer or more than you run |
//! | `tollgate_redis_quota_conflicts{rule}` | other quotas that instances of the namespace have for a rule which this process has too | above 0 for longer than a deployment takes |
//! | `tollgate_redis_key_conflicts` | other ways in which instances of the namespace write keys: by another secret, or another partition | above 0 |
//! | `tollgate_redis_new_keys_total{rule}` | keys that were created: checks that took units, and [reports](super::consistency), where nothing of the key was in use. A client whose state has expired counts again. Not counted are keys whose reply never came | a rate far above that of new clients: somebody invents keys. Consider a [cap](crate::RedisStoreBuilder::cap_new_keys) |
//! | `tollgate_redis_new_keys_refused_total{rule}` | checks of clients beyond a [cap](crate::RedisStoreBuilder::cap_new_keys) on new keys, which share one bucket | any |
//! | `tollgate_redis_settlements_lost_total` | refunds and charges that could not be sent | |
//! | `tollgate_redis_calls_total{for}` | calls for Redis: `requests`, `settlements`, `reports`, `leases` (returned without a request), `resets`, `meter`, `slots` (told of without a request). Those of one moment travel as one command | |
//! | `tollgate_redis_decisions_total{rule,consistency,source}` | checks that were decided, by `store`, `deny_cache`, `lease` or `local` | a share of `store` that rises: [calls for each check](#calls-for-each-check) |
//! | `tollgate_redis_over_admission_bound_units{rule,consistency}` | units by which all instances together may be above the limit of a key: 0, or of an eventual rule instances times `max_unreported` | more than you have agreed to |
//! | `tollgate_redis_lease_limit_units{rule,consistency}` | of a leased rule, the most units of a key that may lie idle while a request is refused | |
//! | `tollgate_redis_units_on_lease` | units that this process holds in leases, of all keys | |
//! | `tollgate_redis_units_unreported` | units that this process has admitted and Redis does not know of, of all keys | a number that only grows: reports do not arrive |
//! | `tollgate_redis_reports_lost_units_total` | units of reports that had no answer, so that nobody knows whether Redis has counted them, and those that a limiter which is gone could not report | any increase, with the outage that it came from |
//! | `tollgate_redis_leased_keys{kind}` | keys for which this process holds a `lease` or a `scheduled` lease | |
//! | `tollgate_redis_table_keys{table}` | keys of which this process keeps something: `leases`, `reports` | near 262 144: Redis decides each request of further keys |
//! | `tollgate_redis_table_bytes{table}` | the memory of that: `leases`, `reports`, `deny_cache` | |
//! | `tollgate_redis_calls_saved_total` | requests that this process has decided without a call | |
//! | `tollgate_redis_namespace_keys` | keys of the [namespace](#the-size-of-the-namespace) in Redis, if they are measured | a number that grows faster than that of your clients |
//! | `tollgate_redis_namespace_bytes` | the memory that they take | |
//! | `tollgate_redis_memory_used_ratio` | the share of its `maxmemory` that Redis uses, for whatever; in a cluster of the server where it is highest. Not there without a bound | above 0.7 |
//! | `tollgate_redis_leases_total{what}` | leases that were `requested`, `granted`, `returned`, or `lost` because no reply came | many requested and few granted: the quota is too small, or too full, for leases |
//! | `tollgate_redis_reports_total{what}` | reports that were `sent`, `kept` for the next because they did not run, or `lost` | any `lost` |
//! | `tollgate_redis_slots_in_use` | slots of requests that run in this process | as many as the limits allow, for long: requests that do not end |
//! | `tollgate_redis_slots_total{what}` | keys whose slots Redis was `told` of without a request; grants that were `voided`: they came too late to be used, and the requests asked again; requests that `outlived` their slots: Redis had forgotten them, and others may have been given them | any `outlived`: the process stood still, or could not reach Redis, for longer than the [term](crate::RedisStoreBuilder::slot_term) |
//! | `tollgate_redis_meter_requests_total{rule,consistency}` | requests of sampled keys that the [meter](super::consistency#reading-the-meter) has followed | none, where one is set |
//! | `tollgate_redis_meter_over_admitted_units_total{rule,consistency}` | units of those that were let through above the limit | any, of `exact` or `leased`; of `eventual` a share that you have not agreed to |
//! | `tollgate_redis_meter_false_refusals_total{rule,consistency}` | those that were refused although they fitted | a share that clients would notice |
//! | `tollgate_redis_meter_dropped_total{rule,consistency}` | what the meter has lost: while it grows, it sees too little | a share of the requests |
//!
//! # Calls for each check
//!
//! What a consistency saves is what is not decided by Redis: over five minutes,
//! `rate(tollgate_redis_calls_total) / rate(tollgate_redis_decisions_total)`, both summed over all labels. An exact rule below
//! its limit, alone in its requests, is at 1. What a process answers alone costs no call; reports, and leases that go back, cost some that no request
//! has waited for.
//!
//! With the feature `tracing` there is one event (info) when a connection is made: to which address, and which server, version and
//! role the server says that it is. There is one event (warn) when a server is lost and one (info) when it decides again, and at most
//! one in ten seconds (error) about rights, values or a full server that somebody has to change. When rules are bound, there is one (warn) for
//! each quota that cannot have the consistency that its rule asks for, with the reason;
//! [`RedisStore::effective`](crate::RedisStore::effective) says it in code.
//!
//! # The size of the namespace
//!
//! Redis says how many keys it has, not whose they are. With
//! [`measure_namespace`](crate::RedisStoreBuilder::measure_namespace)
//! the store counts those of its namespace by `SCAN`, 100 at a time within a budget, and asks one in ten by `MEMORY USAGE`. In a
//! cluster it goes to each primary in turn. The user needs [three rights more](super::access).
//!
//! One process of the fleet measures: it says so in `{shop}:measuring`, and leaves what it has found in `{shop}:size`. The others
//! read that every five seconds, so all of them show the same numbers: take the `max`, not the `sum`. If it ends, another one
//! follows within two minutes. A look at 100 keys kept a Redis 7.0 busy for 240 µs, and a Valkey 9.1 for 110 µs: with 5 000 keys a
//! second that is a percent of its time. A million keys, of whatever namespace, then take less than four minutes; after a
//! measurement it pauses for one.
//!
//! # Two quotas of one rule
//!
//! A rule is found in Redis by its name, so two services, or two versions of one, that give one rule two quotas count against
//! one state: the larger limit lets through what the smaller one should refuse. With two algorithms each has a state of its
//! own, and both limits pass. Within a process this is refused when rules are bound; between processes it is normal while a new
//! version replaces an old one, and a mistake if it lasts.
//!
//! So each instance tells Redis every five seconds which quotas its rules have: the names of rules and the quotas in words, in
//! the sorted set `{shop}:quotas` of the namespace `shop`, and nothing of clients. It compares what others say of the same names; services with other
//! rules in the same namespace are no conflict. `tollgate_redis_quota_conflicts{rule}` is how many other quotas there are, a few
//! seconds after the second process has begun, and 0 again a quarter of a minute after the last one has ended. If it lasts for
//! longer than ten minutes there is one event (error) with both quotas. Then give the rule the same quota everywhere, or another
//! name in one of the services, or give the services namespaces of their own.
//!
//! More than 1 000 rules of a process are not compared. [Without heartbeats](crate::RedisStoreBuilder::without_heartbeats)
//! nothing is.
//!
//! # Two secrets in one namespace
//!
//! Two processes with two secrets write the states of one client under two names, and the client has two budgets. Nothing fails,
//! so nobody would notice. So each instance says with its heartbeat by which secret it writes, and which others it knows: by a tag of
//! 16 digits, from which nobody finds the secret; and by which [partition](crate::Partition), for that is in the names too. If an
//! instance would not find what another one writes, `tollgate_redis_key_conflicts` counts it, and there is one event (error) with
//! both tags. The three steps of [a change of secrets](crate::Keys) never conflict with the one before or after them.
//!
//! # In code
//!
//! Until an alarm tells you, [`RedisStore::breaker`](crate::RedisStore::breaker) says whether requests reach Redis at present:
//!
//! ```no_run
//! use tollgate_redis::{BreakerState, Keys, RedisStore, Secret};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let keys = Keys::hashed(Secret::from_env("TOLLGATE_SECRET")?);
//! let store = RedisStore::builder("redis://localhost", "shop", keys).connect()?;
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
