//! Three exports at once for each tenant and ten an hour, and a request that finds no free slot waits: `cargo run --example exports`.
//!
//! | variable | is |
//! | --- | --- |
//! | `PORT` | where to listen; default: 3000 |
//! | `REDIS_URL` | a Redis that processes share: `redis://host:6379`. Without it this process counts for itself, in memory |
//! | `TOLLGATE_SECRET` | with `REDIS_URL`: what tenants are hashed with, 32 bytes or more in hex or base64: `openssl rand -hex 32` |
//! | `SLOT_TERM_MS` | with `REDIS_URL`: after how many milliseconds the slots of a process that was killed are back; default: 15000 |
//! | `REDIS_DEADLINE_MS` | with `REDIS_URL`: how long a request may wait for Redis, in milliseconds; default: 50, that of the library |
//! | `WAIT_MS` | how long a request may wait for a slot, in milliseconds; default: 5000 |
//! | `PER_HOUR` | how many exports a tenant has each hour; default: 10 |

#![expect(clippy::print_stdout, reason = "examples print to the terminal")]

use std::{env, error::Error, time::Duration};

use tokio::time::timeout;
use tollgate::MemoryStore;
use tollgate_examples::{
    exports::{Settings, app, millis},
    secret::secret,
    serve::serve,
};
use tollgate_redis::{Keys, Partition, RedisStore};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let settings = Settings::from_env()?;
    let app = match env::var("REDIS_URL") {
        Ok(address) => {
            let mut store = RedisStore::builder(&address, "exports", Keys::hashed(secret()?))
                // An export has two rules by one tenant, and is decided in one step.
                .partition(Partition::One)
                .slot_term(millis("SLOT_TERM_MS", 15_000)?);
            if env::var("REDIS_DEADLINE_MS").is_ok() {
                store = store.deadline(millis("REDIS_DEADLINE_MS", 50)?);
            }
            let store = store.connect()?;
            let patience = Duration::from_secs(5);
            if timeout(patience, store.connected()).await.is_err() {
                println!(
                    "no connection after {patience:?}; going on without, each process for itself"
                );
            }
            app(store, settings)?
        }
        Err(_) => app(MemoryStore::new(), settings)?,
    };
    serve(app, |here| {
        format!(
            "Try, four of these at once:
  curl -i -N 'http://{here}/export?seconds=3' -H 'x-api-key: acme.k1'

The fourth waits until one of the others ends, for at most {:?}. Ctrl-C in a curl frees its slot.

Two processes share the slots of one Redis. Kill one with -9 while it holds some: they are back 15 seconds later.
  REDIS_URL=redis://127.0.0.1:6379 PORT=3000 cargo run --example exports
  REDIS_URL=redis://127.0.0.1:6379 PORT=3001 cargo run --example exports
",
            settings.wait
        )
    })
    .await
}
