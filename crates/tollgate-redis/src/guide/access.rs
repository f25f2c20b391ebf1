//! Who may do what on the server.
//!
//! # A user of its own
//!
//! The limiter needs these commands and no other, on the keys of its namespace, here `shop`:
//!
//! ```text
//! 127.0.0.1:6379> ACL SETUSER tollgate on >sesame resetkeys ~{shop}:* ~shop:{* resetchannels -@all +eval +evalsha +get +set +setrange +del +time +zadd +zremrangebyscore +zcard +zrange +pexpire
//! ```
//!
//! Take a better password. Commands inside of a script are checked one by one, so that `get`, `set`, `del` and `time` have to
//! be there. `setrange` writes the counter of a window alone; without it each take writes the whole state, and is noted in `ACL LOG`. The last
//! five are for heartbeats, by which instances know how many they are, for their shares while Redis fails, and whether their
//! quotas or secrets differ; leave them out where the store is built
//! [without heartbeats](crate::RedisStoreBuilder::without_heartbeats).
//!
//! States begin with `{shop}:` under [`Partition::One`](crate::Partition::One), and so does what is not a state; with the other
//! partitions they begin with `shop:{`. Both patterns are exact: a namespace has no brace, so a user of `shop` cannot touch what
//! belongs to `shop:eu`, as it could with `~shop:*`. The address is then `redis://tollgate:sesame@host`.
//!
//! | for | add |
//! | --- | --- |
//! | an address with a database | `+select` |
//! | Sentinel | `+role`, on the servers |
//! | Cluster | `+cluster\|slots +cluster\|info +asking` |
//! | the name and version of this crate in `CLIENT LIST`, from Redis 7.2 on (older servers refuse the whole line with it) | `+client\|setinfo`; without it the server notes a refusal for each connection in `ACL LOG`, and all works |
//! | [the size of the namespace](crate::RedisStoreBuilder::measure_namespace), on all servers; with `+scan` its user may read the names of all keys | `+scan +memory\|usage +info` |
//! | a clock of the caller's own, on servers whose scripts may not tell the time | nothing; leave out `+time` |
//!
//! The sentinels themselves are asked for `SENTINEL GET-MASTER-ADDR-BY-NAME` only. Where they want a login, it is
//! `?sentinel_username=…&sentinel_password=…` in the address.
//!
//! A right that is missing shows as an error of the kind "misconfigured": the rules' answers to a store failure apply, and the
//! connection is kept, because the server is not in trouble.
//!
//! # Passwords that change
//!
//! A [`CredentialsProvider`](crate::CredentialsProvider) says who logs in, for each connection and again before its credentials
//! expire: tokens of a cloud's identity service, a password that a vault rotates, a file that is written anew. An open connection
//! logs in anew without a request being dropped.
//!
//! | where | what the provider gives |
//! | --- | --- |
//! | `requirepass` | [`Credentials::password`](crate::Credentials::password), read anew each time. The server asks connections that are open for nothing; those that it loses find the new password |
//! | a user of an access list with two passwords for the time of a change (`>new`, later `<old`) | [`Credentials::new`](crate::Credentials::new), as above |
//! | ElastiCache and MemoryDB by IAM, Memorystore by IAM, Azure by Entra ID | `Credentials::new(user, token).expires_in(lifetime)`: tokens last for 15 minutes to an hour, and a connection that is not logged in anew is ended by the server |
//! | a `StreamingCredentialsProvider` of redis-rs, such as its `EntraIdCredentialsProvider` | `redis_1::StreamedCredentials`, with the feature `redis-1` |
//!
//! ```no_run
//! use std::{fs, io};
//!
//! use tollgate_redis::{Credentials, Keys, RedisStore, Secret};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let keys = Keys::hashed(Secret::from_env("TOLLGATE_SECRET")?);
//! let store = RedisStore::builder("redis://cache.internal", "shop", keys)
//!     .credentials(|| async {
//!         let password = fs::read_to_string("/run/secrets/redis")?;
//!         Ok::<_, io::Error>(Credentials::new("tollgate", password.trim()))
//!     })
//!     .connect()?;
//! # drop(store);
//! # Ok(())
//! # }
//! ```
//!
//! If a provider fails, or the server refuses what it gave, an open connection goes on as it is, and
//! [`tollgate_redis_log_ins_anew_total`](super::watching) counts it. A new connection is not made then: the rules' answers to a
//! store failure apply, as in any outage.
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
