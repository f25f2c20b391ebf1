//! A service whose limits are in a file that may change while it runs: `cargo run --example rules`.
//!
//! | variable | is |
//! | --- | --- |
//! | `LIMITS` | the file, or a folder of files; default: `examples/limits.toml` |
//! | `PORT` | where to listen; default: 3000 |
//! | `REDIS_URL` | a Redis, `redis://host:6379`, `redis-sentinel://host,host/master`, `redis-cluster://host,host`: all processes there share the rules and the limits, and whichever sees the file change pushes it |
//! | `TOLLGATE_SECRET` | with `REDIS_URL`: what documents are signed with, and clients hashed; `openssl rand -hex 32` |
//! | `REDIS_DEADLINE_MS` | how long a request may wait for Redis, in milliseconds; default: 50, that of the library |

use std::{env, error::Error, time::Duration};

use axum::Router;
use tollgate::MemoryStore;
use tollgate_examples::{metrics, rules, serve::serve};
use tollgate_redis::Secret;
use tollgate_rules::{Bindings, LiveRules};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Before anything is limited.
    let recorder = metrics::install()?;
    let limits = env::var("LIMITS").unwrap_or_else(|_| "examples/limits.toml".to_owned());
    let app: Router = match env::var("REDIS_URL") {
        Ok(address) => {
            let secret = Secret::from_env("TOLLGATE_SECRET")?;
            rules::shared(&address, "shop", &secret, &limits, deadline()?).await?
        }
        Err(_) => {
            // With a mistake in the file the service does not start, and this is its exit message.
            let rules = LiveRules::watch(&limits, Bindings::new())?;
            rules::app(&rules, MemoryStore::new())?
        }
    };
    let app = app.merge(metrics::route(recorder));
    serve(app, |address| {
        format!(
            "Try, and edit {limits} in between:
  curl -i http://{address}/items -H 'x-api-key: acme'
  curl -i http://{address}/weather/Oslo
  curl http://{address}/limits -H 'x-api-key: acme'    # what is left, without counting
  curl http://{address}/rules      # which rules are in force, and what was rejected
  curl http://{address}/top-keys   # which keys come most often; or: tollgate top --keys http://{address}/top-keys
  curl http://{address}/metrics    # for Prometheus; ops/ has dashboards and alerts
"
        )
    })
    .await
}

/// For a Redis in another region.
fn deadline() -> Result<Option<Duration>, String> {
    let Ok(text) = env::var("REDIS_DEADLINE_MS") else {
        return Ok(None);
    };
    let number = text.parse().map_err(|_| {
        format!("REDIS_DEADLINE_MS is {text:?} and no number; take 50, or leave it out")
    })?;
    Ok(Some(Duration::from_millis(number)))
}
