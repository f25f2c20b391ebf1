//! A service whose limits are in a file that may change while it runs: `cargo run --example rules`.
//!
//! | variable | is |
//! | --- | --- |
//! | `LIMITS` | the file, or a folder of files; default: `examples/limits.toml` |
//! | `PORT` | where to listen; default: 3000 |
//! | `REDIS_URL` | a Redis, `redis://host:6379`, `redis-sentinel://host,host/master`, `redis-cluster://host,host`: all processes there share the rules and the limits, and whichever sees the file change pushes it |
//! | `TOLLGATE_SECRET` | with `REDIS_URL`: what documents are signed with, and clients hashed; `openssl rand -hex 32` |
//! | `REDIS_DEADLINE_MS` | how long a request may wait for Redis, in milliseconds; default: 50, that of the library |

#![expect(clippy::print_stdout, reason = "examples print to the terminal")]

mod metrics;
mod routes;
mod shared;

use std::{env, error::Error, net::SocketAddr};

use tokio::net::TcpListener;
use tollgate::MemoryStore;
use tollgate_console::{Access, Console};
use tollgate_rules::{Bindings, LiveRules};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Before anything is limited.
    let recorder = metrics::install()?;
    let limits = env::var("LIMITS").unwrap_or_else(|_| "examples/limits.toml".to_owned());
    // For this machine alone. A service that others reach takes a token, or a layer of its own.
    let console = Console::new(Access::loopback()).metrics(metrics::text(recorder.clone()));
    let app = match env::var("REDIS_URL") {
        Ok(address) => {
            let (redis, rules, store) = shared::rules_and_store(&address, &limits).await?;
            let console = console.fleet(&redis, Bindings::new()).store(&store);
            routes::app(&rules, store, console)?
        }
        Err(_) => {
            // With a mistake in the file the service does not start, and this is its exit message.
            let rules = LiveRules::watch(&limits, Bindings::new())?;
            routes::app(&rules, MemoryStore::new(), console)?
        }
    };
    let app = app.merge(metrics::route(recorder));
    let port = env::var("PORT").unwrap_or_else(|_| "3000".to_owned());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    let address = listener.local_addr()?;
    println!(
        "listening on http://{address}

Try, and edit {limits} in between:
  curl -i http://{address}/items -H 'x-api-key: acme'
  curl -i http://{address}/weather/Oslo
  curl http://{address}/limits -H 'x-api-key: acme'    # what is left, without counting
  curl http://{address}/rules      # which rules are in force, and what was rejected
  curl http://{address}/top-keys   # which keys come most often
  curl http://{address}/metrics    # for Prometheus; ops/ has dashboards and alerts
In a browser: http://{address}/tollgate
"
    );
    // Client IP addresses come from the socket, so the server has to hand them to the requests.
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, service).await?)
}
