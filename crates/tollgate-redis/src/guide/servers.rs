//! Settings of servers, and which servers there are.
//!
//! # Which servers
//!
//! | tested on | how |
//! | --- | --- |
//! | Redis 7.0.15 | everything at each change: all algorithms, faults, Sentinel, Cluster, TLS, users, moved clocks |
//! | Redis 6.2, Redis 7.4.1, Redis 8.2.3, Valkey 9.1 | at each change: the suite that every store has to pass, each algorithm compared with the store in memory over random histories, the script, this guide; but for 6.2 a cluster as well |
//!
//! What these are taken from is in `tests/servers.txt`: a package has to exist that brings the server. For the others there is none,
//! or an account is needed. **So they are untested**, and this is what they would need:
//!
//! | untested | needs |
//! | --- | --- |
//! | Redis 7.2, Valkey 7.2 and 8 | nothing: they lie between tested ones, and nothing is used that they lack |
//! | Redis 5 and older | a password without a user; access lists came with 6 |
//! | Dragonfly | nothing that is known: scripts name all their keys, and reply with integers. It runs another version of Lua (5.4) |
//! | ElastiCache and MemoryDB (AWS), nodes | `rediss-cluster://` where cluster mode is on, otherwise `rediss://`; [`tls`](crate::RedisStoreBuilder) with public roots; a user, or tokens of IAM by [`credentials`](crate::RedisStoreBuilder::credentials) |
//! | ElastiCache Serverless (AWS) | `rediss-cluster://` and TLS always; scripts have to name a key, which ours do |
//! | Memorystore (Google) | TLS with the certificate authority of the instance; tokens of IAM by `credentials`; `redis-cluster://` for Memorystore for Redis Cluster |
//! | Azure Cache for Redis, Azure Managed Redis | TLS on their own port (6380 or 10000); tokens of Entra ID by `credentials` or `redis_1::StreamedCredentials`; Managed Redis as `rediss-cluster://` under the OSS policy, as `rediss://` under the Enterprise policy |
//! | Upstash | `rediss://`. A script locks the whole database there, so all rules of all services wait for each other |
//! | proxies that know no `HELLO 3` | nothing: version 2 of the protocol is spoken then; `?protocol=resp2` in the address where even the question is taken badly |
//! | servers on which a script may not ask for the time | [`caller_clock`](crate::RedisStoreBuilder::caller_clock) |
//!
//! These do not work:
//!
//! | server | because |
//! | --- | --- |
//! | KeyDB as active replica, and other sets of several masters | two masters are two limits |
//! | services that forbid `EVAL`, such as sharded clusters of OCI Cache | a decision is a script |
//!
//! Replicas are never asked. A rate limiter that reads a replica lets through what the master has counted already.
//!
//! # A single server
//!
//! ```text
//! maxmemory 1gb
//! maxmemory-policy noeviction
//! save ""
//! appendonly no
//! timeout 0
//! tcp-keepalive 60
//! ```
//!
//! # Sentinel
//!
//! ```text
//! sentinel down-after-milliseconds limits 3000      # in sentinel.conf; default: 30 s
//! min-replicas-to-write 1                           # in redis.conf, with two replicas or more
//! min-replicas-max-lag 5
//! ```
//!
//! The last two bound the time in which an old master that was cut off goes on accepting: some seconds rather than for as long
//! as the cut lasts, in which it gives out [one limit more](super::failures#when-another-server-takes-over). With a single replica
//! leave them out, for the master that is promoted would have none and refuse to write.
//!
//! The address names all sentinels: `redis-sentinel://one,two,three/limits`. All of them are asked at once, and the
//! majority decides: the master is where more than half of the sentinels of the address say, or, if some do not answer within half
//! of the [connect timeout](crate::ConnectionOptions::connect_timeout), more than half of those that do. So name all of them: a
//! sentinel that was cut off together with the old master is outvoted. If they do not agree there is no connection, and the rules
//! answer. The server that is named has to say itself that it is the master; and the query is repeated every five seconds, so that
//! an old master that still answers is left.
//!
//! Behind a NAT, or where certificates are for names and the sentinels name numbers,
//! [`address_map`](crate::RedisStoreBuilder::address_map) says where a server is reached, and so which name its certificate has
//! to have. It is the same for a cluster.
//!
//! A [user of its own](super::access) is made on the master and on each replica, for lists of users are not replicated, and a
//! master that was promoted has to know it; and on each sentinel, if they are not open to everybody:
//!
//! ```text
//! 127.0.0.1:6379> ACL SETUSER tollgate on >sesame resetkeys ~{shop}:* ~shop:{* resetchannels -@all +eval +evalsha +get +set +setrange +del +time +zadd +zremrangebyscore +zcard +zrange +pexpire +role
//! 127.0.0.1:26379> ACL SETUSER tollgate on >sesame resetkeys resetchannels -@all +sentinel|get-master-addr-by-name
//! ```
//!
//! The address is then
//! `redis-sentinel://tollgate:sesame@one,two,three/limits?sentinel_username=tollgate&sentinel_password=sesame`. Without `role`
//! no server is believed to be the master, and without the right on the sentinels none is found: the error names what is
//! missing.
//!
//! # Cluster
//!
//! ```text
//! cluster-require-full-coverage no                  # one shard that is gone is not the end of the others
//! cluster-node-timeout 5000
//! ```
//!
//! The address is `redis-cluster://one,two,three`: each of them can say who the others are. Under TLS the servers need
//! `tls-cluster yes`, or they announce ports that are not encrypted.
//!
//! A [user of its own](super::access) is made on every server, replicas too:
//!
//! ```text
//! 127.0.0.1:7000> ACL SETUSER tollgate on >sesame resetkeys ~{shop}:* ~shop:{* resetchannels -@all +eval +evalsha +get +set +setrange +del +time +zadd +zremrangebyscore +zcard +zrange +pexpire +cluster|slots +cluster|info +asking
//! ```
//!
//! Without `cluster|slots` nobody knows who has which slot, and without `asking` a slot on the move is not followed: the error
//! names what is missing. Without `cluster|info` all works as long as all servers see each other; then a server that was cut off
//! from the others is believed too.
//!
//! # What a partition costs
//!
//! A cluster decides in one step what lies in one slot, and a slot is on one shard. So something has to be given up, and
//! [`connect`](crate::RedisStoreBuilder::connect) asks what:
//!
//! | | [`One`](crate::Partition::One) | [`Key`](crate::Partition::Key) | [`ByRule`](crate::Partition::ByRule) |
//! | --- | --- | --- | --- |
//! | who works | one shard for the whole namespace | all shards, by client | all shards, by tenant |
//! | a request whose rules count by one key | one step | one step | one step |
//! | a request whose rules count by several keys, such as address and account | one step | one step for each key, one after the other; what was taken goes back when a later one denies | one step, and rules by another key count for each tenant apart |
//! | requests that wait at the same moment | up to 32 go as one command | go alone, unless they are of one client | go alone, unless they are of one tenant |
//! | a [change of secrets](crate::Keys) | yes | refused | refused |
//! | clients beyond a [cap on new keys](crate::RedisStoreBuilder::cap_new_keys) share one bucket | of the namespace | of their slot | of their tenant; requests without a tenant as with `Key` |
//! | a shard is gone | no request is decided by Redis | a third of them, where there are three | a third of them |
//!
//! Measured on three primaries of Redis 7.0 (each with a replica) and one process with 64 callers, 10 000 addresses and 1 000
//! accounts, by what the servers say of themselves: `cargo run --release -p tollgate-redis --example partitions`. With two rules,
//! one is by address and one by account.
//!
//! | rules | partition | commands a request | CPU a request, of all shards | of the busiest shard | median wait |
//! | --- | --- | --- | --- | --- | --- |
//! | 1 | `One` | 0.03 | 6.5 µs | 6.4 µs | 2.5 ms |
//! | 1 | `Key` | 1.00 | 13.3 µs | 4.7 µs | 1.1 ms |
//! | 2 | `One` | 0.06 | 11.6 µs | 11.4 µs | 3.0 ms |
//! | 2 | `Key` | 1.99 | 25.6 µs | 8.6 µs | 2.7 ms |
//! | 2 | `ByRule` | 0.98 | 20.8 µs | 7.0 µs | 2.3 ms |
//!
//! The waits are those of a machine of two cores that ran all servers and the process, and was busy with other work: compare
//! them with each other only. A decision is made on one core of a shard, so what the cluster can do is a second divided by the last
//! column but one: with one rule 156 000 requests a second under `One`, and 213 000 under `Key`. Three shards do a third more than
//! one, and not three times as much, because requests of many clients go alone. The more shards, the more `Key` gives; with few, take
//! `One` until one shard is not enough, and give services namespaces of their own, which lie on different shards.
//!
//! # Timeouts
//!
//! | what | how long |
//! | --- | --- |
//! | a decision, with everything that it waits for | the [deadline](crate::RedisStoreBuilder::deadline): default: 50 ms |
//! | a connection, with encryption and log-in | ten deadlines, at least 2 s |
//! | a server that was asked and says nothing is given up after | three deadlines, at least 500 ms |
//! | between attempts to connect | at random up to 50 ms; later up to a twelfth of the outage, at most 5 s |
//! | an idle connection is probed by TCP | after 5 s, each second, three times |
//! | sent data without an acknowledgement (Linux) | 3 s |
//! | half of the calls of the last second fail, at five moments or more; with fewer than 20 calls, five failures in a row | the breaker opens: nobody waits any more |
//! | it asks again, by probes that write | after 100 ms, later after a sixteenth of the outage, doubled when it opens again soon, at most 10 s; or as soon as there is a connection |
//! | two probes answered | 10 % of the requests for 0.15 s, 50 % for 0.15 s, then all |
//!
//! Failures within an eighth of a second of each other are one moment. [`BreakerOptions`](crate::BreakerOptions) changes the last
//! three rows.
//!
//! Set the deadline to what a request may lose, not to what Redis usually takes: at 50 ms an outage costs the requests
//! of its first half second 50 ms each, and later ones nothing. In another region add the round trip, twice.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use tollgate_redis::{Keys, RedisStore, Secret};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let keys = Keys::hashed(Secret::from_env("TOLLGATE_SECRET")?);
//! let store = RedisStore::builder("redis-sentinel://one,two,three/limits", "shop", keys)
//!     .deadline(Duration::from_millis(20))
//!     .connect()?;
//! // A start that would rather wait for Redis than begin without, though not for ever. A deployment that should fail instead
//! // calls `connect_within` in the place of `connect`.
//! let patience = Duration::from_secs(10);
//! if tokio::time::timeout(patience, store.connected()).await.is_err() {
//!     let why = store.connection_error().unwrap_or_default();
//!     eprintln!("no Redis yet, and the rules answer by themselves until it is there: {why}");
//! }
//! # Ok(())
//! # }
//! ```
