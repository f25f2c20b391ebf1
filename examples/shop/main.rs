//! A small API with limits of each kind, in memory: `cargo run --example shop`.

#![expect(clippy::print_stdout, reason = "examples print to the terminal")]

use std::{env, error::Error, net::SocketAddr};

use axum::{
    Router,
    extract::Query,
    routing::{get, post},
};
use http::StatusCode;
use serde::Deserialize;
use tokio::net::TcpListener;
use tollgate::{
    Head, MINUTE, MemoryStore, Missing, Quota, RateLimitLayer, Rule, RuleError, SECOND, Store,
    key::{client_ip, header, look_up},
    rejection::Protocol,
};

#[cfg(test)]
mod tests;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let app = app(MemoryStore::new())?;
    let port = env::var("PORT").unwrap_or_else(|_| "3000".to_owned());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    let address = listener.local_addr()?;
    println!(
        "listening on http://{address}

Try:
  curl -i http://{address}/
  curl -i http://{address}/items
  curl -i http://{address}/items -H 'x-api-key: acme.k1'
  curl -i 'http://{address}/search?q=anvils+for+coyotes'
  for i in 1 2 3 4 5 6; do curl -i -X POST http://{address}/login; done
  curl -i http://{address}/healthz
"
    );
    // Client IP addresses come from the socket, so the server has to hand them to the requests.
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, service).await?)
}

/// Five routes, with their limits in `store`.
fn app(store: impl Store + Clone) -> Result<Router, RuleError> {
    let home = RateLimitLayer::new(
        store.clone(),
        [Rule::new("home-per-ip", Quota::gcra(20, SECOND).burst(40)).by(client_ip())],
    )?
    // There is no gRPC here: no client gets a 200 for a 429 by saying that it speaks it.
    .protocol(Protocol::Http);

    let items = RateLimitLayer::new(
        store.clone(),
        [
            Rule::new("items-per-key", Quota::token_bucket(10).refill(5, SECOND))
                .by(header("x-api-key"))
                .when_missing(Missing::Reject(StatusCode::UNAUTHORIZED)),
            Rule::new("items-per-tenant", Quota::sliding_window(100, MINUTE))
                .by(look_up(|head| tenant_of(api_key(head))))
                .when_missing(Missing::Reject(StatusCode::UNAUTHORIZED)),
        ],
    )?
    .protocol(Protocol::Http);

    let search = RateLimitLayer::new(
        store.clone(),
        [Rule::new("words-per-ip", Quota::gcra(50, MINUTE).burst(50))
            .by(client_ip())
            .cost_by(words)],
    )?
    .protocol(Protocol::Http);

    let login = RateLimitLayer::new(
        store,
        [Rule::new("login-per-ip", Quota::sliding_log(5, MINUTE)).by(client_ip())],
    )?
    .hide_quota()
    .protocol(Protocol::Http);

    // `route_layer` limits the methods that there are. With `layer` a GET of /login, which is answered by 405, would use
    // up the visitor's log-ins.
    Ok(Router::new()
        .route("/", get(|| async { "hello\n" }).route_layer(home))
        .route(
            "/items",
            get(|| async { "[\"anvil\",\"rope\"]\n" }).route_layer(items),
        )
        .route("/search", get(found).route_layer(search))
        .route("/login", post(|| async { "welcome\n" }).route_layer(login))
        .route("/healthz", get(|| async { "ok\n" })))
}

fn api_key(head: &Head<'_>) -> Option<String> {
    let key = head.headers.get("x-api-key")?.to_str().ok()?;
    Some(key.to_owned())
}

/// Which tenant a key belongs to. A real service asks its directory here; in this one `acme.k1` belongs to `acme`. It
/// is never read from a header of its own, which the client could invent. A key without a dot is a tenant of its own.
async fn tenant_of(key: Option<String>) -> Option<String> {
    let key = key?;
    let tenant = key.split_once('.').map_or(&*key, |(tenant, _)| tenant);
    Some(tenant.to_owned())
}

#[derive(Deserialize)]
struct Search {
    #[serde(default)]
    q: String,
}

/// What a search costs: a unit for each word, at least one.
fn words(head: &Head<'_>) -> u64 {
    let words = Query::<Search>::try_from_uri(head.uri)
        .map_or(0, |Query(search)| search.q.split_whitespace().count());
    words.max(1) as u64
}

async fn found(Query(search): Query<Search>) -> String {
    format!("nothing found for {:?}\n", search.q)
}
