//! Addresses as `redis` (redis-rs) 1.8 has them, for services that use it already.
//!
//! Of an address of redis-rs, host and port or socket, user and password, and database are taken over; `RESP2` says that `HELLO` is
//! not sent. Settings of TCP and the name of the library are not: sockets are tuned for answers that are awaited for milliseconds.
//!
//! **Encryption is given again**, because redis-rs does not let others read it: `RedisStoreBuilder::tls` takes the
//! configuration of rustls. Without it an encrypted address is refused, whatever it says itself about roots, certificates of
//! its own, or `insecure`: nothing is ever connected by a default. In the
//! place of a `StreamingCredentialsProvider`, a closure [gives credentials](crate::RedisStoreBuilder::credentials).
//!
//! The connection stays tollgate's own, and nothing of redis-rs runs for a request: `docs/design/redis-connection.md` in the
//! repository says why.
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

#[doc(no_inline)]
pub use redis;
use redis::{Client, ConnectionAddr, ConnectionInfo, ProtocolVersion};

use crate::{
    address::{Address, Login, Place, needs_tls},
    error::SetupError,
};

impl TryFrom<&ConnectionInfo> for Address {
    type Error = SetupError;

    /// The address of one server.
    ///
    /// # Errors
    ///
    /// A host that is empty, a number of a database below 0, an encrypted address without the feature `tls`.
    fn try_from(info: &ConnectionInfo) -> Result<Self, SetupError> {
        let (place, is_encrypted) = match info.addr() {
            ConnectionAddr::Tcp(host, port) => (tcp(host, *port)?, false),
            ConnectionAddr::TcpTls { host, port, .. } => (tcp(host, *port)?, true),
            ConnectionAddr::Unix(path) => (Place::Unix(path.clone()), false),
            _ => {
                return Err(SetupError::address(
                    "it is of a kind that this version of tollgate-redis does not know",
                ));
            }
        };
        if is_encrypted && !cfg!(feature = "tls") {
            return Err(needs_tls());
        }
        let settings = info.redis_settings();
        let database = u32::try_from(settings.db()).map_err(|_| {
            SetupError::address(format!(
                "the database {} is not a number from 0 on",
                settings.db()
            ))
        })?;
        Ok(Self {
            is_encrypted,
            login: Login {
                user: settings.username().map(str::to_owned),
                password: settings.password().map(str::to_owned),
            },
            database,
            without_hello: settings.protocol() == ProtocolVersion::RESP2,
            ..Self::of_place(place)
        })
    }
}

impl TryFrom<&Client> for Address {
    type Error = SetupError;

    fn try_from(client: &Client) -> Result<Self, SetupError> {
        Self::try_from(client.get_connection_info())
    }
}

fn tcp(host: &str, port: u16) -> Result<Place, SetupError> {
    match (host, port) {
        ("", _) => Err(SetupError::address("a host is empty")),
        (_, 0) => Err(SetupError::address("a port is 0; 6379 is usual")),
        _ => Ok(Place::Tcp(host.to_owned(), port)),
    }
}

#[cfg(test)]
mod tests;
