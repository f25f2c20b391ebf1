//! What each failure costs.
//!
//! While Redis does not answer, each rule answers by what it was told with
//! [`on_store_error`](tollgate_core::Rule::on_store_error). Nothing is asked twice: a take whose outcome is not known is never
//! sent again, and never given back.
//!
//! # The bound of an outage
//!
//! For one client under one rule, in an outage of length `t` for all of N instances that know of each other:
//!
//! | answer | lets through, from all instances together, at most |
//! | --- | --- |
//! | [`Deny`](tollgate_core::OnStoreError::Deny) | nothing |
//! | [`LocalShare`](tollgate_core::OnStoreError::LocalShare), of a bucket | `rate · t + max(burst, N)` |
//! | [`LocalShare`](tollgate_core::OnStoreError::LocalShare), of a window | `max(limit, N)` in each window |
//! | [`Cap`](tollgate_core::OnStoreError::Cap) | N times the cap |
//! | [`Allow`](tollgate_core::OnStoreError::Allow) | everything |
//!
//! # Stalls and short outages
//!
//! What a failure costs is in proportion to it. A circuit breaker keeps requests from a server that fails most of them; a stall of
//! less than half a second does not open it, and costs no connection. After an outage of some seconds, requests are decided by
//! Redis again within half a second. [`BreakerOptions`](crate::BreakerOptions) and
//! [`ConnectionOptions`](crate::ConnectionOptions) change when it opens, and for how long.
//!
//! Simulated, with the settings that you get by default. Each row is the share of requests that the rules' answers decide:
//!
//! | Redis | deadline | share of the time | of 200 requests a second | of 5 a second |
//! | --- | --- | --- | --- | --- |
//! | stands still for 70 ms every 5 s | 50 ms | 1.4 % | 0.4 % | 0.5 % |
//! | stands still for 70 ms every 1 s | 50 ms | 7.0 % | 2.3 % | 2.1 % |
//! | stands still for 200 ms every 2 s | 50 ms | 10.0 % | 7.6 % | 7.7 % |
//! | stands still for 200 ms every 2 s | 150 ms | 10.0 % | 2.6 % | 2.9 % |
//! | stands still for 450 ms every 5 s | 50 ms | 9.0 % | 7.9 % | 8.0 % |
//! | stands still for 1000 ms every 20 s | 50 ms | 5.0 % | 5.0 % | 4.9 % |
//! | stands still for 3000 ms every 30 s | 50 ms | 10.0 % | 10.8 % | 9.9 % |
//! | is gone for 1000 ms every 20 s | 50 ms | 5.0 % | 6.2 % | 5.1 % |
//! | is gone for 3000 ms every 30 s | 50 ms | 10.0 % | 11.1 % | 10.4 % |
//! | answers `LOADING` for 1000 ms every 20 s | 50 ms | 5.0 % | 6.3 % | 5.0 % |
//! | answers `LOADING` for 3000 ms every 30 s | 50 ms | 10.0 % | 11.2 % | 10.3 % |
//!
//! No request of these waits for longer than its deadline. `cargo run --release -p tollgate-redis --example stalls` in the
//! repository stops a real server by the first, second and fourth of these schedules, and prints what that costs on your machine.
//!
//! # When a part is cut off
//!
//! While some instances cannot reach Redis, they use their shares, and the others still get the whole quota from Redis. With
//! C of N instances cut off for a time `t`, all instances together let through at most, of a rule that counts against
//! [`LocalShare`](tollgate_core::OnStoreError::LocalShare):
//!
//! | quota | Redis | the instances that are cut off | together |
//! | --- | --- | --- | --- |
//! | a bucket | `rate · t + burst` | `C/N · rate · t + max(C/N · burst, C)` | `(1 + C/N) · rate · t`, and the bursts |
//! | a window | `limit` | `max(C/N · limit, C)` | `(1 + C/N) · limit` in each window |
//!
//! So 2 of 4 instances that are cut off for 10 s at 50 a second let 750 through, with what bursts allow, and not 500. Each
//! share is a bucket of its own that refills all the time, also while its instance asks Redis. An instance whose breaker opens
//! and closes again and again therefore counts as cut off for the whole of that time: with all of them flapping, twice the
//! rate. Under [`Deny`](tollgate_core::OnStoreError::Deny) instances that are cut off let nothing through; under
//! [`Cap`](tollgate_core::OnStoreError::Cap) each of them adds its cap, and under
//! [`Allow`](tollgate_core::OnStoreError::Allow) everything that it is asked for.
//!
//! # Before and after
//!
//! Around an outage, or a cut, come at most two bursts more: what Redis let through just before, as far as an instance had not seen it,
//! and what it lets through just after, because its state is stale or gone. Instances tell Redis that they are
//! there, and each knows how many there were last; one that starts during the outage does not. So say how many there are at
//! least, with [`instances`](tollgate_core::Limiter::shared_by): one that believes to be alone takes the whole quota for its share.
//!
//! A restart without a disk forgets the instances too, and they come back one by one. So the number that an instance knows
//! grows at once, and falls only after Redis has counted fewer for half a minute without a gap. After instances were taken
//! away, the shares of the others are too small for that time.
//!
//! # When another server takes over
//!
//! A master answers before its replicas are told. What it had counted and the next one was never told of is given out once more.
//! For one client under one rule, while its window lasts, and with what a bucket refills meanwhile:
//!
//! ```text
//! admitted ≤ limit + lost + alone
//!
//! lost     for each time that a state is lost, the units that were counted and that the server which decides now does not
//!          know; at most one limit
//! alone    what the answers of the table above let through
//! ```
//!
//! | what happens | what is lost |
//! | --- | --- |
//! | a master dies and its replica is promoted | what it admitted in the time by which the replica was behind: as a rule milliseconds. Nothing, if the replica was told of all |
//! | a replica dies | nothing |
//! | a restart without a disk, `FLUSHALL`, an eviction | all that was counted |
//! | a master is cut off, and its clients still reach it | all that it admits until they leave it. Two masters are one limit on each side: `2 · limit`, less what both were told of |
//! | the same with [`min-replicas-to-write`](super::servers#sentinel) | what it admits until it misses its replicas: nothing if their connections end, otherwise that of `min-replicas-max-lag` and a second |
//! | `SENTINEL FAILOVER` by hand | the old master goes on accepting until its clients have asked the sentinels again, at most five seconds, or until it is told: what it admits meanwhile |
//! | `CLUSTER FAILOVER` by hand | nothing: the primary waits until its replica was told of all |
//! | a primary of a cluster dies | as with a master. The other shards are not touched |
//! | a primary of a cluster is cut off from most others | what it admits until it refuses, after `cluster-node-timeout` |
//! | a slot of a cluster moves | nothing |
//!
//! A call of unknown outcome goes the other way: it may have taken units that nobody got.
//!
//! # One by one
//!
//! | failure | how it shows | what it costs |
//! | --- | --- | --- |
//! | Redis is gone | connections refused | the bound above. Requests wait for nothing |
//! | Redis stands still | no answer; the connection is given up after three deadlines, and at least half a second | the requests of that time wait a deadline each. Up to 1 024 takes that were sent may run when it goes on: units that nobody got |
//! | the network is cut | as above | the same |
//! | a connection breaks | calls in flight have no known outcome | each may have been counted by Redis and by the share: a unit too many is taken, never too few |
//! | two versions of a service at once, with two limits of one rule | [a gauge](super::watching#two-quotas-of-one-rule), and after ten minutes an event | what [both together](#two-versions-at-once) admit: the larger limit, if it is larger in all |
//! | two versions with two algorithms of one rule | the same | both limits: each algorithm has states of its own |
//! | restart without a disk | the script and all states are gone | one quota for each client |
//! | `FLUSHALL` | nothing shows | one quota for each client |
//! | `SCRIPT FLUSH` | nothing shows | one more round trip, once |
//! | failover | some seconds without a master | the bound above, and what the old master had not yet told the new one |
//! | an old master that does not know it | two servers accept | up to twice the quota while both do; see [`min-replicas-to-write`](super::servers#sentinel) |
//! | a slot of a cluster moves | `TRYAGAIN` to requests of several states that are not all at the old server, new ones included; others are sent on | the bound above, for these requests, until the slot has arrived |
//! | most servers of a cluster are gone | `CLUSTERDOWN` | the bound above |
//! | some instances are cut off, or a breaker flaps | they alone use their shares | [the bound of a cut](#when-a-part-is-cut-off) |
//! | `READONLY`, `LOADING`, `MASTERDOWN`, `BUSY` | refused before anything is written | the bound above |
//! | memory is full with `noeviction` (`OOM`), too few replicas (`NOREPLICAS`), a disk that fails (`MISCONF`) | [one take after the other](#what-is-refused-alone) is refused; denials and looks are still answered | the bound above, for takes |
//! | memory is full, any other policy | nothing shows | one quota for each key that is forgotten, again and again |
//! | a value that is not ours under our key | that check fails, and others do not | the rule's answer, until somebody deletes the key |
//! | a right to the keys of one rule is missing | "misconfigured"; [other rules are not touched](#what-is-refused-alone) | the answer of that rule, until it is put right |
//! | other rights are missing, a wrong password | "misconfigured" | the rules' answers, until it is put right |
//! | too many connections | turned away, tried again later | the bound above |
//! | hundreds of instances come back at once | attempts are spread at random | some seconds |
//!
//! # What is refused alone
//!
//! Requests of one moment travel to Redis as one command. What the server refuses to one of them fails that one:
//!
//! - A take that the server does not write, because it is full, cannot save, or has too few replicas, fails by itself. The
//!   script goes on with the next request of the command, and nothing is sent twice. The breaker stays closed: the server works.
//! - A command with a key that the user may not touch is refused as a whole before it runs. Its requests are sent once more,
//!   each alone, within their deadlines. For the next ten seconds requests of the rule that was refused go alone, and all
//!   others travel together; then all are tried together again. So a missing pattern costs one command twice in ten seconds.
//!
//! Units that a process has counted alone, under `Eventual`, are kept when their report is refused, and reported later.
//!
//! # Two versions at once
//!
//! While the versions run together, the metric `tollgate_redis_quota_conflicts` is above 0 for the rule. It is an
//! [alarm](super::watching#two-quotas-of-one-rule) if it stays.
//!
//! While a new version of a service replaces an old one, both decide about the same states. What was taken under one is used
//! under the other, in whatever order and how often they are asked. With limits `(B1, r1)` and `(B2, r2)` of a token bucket,
//! GCRA or leaky bucket (what fits at once, and the rate), or `L1` and `L2` of windows and logs, in any time `w`:
//!
//! | the two limits | both together admit at most | the first of them alone, of that |
//! | --- | --- | --- |
//! | buckets, `B1 ≤ B2` and `r1 ≤ r2` | `B2 + r2 · w`, as the second does by itself | `B1 + r2 · w` |
//! | buckets, `B1 ≤ B2` and `r1 > r2` | `B2 + r1 · w` | `B1 + r1 · w` |
//! | windows and logs of one length and as many sub-buckets, `L1 ≤ L2` | as the second does by itself | as it does by itself |
//!
//! A denial changes nothing for the other version. The state stays with the version that wrote it, and the units come back at
//! its rate, until some are taken under the other; the time that a denial tells is the one at which the units will fit.
//! Only a version whose rate is faster makes the state its own with a denial, so that the new rate is in force at
//! once, and only if what is used fits into its burst. After a change to a smaller burst and a faster rate a client may wait
//! for what is beyond the burst at the old rate: `(B1 − B2 + cost) / r1` at most.
//!
//! For windows of two lengths on one state no bound is promised: a unit counts in the window of the version that took last.
//! A denial shortens nothing that was taken under a limit that is not smaller.
//!
//! # When a clock steps
//!
//! The time is that of the server that decides. It is the wall clock, and may step.
//!
//! | step | what happens |
//! | --- | --- |
//! | ahead by `d` | everything refills by `d`, at most one quota for each client; states are forgotten by `d` earlier |
//! | back by `d` | nothing is refilled, and nobody is locked out for `d`: what lies in the future is cut to a full debt at the next decision, a denial too. A client waits at most for the time from empty to full of a bucket, or for two windows |
//! | another server, after a failover | both, by as much as the clocks differ |
//!
//! Let `chrony` or `ntpd` slew the clocks of these machines (`makestep` at the start only), and do not restore snapshots of
//! virtual machines beneath a running server.
//!
//! With [`caller_clock`](crate::RedisStoreBuilder::caller_clock) the clocks of all processes take part, and differences between
//! them count as steps do.
//!
//! # Seeing it
//!
//! `cargo run --example redis_outage` in the repository kills a Redis and shows, second by second, what clients see under each
//! answer. In code, a decision says who made it:
//!
//! ```no_run
//! use tollgate::{HOUR, Key, Limiter, OnStoreError, Quota, Rule, Source};
//! use tollgate_redis::{Keys, RedisStore, Secret};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let keys = Keys::hashed(Secret::from_env("TOLLGATE_SECRET")?);
//! let store = RedisStore::builder("redis://localhost", "shop", keys).connect()?;
//! let rule = Rule::new("codes", Quota::gcra(5, HOUR)).on_store_error(OnStoreError::Deny);
//! let limiter = Limiter::new(store, [rule])?;
//! let check = limiter.check("codes", &Key::of("+44 1632 960000"))?;
//! let decision = limiter.acquire(&[check]).await;
//! if decision.verdicts()[0].source() == Source::Fallback {
//!     // Redis did not decide this; under `Deny` nobody gets a code now.
//!     assert!(!decision.is_allowed());
//! }
//! # Ok(())
//! # }
//! ```
