//! Addresses and credentials as `redis` (redis-rs) 1.8 has them, for services that use it already.
//!
//! Of an address of redis-rs, host and port or socket, user and password, database and version of the protocol are taken over.
//! Settings of TCP and the name of the library are not: sockets are tuned for answers that are awaited for milliseconds.
//!
//! **Encryption is given again**, because redis-rs does not let others read it: `RedisStoreBuilder::tls` takes the
//! configuration of rustls. Without it an encrypted address is refused, whatever it says itself about roots, certificates of
//! its own, or `insecure`: nothing is ever connected by a default. A credentials provider is given [as below](#credentials).
//!
//! The connection stays tollgate's own, and nothing of redis-rs runs for a request: `docs/design/redis-connection.md` in the
//! repository says why.
//!
//! # One server
//!
//! Where an address is asked for, a [`Client`](redis::Client), a [`ConnectionInfo`](redis::ConnectionInfo) and a [`ConnectionAddr`](redis::ConnectionAddr) will do. [`server`] takes whatever
//! else is [`IntoConnectionInfo`](redis::IntoConnectionInfo).
//!
//! ```
//! use tollgate_redis::{Keys, RedisStore, redis_1::{self, redis}};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = redis::Client::open("redis://limits:sesame@localhost/2")?;
//! let store = RedisStore::builder(&client, "shop", Keys::plain()).connect()?;
//! // Or by a host and a port.
//! let address = redis_1::server(("localhost", 6379))?;
//! let other = RedisStore::builder(address, "shop", Keys::plain()).connect()?;
//! # drop((store, other));
//!
//! let refused = redis_1::server(("", 6379)).unwrap_err();
//! assert_eq!(refused.to_string(), "the address of Redis: a host is empty");
//! # Ok(())
//! # }
//! ```
//!
//! # Sentinel and Cluster
//!
//! Both are lists, as for `SentinelClient` and `ClusterClient`:
//!
//! ```
//! use tollgate_redis::redis_1::{self, redis::{ConnectionAddr, RedisConnectionInfo}};
//!
//! let nodes = ["one", "two", "three"].map(|host| ConnectionAddr::Tcp(host.into(), 7000));
//! let cluster = redis_1::cluster(nodes)?;
//!
//! // Who logs in at the sentinels is in their addresses; who logs in at the servers is said apart.
//! let servers = RedisConnectionInfo::default().set_username("limits").set_password("sesame");
//! let sentinels = ["redis://:secret@one:26379", "redis://:secret@two:26379"];
//! let address = redis_1::sentinel(sentinels, "mymaster", &servers)?;
//!
//! let mixed = ["redis://:one@first:7000", "redis://:two@second:7000"];
//! let refused = redis_1::cluster(mixed).unwrap_err();
//! assert!(refused.to_string().contains("different users or passwords"));
//! # drop((cluster, address));
//! # Ok::<(), tollgate_redis::SetupError>(())
//! ```
//!
//! # Credentials
//!
//! A [`StreamingCredentialsProvider`](redis::StreamingCredentialsProvider), which redis-rs has with its feature
//! `token-based-authentication`, is given to the builder by [`StreamedCredentials`]:
//!
//! ```
//! use std::pin::Pin;
//!
//! use futures_core::Stream;
//! use tollgate_redis::{Keys, RedisStore, redis_1::{StreamedCredentials, redis}};
//!
//! struct Tokens;
//!
//! impl redis::StreamingCredentialsProvider for Tokens {
//!     fn subscribe(&self) -> Pin<Box<dyn Stream<Item = redis::RedisResult<redis::BasicAuth>> + Send>> {
//!         // The first token here, and each one that replaces it.
//!         # Box::pin(tokio_stream::pending())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = RedisStore::builder("redis://localhost", "shop", Keys::plain())
//!     .credentials(StreamedCredentials::new(Tokens))
//!     .connect()?;
//! # drop(store);
//! # Ok(())
//! # }
//! ```

mod address;
mod credentials;

#[doc(no_inline)]
pub use redis;

pub use self::{
    address::{cluster, sentinel, server},
    credentials::StreamedCredentials,
};
