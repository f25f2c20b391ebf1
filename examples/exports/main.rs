//! Three exports at once for each tenant and ten an hour, and a request that finds no free slot waits: `cargo run --example exports`.
//! And exports as jobs of [another process](jobs): `cargo run --example exports worker`.
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
//! | `QUEUE` | the folder in which jobs wait; default: `exports` in the folder for temporary files |

#![expect(clippy::print_stdout, reason = "examples print to the terminal")]

mod jobs;

use std::{convert::Infallible, env, error::Error, path::PathBuf, time::Duration};

use axum::{Router, body::Body, extract::Query, routing::get};
use http::StatusCode;
use serde::Deserialize;
use tokio::{
    net::TcpListener,
    time::{interval, timeout},
};
use tokio_stream::{StreamExt, wrappers::IntervalStream};
use tollgate::{
    HOUR, Key, MemoryStore, Missing, Quota, RateLimitLayer, Rule, RuleError, Store,
    key::{KeyExtractor, computed},
    rejection::Protocol,
};
use tollgate_redis::{Keys, Partition, RedisStore, Secret};

/// How often a line of an export is sent.
const LINE: Duration = Duration::from_millis(100);

/// What an operator sets.
struct Settings {
    /// How long a request may wait for a slot; zero: it is denied at once.
    wait: Duration,
    /// How many exports a tenant has each hour.
    per_hour: u64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let settings = Settings {
        wait: millis("WAIT_MS", 5_000)?,
        per_hour: number("PER_HOUR", 10)?,
    };
    let queue = env::var("QUEUE").map_or_else(|_| env::temp_dir().join("exports"), PathBuf::from);
    let store = match env::var("REDIS_URL") {
        Ok(address) => Some(shared(&address).await?),
        Err(_) => None,
    };
    let app = match (env::args().nth(1).as_deref(), store) {
        (Some("worker"), Some(store)) => return jobs::work(store, &queue).await,
        (Some(_), _) => return Err("take `worker` with REDIS_URL, or no argument".into()),
        (None, Some(store)) => app(store.clone(), &settings)?.merge(jobs::routes(store, queue)?),
        // Nobody else would redeem a reservation of this process.
        (None, None) => app(MemoryStore::new(), &settings)?,
    };
    let port = env::var("PORT").unwrap_or_else(|_| "3000".to_owned());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    let here = listener.local_addr()?;
    println!(
        "listening on http://{here}

Try, four of these at once:
  curl -i -N 'http://{here}/export?seconds=3' -H 'x-api-key: acme.k1'

The fourth waits until one of the others ends, for at most {:?}. Ctrl-C in a curl frees its slot.

Two processes share the slots of one Redis. Kill one with -9 while it holds some: they are back 15 seconds later.
  REDIS_URL=redis://127.0.0.1:6379 PORT=3000 cargo run --example exports
  REDIS_URL=redis://127.0.0.1:6379 PORT=3001 cargo run --example exports
",
        settings.wait
    );
    Ok(axum::serve(listener, app).await?)
}

/// The store that processes share.
async fn shared(address: &str) -> Result<RedisStore, Box<dyn Error>> {
    let secret = match env::var_os("TOLLGATE_SECRET") {
        Some(_) => Secret::from_env("TOLLGATE_SECRET")?,
        None => {
            println!("TOLLGATE_SECRET is not set: using a publicly known one");
            Secret::from_bytes(*b"a secret that is public knowledge")?
        }
    };
    let mut store = RedisStore::builder(address, "exports", Keys::hashed(secret))
        // An export has two rules by one tenant, and is decided in one step.
        .partition(Partition::One)
        .slot_term(millis("SLOT_TERM_MS", 15_000)?);
    if env::var("REDIS_DEADLINE_MS").is_ok() {
        store = store.deadline(millis("REDIS_DEADLINE_MS", 50)?);
    }
    let store = store.connect()?;
    let patience = Duration::from_secs(5);
    if timeout(patience, store.connected()).await.is_err() {
        println!("no connection after {patience:?}; going on without, each process for itself");
    }
    Ok(store)
}

/// `GET /export?seconds=3`, with its limits in `store`.
fn app(store: impl Store, settings: &Settings) -> Result<Router, RuleError> {
    let mut at_once = Rule::new("exports-at-once", Quota::concurrent(3));
    if !settings.wait.is_zero() {
        at_once = at_once.wait(settings.wait);
    }
    let limits = RateLimitLayer::new(
        store,
        [
            at_once
                .by(tenant())
                .when_missing(Missing::Reject(StatusCode::UNAUTHORIZED)),
            Rule::new(
                "exports-per-hour",
                Quota::sliding_log(settings.per_hour, HOUR),
            )
            .by(tenant())
            .when_missing(Missing::Reject(StatusCode::UNAUTHORIZED)),
        ],
    )?
    .protocol(Protocol::Http);
    Ok(Router::new().route("/export", get(export).route_layer(limits)))
}

/// A real service has checked the key in front: see the guide on keys.
fn tenant() -> impl KeyExtractor {
    computed(|head| {
        let key = head.headers.get("x-api-key")?.to_str().ok()?;
        Some(Key::of(key.split_once('.')?.0))
    })
}

#[derive(Deserialize)]
struct Export {
    #[serde(default = "three")]
    seconds: u16,
}

fn three() -> u16 {
    3
}

/// A line each 100 ms. The slot is held until the last one is sent, or the client has gone.
async fn export(Query(Export { seconds }): Query<Export>) -> Body {
    let lines = usize::from(seconds) * 10;
    let lines = IntervalStream::new(interval(LINE)).take(lines);
    let mut line = 0;
    Body::from_stream(lines.map(move |_| {
        line += 1;
        Ok::<_, Infallible>(format!("line {line}\n"))
    }))
}

/// The milliseconds that the environment sets, or else `default`.
fn millis(variable: &str, default: u64) -> Result<Duration, String> {
    Ok(Duration::from_millis(number(variable, default)?))
}

fn number(variable: &str, default: u64) -> Result<u64, String> {
    let Ok(text) = env::var(variable) else {
        return Ok(default);
    };
    text.parse().map_err(|_| {
        format!("{variable} is {text:?} and no number; take {default}, or leave it out")
    })
}
