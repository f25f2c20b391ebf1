//! A gateway in front of two backends, which it starts itself: `cargo run --example gateway`.
//!
//! Tenants come with API keys. Requests are limited by key and by route. Answers of a model are streamed: three at once for each
//! tenant, and paid by the tokens that the model's last event counts, from a monthly budget and then from what the tenant has
//! bought. It is written to a ledger, and Ctrl-C prints the tenants' statements.
//!
//! | variable | is |
//! | --- | --- |
//! | `PORT` | where to listen; default: 3000 |
//! | `REDIS_URL` | a Redis that gateways share: `redis://host:6379`. Without it this process counts for itself, in memory |
//! | `TOLLGATE_SECRET` | with `REDIS_URL`: what tenants are hashed with, 32 bytes or more in hex or base64: `openssl rand -hex 32` |
//! | `REDIS_DEADLINE_MS` | with `REDIS_URL`: how long a request may wait for Redis, in milliseconds; default: 50, that of the library |
//! | `DATABASE_URL` | the ledger: `postgres://user:password@host/database`, or a file; default: `sqlite:gateway.db` |
//! | `OPERATOR_KEY` | who has it adds the tokens that tenants buy: `openssl rand -hex 32`; without it nobody does |
//! | `TOKENS_A_MONTH` | the budget of a tenant; default: 1000 |
//! | `READ_ON_MS` | for how long the model's answer is read after its client hung up, in milliseconds; default: 30000 |
//! | `TOKEN_MS` | how long the model takes for a token, in milliseconds; default: 20 |
//! | `MODEL_LOG` | a file to which the model appends a line for each answer: the tenant and its tokens |

#![expect(clippy::print_stdout, reason = "examples print to the terminal")]

mod backends;
mod ledger;
mod limits;
mod model;
mod proxy;

use std::{env, error::Error, io, sync::Arc, time::Duration};

use axum::{
    Router,
    routing::{get, post},
};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    time::timeout,
};
use tollgate::{MemoryStore, SECOND};
use tollgate_redis::{Keys, Partition, RedisStore, Secret};

use crate::{
    ledger::Accounts,
    limits::Limits,
    proxy::{Gateway, Tenant},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let tokens = number("TOKENS_A_MONTH", 1_000)?;
    let redis = match env::var("REDIS_URL") {
        Ok(address) => Some(shared(&address).await?),
        Err(_) => None,
    };
    let limits = match &redis {
        Some(redis) => Limits::new(redis, tokens)?,
        None => Limits::new(&MemoryStore::new(), tokens)?,
    };
    let database = env::var("DATABASE_URL").unwrap_or_else(|_| "sqlite:gateway.db".to_owned());
    let operator = env::var("OPERATOR_KEY").ok().filter(|key| !key.is_empty());
    let accounts = Accounts::open(&database, limits.model.limiter(), operator).await?;

    let items = backends::start(backends::items()).await?;
    let model = backends::model(millis("TOKEN_MS", 20)?, env::var_os("MODEL_LOG"));
    let model = backends::start(model).await?;
    let (gateway, mut ended) = Gateway::new(items, model, millis("READ_ON_MS", 30_000)?);

    let end = end()?;
    let port = env::var("PORT").unwrap_or_else(|_| "3000".to_owned());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app(limits, gateway, &accounts))
        .with_graceful_shutdown(end)
        .await?;
    // What clients have left is read to its end, and paid.
    ended.recv().await;
    if let Some(redis) = redis {
        redis.flush(10 * SECOND).await;
    }
    for tenant in Tenant::all() {
        let statement = accounts.statement(tenant, 10).await?;
        println!("\n{}:\n{statement}", tenant.name());
    }
    Ok(())
}

/// The routes, each with its limits.
fn app(limits: Limits, gateway: Gateway, accounts: &Arc<Accounts>) -> Router {
    let statement = get(ledger::statement).with_state(Arc::clone(accounts));
    let top_ups = post(ledger::top_up).with_state(Arc::clone(accounts));
    Router::new()
        .route("/items", get(proxy::items).route_layer(limits.items))
        .route(
            "/v1/completions",
            post(model::complete).route_layer(limits.model),
        )
        .route("/statement", statement.route_layer(limits.statement))
        .layer(axum::middleware::from_fn(proxy::authenticate))
        .with_state(gateway)
        .route("/top-ups", top_ups)
}

/// The store that gateways share.
async fn shared(address: &str) -> Result<RedisStore, Box<dyn Error>> {
    let secret = match env::var_os("TOLLGATE_SECRET") {
        Some(_) => Secret::from_env("TOLLGATE_SECRET")?,
        None => {
            println!("TOLLGATE_SECRET is not set: using a publicly known one");
            Secret::from_bytes(*b"a secret that is public knowledge")?
        }
    };
    let mut store = RedisStore::builder(address, "gateway", Keys::hashed(secret))
        // A request has rules with several keys, and is decided in one step.
        .partition(Partition::One);
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

/// Ctrl-C, or a polite `kill`. Answers that are being streamed end first.
fn end() -> io::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
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
