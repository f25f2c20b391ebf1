//! Addresses and credentials as `redis` (redis-rs) 1.8 has them, for services that use it already.
//!
//! Of an address of redis-rs, host and port or socket, user and password, and database are taken over; `RESP2` says that `HELLO` is not sent.
//! Settings of TCP and the name of the library are not: sockets are tuned for answers that are awaited for milliseconds.
//!
//! **Encryption is given again**, because redis-rs does not let others read it: `RedisStoreBuilder::tls` takes the
//! configuration of rustls. Without it an encrypted address is refused, whatever it says itself about roots, certificates of
//! its own, or `insecure`: nothing is ever connected by a default. A credentials provider is given [as below](#credentials).
//!
//! The connection stays tollgate's own, and nothing of redis-rs runs for a request: `docs/design/redis-connection.md` in the
//! repository says why.
//!
//! # Addresses
//!
//! Where an address is asked for, a [`&Client`](redis::Client) and a [`&ConnectionInfo`](redis::ConnectionInfo) will do. Sentinels and
//! clusters, which are lists in redis-rs, are given as [text](crate::Address).
//!
//! ```
//! use tollgate_redis::{Keys, RedisStore, redis_1::redis};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = redis::Client::open("redis://limits:sesame@localhost/2")?;
//! let store = RedisStore::builder(&client, "shop", Keys::plain()).connect()?;
//! # drop(store);
//! # Ok(())
//! # }
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

pub use self::credentials::StreamedCredentials;
