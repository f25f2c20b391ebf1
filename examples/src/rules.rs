//! A service whose limits are in a file: REST and gRPC on one port.

use std::{error::Error, time::Duration};

use axum::{
    Json, Router,
    extract::Path,
    routing::{get, post},
};
use serde_json::{Value, json};
use tollgate::{LimitsEndpoint, RateLimitLayer, RuleError, Store, TopKeysEndpoint, key::client_ip};
use tollgate_redis::{Keys, Partition, RedisStore, Secret};
use tollgate_rules::{
    Author, Bindings, FileSource, LiveRules, RuleText, Source,
    redis::{PushErrorKind, RedisRules},
};
use tonic::service::Routes;

use crate::weather::{Mild, report, v1::weather_server::WeatherServer};

/// The service with its rules and its state in Redis. A change of the file is pushed, and is in force in all processes. A request
/// waits for Redis as long as the deadline says, or else the library's default.
///
/// # Errors
///
/// A wrong address, or a wrong file and no rules in Redis.
pub async fn shared(
    address: &str,
    namespace: &str,
    secret: &Secret,
    file: &str,
    deadline: Option<Duration>,
) -> Result<Router, Box<dyn Error>> {
    let redis = RedisRules::new(address, namespace, secret)?;
    let mut source = FileSource::new(file)?;
    let first = source.next().await.map_err(|wrong| wrong.to_string())?;
    push(&redis, first).await;
    tokio::spawn(push_changes(redis.clone(), source));
    let rules = LiveRules::builder(Bindings::new())
        .audit(redis.audit_sink())
        .follow(redis.source())
        .await?;
    let keys = Keys::hashed(secret.clone());
    let mut store = RedisStore::builder(address, namespace, keys)
        // Only a cluster asks for it: a request's rules have several keys, and are decided in one step.
        .partition(Partition::One)
        .measure_namespace(5_000);
    if let Some(deadline) = deadline {
        store = store.deadline(deadline);
    }
    let store = store.connect()?;
    // A service need not wait: until there is a connection each rule answers as it does when Redis is down.
    let _ = tokio::time::timeout(Duration::from_secs(5), store.connected()).await;
    Ok(app(&rules, store)?)
}

/// Pushes the file each time that it changes.
async fn push_changes(redis: RedisRules, mut source: FileSource) {
    loop {
        match source.next().await {
            Ok(text) => push(&redis, text).await,
            Err(wrong) => eprintln!("{wrong}"),
        }
    }
}

/// Pushes a document. Another process that sees the same file may be faster.
async fn push(redis: &RedisRules, text: RuleText) {
    let author = Author::new("the file of the example");
    loop {
        match redis.push(text.clone(), &Bindings::new(), &author).await {
            Err(wrong) if wrong.kind() == PushErrorKind::Conflict => {}
            Err(wrong) => return eprintln!("{wrong}"),
            Ok(_) => return,
        }
    }
}

/// The service, limited by the rules, with its state in `store`.
///
/// # Errors
///
/// A rule that the store cannot serve.
pub fn app(rules: &LiveRules, store: impl Store) -> Result<Router, RuleError> {
    // One layer around all routes: the file selects them.
    let limits: RateLimitLayer = rules.layer(store)?;
    let left = LimitsEndpoint::new([&limits], client_ip())?;
    let top_keys = TopKeysEndpoint::new([&limits]);
    let status = rules.clone();
    Ok(Routes::new(WeatherServer::new(Mild::default()))
        .into_axum_router()
        .route("/items", get(|| async { "one, two, three\n" }))
        .route(
            "/items/{id}",
            post(|Path(id): Path<String>| async move { format!("{id}\n") }),
        )
        .route("/weather/{city}", get(current))
        .layer(limits)
        // What a caller has left. It has a limit of its own.
        .route("/limits", left.route())
        // For operators, as the metrics: a service keeps clients away from these, and a mistake in the limits does not lock out
        // who wants to see it.
        .route("/top-keys", top_keys.route())
        .route(
            "/rules",
            get(move || async move { format!("{}\n", status.status()) }),
        ))
}

async fn current(Path(city): Path<String>) -> Json<Value> {
    let report = report(&city);
    Json(json!({ "city": report.city, "celsius": report.celsius }))
}
