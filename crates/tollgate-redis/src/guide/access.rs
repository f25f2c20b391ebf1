//! Who may do what on the server.
//!
//! # A user of its own
//!
//! The limiter needs these commands and no other, on keys that begin with its namespace, here `shop`:
//!
//! ```text
//! 127.0.0.1:6379> ACL SETUSER tollgate on >sesame resetkeys ~shop:* ~{shop}:* resetchannels -@all +eval +evalsha +get +set +del +time
//! ```
//!
//! Take a better password. Commands inside of a script are checked one by one, so that `get`, `set`, `del` and `time` have to
//! be there. Which of the two patterns states have depends on the [`Partition`](crate::Partition); the first is needed for
//! probes in any case. The address is then `redis://tollgate:sesame@host`.
//!
//! | for | add |
//! | --- | --- |
//! | an address with a database | `+select` |
//! | Sentinel | `+role`, on the servers |
//! | Cluster | `+cluster\|slots +cluster\|info +asking` |
//! | knowing how many instances there are, for their shares while Redis fails, and whether their quotas differ | `+zadd +zremrangebyscore +zcard +zrange +pexpire`; or call [`without_heartbeats`](crate::RedisStoreBuilder::without_heartbeats) |
//! | a clock of the caller's own, on servers whose scripts may not tell the time | nothing; leave out `+time` |
//!
//! The sentinels themselves are asked for `SENTINEL GET-MASTER-ADDR-BY-NAME` only. Where they want a login, it is
//! `?sentinel_username=…&sentinel_password=…` in the address.
//!
//! A right that is missing shows as an error of the kind "misconfigured": the rules' answers to a store failure apply, and the
//! connection is kept, because the server is not in trouble.
//!
//! # Secrets and encryption
//!
//! No key holds what a client has sent: it is hashed with a [`Secret`](crate::Secret) that all instances have and Redis does
//! not. Without it four billion addresses are tried in a minute. How to change it while the service runs, nobody's budget
//! beginning anew, is said at [`Keys`](crate::Keys). Still, who reads the keys knows how many clients there are and how busy,
//! and who writes them decides who passes. So do not let others in: `bind` to a private network, a password, and an
//! encrypted way wherever it is not the loopback interface.
//!
//! A user who may call `EVAL` may run any script on its keys. That is why the keys are bounded, and why servers have to be
//! patched: CVE-2025-49844, by which a script could leave its cage, is fixed in Redis 6.2.20, 7.4.6, 8.0.4 and 8.2.2, and in
//! the releases of Valkey since October 2025; distributions carry the fix back to older versions.
