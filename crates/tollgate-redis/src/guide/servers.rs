//! Settings of servers, and which servers there are.
//!
//! # Which servers
//!
//! | server | |
//! | --- | --- |
//! | Redis 6.2, Redis 7.0, Valkey 9.1 | tested at each change: the suite of every store, and each algorithm compared with the store in memory |
//! | Redis 7.2 to 8, Valkey 7.2 and 8 | between these; nothing is used that they lack |
//! | Redis 5 and older | untested; access lists came with 6 |
//! | proxies that know no `HELLO 3` | the protocol of version 2 is spoken then |
//! | servers on which a script may not ask for the time | [`caller_clock`](crate::RedisStoreBuilder::caller_clock) |
//! | KeyDB as active replica, and other sets of several masters | **no**: two masters are two limits |
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
//! The address names all sentinels: `redis-sentinel://one,two,three/limits`. The first that knows is asked; the server it names
//! has to say itself that it is the master; and the query is repeated every five seconds, so that an old master that still
//! answers is left.
//!
//! A [user of its own](super::access) is made on the master and on each replica, for lists of users are not replicated, and a
//! master that was promoted has to know it; and on each sentinel, if they are not open to everybody:
//!
//! ```text
//! 127.0.0.1:6379> ACL SETUSER tollgate on >sesame resetkeys ~{shop}:* ~shop:{* resetchannels -@all +eval +evalsha +get +set +del +time +zadd +zremrangebyscore +zcard +zrange +pexpire +role
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
//! 127.0.0.1:7000> ACL SETUSER tollgate on >sesame resetkeys ~{shop}:* ~shop:{* resetchannels -@all +eval +evalsha +get +set +del +time +zadd +zremrangebyscore +zcard +zrange +pexpire +cluster|slots +cluster|info +asking
//! ```
//!
//! Without `cluster|slots` nobody knows who has which slot, and without `asking` a slot on the move is not followed: the error
//! names what is missing. Without `cluster|info` all works as long as all servers see each other; then a server that was cut off
//! from the others is believed too.
//!
//! By [`Partition::Key`](crate::Partition::Key) the states of one client under rules with one key are in one slot and are
//! decided in one step. Rules with different keys in one request, by address and by account, are decided one slot after the other
//! then; what was taken goes back when a later one denies. They are one step under
//! [`Partition::One`](crate::Partition::One), the default, which puts all states of the namespace on one shard.
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
//! // A start that would rather wait for Redis than begin without, though not for ever.
//! let patience = Duration::from_secs(10);
//! if tokio::time::timeout(patience, store.connected()).await.is_err() {
//!     eprintln!("no Redis yet; the rules answer by themselves until it is there");
//! }
//! # Ok(())
//! # }
//! ```
