//! Limits in Redis, so that several processes are one limit: `cargo run --example shared`.
//!
//! | variable | is |
//! | --- | --- |
//! | `REDIS_URL` | where Redis is: `redis://host:6379`, `unix:///path`, `redis-sentinel://host,host/master`, `redis-cluster://host,host`. Without it the example starts a `redis-server` of its own |
//! | `TOLLGATE_SECRET` | what clients are hashed with, 32 bytes or more in hex or base64: `openssl rand -hex 32` |
//! | `REDIS_DEADLINE_MS` | how long a request may wait for Redis, in milliseconds; default: 50, that of the library |
//! | `PORT` | where to listen; default: 3000 |

#![expect(clippy::print_stdout, reason = "examples print to the terminal")]

use std::{env, error::Error, io, net::SocketAddr, process::Stdio, time::Duration};

use axum::{
    Router,
    routing::{get, post},
};
use tokio::{
    net::TcpListener,
    process::{Child, Command},
    time::timeout,
};
use tollgate::{
    MINUTE, Quota, RateLimitLayer, Rule, RuleError, SECOND, key::client_ip, rejection::Protocol,
};
use tollgate_redis::{Keys, Partition, RedisStore, Secret};

/// Two services on one Redis do not meet if their namespaces differ.
const NAMESPACE: &str = "shared";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (address, own) = match env::var("REDIS_URL") {
        Ok(address) => (address, None),
        Err(_) => {
            let (address, server) = redis_server().await?;
            println!(
                "REDIS_URL is not set: started a redis-server at {address}, which ends with this program"
            );
            (address, Some(server))
        }
    };
    let mut store = RedisStore::builder(&address, NAMESPACE, Keys::hashed(secret()?))
        // Only a cluster asks for it: a request has rules with several keys, and is decided in one step.
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
    // A service need not wait: until there is a connection each rule answers as it does when Redis is down. But somebody who
    // tries an example wants to hear of a wrong address.
    let patience = Duration::from_secs(5);
    if timeout(patience, store.connected()).await.is_err() {
        println!("no connection after {patience:?}; going on without, each process for itself");
    }

    let app = app(&store)?;
    let port = env::var("PORT").unwrap_or_else(|_| "3000".to_owned());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    let here = listener.local_addr()?;
    // An address may hold a password; that of our own Redis does not.
    let redis = own.as_ref().map_or("$REDIS_URL", |_| &address);
    println!(
        "listening on http://{here}

Start a second process, which shares its limits:
  REDIS_URL={redis} PORT=0 cargo run --example shared

Try:
  curl -i http://{here}/items
  for i in 1 2 3 4 5 6; do curl -i -X POST http://{here}/login; done
"
    );
    // Client IP addresses come from the socket, so the server has to hand them to the requests.
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service)
        .with_graceful_shutdown(end()?)
        .await?;
    if let Some(mut server) = own {
        server.kill().await?;
    }
    Ok(())
}

/// The routes, with their limits in the store.
fn app(store: &RedisStore) -> Result<Router, RuleError> {
    let items = [
        Rule::new("items-per-ip", Quota::gcra(20, SECOND).burst(40)).by(client_ip()),
        Rule::new("items-hourly", Quota::sliding_window(5_000, 60 * MINUTE)).by(client_ip()),
    ];
    let items = RateLimitLayer::new(store.clone(), items)?.protocol(Protocol::Http);
    let login = Rule::new("login-per-ip", Quota::sliding_log(5, MINUTE)).by(client_ip());
    let login = RateLimitLayer::new(store.clone(), [login])?
        .hide_quota()
        .protocol(Protocol::Http);
    Ok(Router::new()
        .route(
            "/items",
            get(|| async { "[\"anvil\",\"rope\"]\n" }).route_layer(items),
        )
        .route("/login", post(|| async { "welcome\n" }).route_layer(login)))
}

/// What clients are hashed with: the same in all processes that share limits.
fn secret() -> Result<Secret, Box<dyn Error>> {
    if env::var_os("TOLLGATE_SECRET").is_some() {
        return Ok(Secret::from_env("TOLLGATE_SECRET")?);
    }
    println!(
        "TOLLGATE_SECRET is not set: using a publicly known one, with which anyone who reads Redis can find out who the clients are"
    );
    Ok(Secret::from_bytes(*b"a secret that is public knowledge")?)
}

/// A `redis-server` on a free port of the loopback interface, which writes nothing to disk, and its address.
async fn redis_server() -> Result<(String, Child), Box<dyn Error>> {
    // Free now. Should another process be faster, the server ends, and there is no connection.
    let port = TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port();
    let server = Command::new("redis-server")
        .args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
        ])
        .current_dir(env::temp_dir())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| {
            format!("redis-server cannot be started ({error}); install it, or set REDIS_URL")
        })?;
    Ok((format!("redis://127.0.0.1:{port}"), server))
}

/// Ctrl-C or a polite `kill`, which are waited for from this call on: the Redis that was started ends with this program.
fn end() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
