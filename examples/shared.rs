//! The shop with its limits in Redis, so that several processes are one limit: `cargo run --example
//! shared`.
//!
//! | variable | is |
//! | --- | --- |
//! | `REDIS_URL` | where Redis is: `redis://host:6379`, `unix:///path`, `redis-sentinel://host,host/master`, `redis-cluster://host,host`. Without it the example starts a `redis-server` of its own |
//! | `TOLLGATE_SECRET` | what clients are hashed with, 32 bytes or more in hex or base64: `openssl rand -hex 32` |
//! | `REDIS_DEADLINE_MS` | how long a request may wait for Redis, in milliseconds; default: 50, that of the library |
//! | `PORT` | where to listen; default: 3000 |

#![expect(clippy::print_stdout, reason = "examples print to the terminal")]

use std::{env, error::Error, time::Duration};

use tokio::time::timeout;
use tollgate_examples::{redis_server::RedisServer, secret::secret, serve::serve, shop};
use tollgate_redis::{Keys, Partition, RedisStore};

/// Two services on one Redis do not meet if their namespaces differ.
const NAMESPACE: &str = "shop";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Ends with this function.
    let mut own = None;
    let address = match env::var("REDIS_URL") {
        Ok(address) => address,
        Err(_) => own
            .insert(RedisServer::start().map_err(|error| format!("{error}, or set REDIS_URL"))?)
            .url(),
    };
    let mut store = RedisStore::builder(&address, NAMESPACE, Keys::hashed(secret()?))
        // Only a cluster asks for it: a request of the shop has rules with several keys, and is decided in one step.
        .partition(Partition::One);
    // For a Redis in another region. A machine that is too busy to answer within the default shows what happens then: each
    // process counts for itself, and no client waits.
    if let Ok(text) = env::var("REDIS_DEADLINE_MS") {
        let number = text.parse().map_err(|_| {
            format!("REDIS_DEADLINE_MS is {text:?} and no number; take 50, or leave it out")
        })?;
        store = store.deadline(Duration::from_millis(number));
    }
    let store = store.connect()?;
    // A service need not wait: until there is a connection each rule answers as it does when Redis is down. But whoever
    // tries an example wants to be told of a wrong address.
    let patience = Duration::from_secs(5);
    if timeout(patience, store.connected()).await.is_err() {
        println!("no connection after {patience:?}; going on without, each process for itself");
    }
    if own.is_some() {
        println!(
            "REDIS_URL is not set: started a redis-server at {address}, which ends with this program"
        );
    }

    serve(shop::app(store)?, |here| {
        // An address may hold a password; that of our own Redis does not.
        let redis = own
            .as_ref()
            .map_or_else(|| "$REDIS_URL".to_owned(), RedisServer::url);
        format!(
            "Start a second process, which shares its limits:
  REDIS_URL={redis} PORT=0 cargo run --example shared

Try:
  curl -i http://{here}/
  curl -i http://{here}/items -H 'x-api-key: acme.k1'
  curl -i 'http://{here}/search?q=anvils+for+coyotes'
  for i in 1 2 3 4 5 6; do curl -i -X POST http://{here}/login; done
"
        )
    })
    .await
}
