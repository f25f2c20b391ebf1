//! Memory, eviction, disks, and neighbours.
//!
//! # Memory
//!
//! A state is one string under a key of its own, and lives until it equals a fresh one: a client that stays away costs
//! nothing after the time from empty to full of a bucket, or after its window.
//!
//! Bytes for each key, by the growth of `used_memory` over 100 000 keys such as `shop:{22 letters}:search-per-key:a1`, with all
//! that a server keeps for one:
//!
//! | algorithm | value | memory, Redis 7.0 | memory, Valkey 9.1 |
//! | --- | --- | --- | --- |
//! | token bucket, GCRA, leaky bucket | 33 | 214 | 148 |
//! | fixed window | 37 | 213 | 148 |
//! | sliding window | 37 | 213 | 149 |
//! | sliding log, 1 unit | 41 | 213 | 149 |
//! | sliding log, 10 units | 149 | 327 | 287 |
//! | sliding buckets, 1 in use | 41 | 213 | 148 |
//! | sliding buckets, 10 in use | 149 | 328 | 287 |
//!
//! Servers allocate in steps of 8 to 16 bytes, so the length of a key counts. With a rule name that is one letter shorter, a
//! bucket takes 133 bytes on Valkey: the key and the value then fit into one step less.
//!
//! A log takes 12 bytes for each instant at which units were taken, sub-buckets take 12 bytes for each that holds units.
//! So a log of a thousand units takes 12 KiB for a client that uses them all, and each of its requests writes them anew:
//! prefer sub-buckets where the limit is large.
//!
//! A [meter](crate::RedisStoreBuilder::meter) of one key in `n` adds one state for each `n`, and a second one for a while where
//! units are given back. While units of a bucket or a window are out in leases, 16 bytes more are kept of it. A
//! bucket of a rule whose requests wait has 12 bytes more, and lives until its queue is paid back.
//!
//! ```
//! /// Bytes for all states: clients that come within the life of a state, for each rule that they meet.
//! fn needed(clients: u64, rules: u64, bytes_per_key: u64) -> u64 {
//!     let states = clients * rules * bytes_per_key;
//!     // Tables are doubled when they are full, and both are there for a while; connections and the script are little.
//!     states + states / 2 + (64 << 20)
//! }
//!
//! // A million clients within the hour, two buckets each.
//! assert_eq!(needed(1_000_000, 2, 214) >> 20, 676);
//! ```
//!
//! Who can make up keys can fill the memory. Count by what somebody had to be given, an account or a key that was looked up,
//! or by networks rather than by addresses.
//!
//! # Eviction
//!
//! Set `maxmemory-policy noeviction`. Every other policy forgets states that count, and no one is told: the client has its
//! whole quota once more. Which clients gain depends on the policy:
//!
//! | policy | forgets |
//! | --- | --- |
//! | `volatile-ttl` | states that would soon be fresh: short limits, those of the most active clients first |
//! | `allkeys-lru`, `volatile-lru` | states that were not asked about lately: long quotas, of the day or the month |
//! | `allkeys-lfu`, `volatile-lfu` | states of clients that come seldom |
//! | `allkeys-random`, `volatile-random` | any |
//! | `noeviction` | none; at the bound it refuses to write |
//!
//! With `noeviction`, a server at its bound answers `OOM` to a take, and each rule's answer to a store failure applies. That is
//! loud, and bounded: [`failures`](super::failures). Raise an alarm at 70 % of `maxmemory`, and on any increase of
//! `evicted_keys`.
//!
//! # Disks
//!
//! What most limits count is worth seconds. Then write nothing: `save ""` and `appendonly no`. A server that cannot write its
//! snapshot refuses all writes (`MISCONF`), and a fork for a snapshot costs memory and a pause.
//!
//! After a restart everybody is fresh, which costs one quota for each client. Where a quota is that of a day or a month,
//! that may be too much: then `appendonly yes` with `appendfsync everysec` loses a second at most, and
//! `stop-writes-on-bgsave-error no` keeps a full disk from being an outage.
//!
//! Where anybody can invent keys, [`cap_new_keys`](crate::RedisStoreBuilder::cap_new_keys) limits how many all processes
//! together create in a second; clients beyond that share one bucket.
//!
//! # Several services on one Redis
//!
//! Every key begins with the namespace that the store was given. Services with different namespaces never meet; services with
//! one namespace share the budgets of the rules whose names they share, which is how several instances of one service are one
//! limit. A namespace is no wall: give each service a user of its own, [which may touch its own keys only](super::access).
//!
//! They do share memory, the processor and the fate of the server. One that floods it with keys denies writes to all. So
//! keep limits apart from caches and queues, which want another eviction policy anyway, and keep a service whose limits
//! protect log-ins or money apart from the rest.
