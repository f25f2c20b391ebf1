//! A service whose limits are in a file: REST and gRPC on one port.

use axum::{
    Json, Router,
    extract::Path,
    routing::{get, post},
};
use serde_json::{Value, json};
use tollgate::{RateLimitLayer, RuleError, Store};
use tollgate_rules::LiveRules;
use tonic::service::Routes;

use crate::weather::{Mild, report, v1::weather_server::WeatherServer};

/// The service, limited by the rules, with its state in `store`.
///
/// # Errors
///
/// A rule that the store cannot serve.
pub fn app(rules: &LiveRules, store: impl Store) -> Result<Router, RuleError> {
    // One layer around all routes: the file selects them.
    let limits: RateLimitLayer = rules.layer(store)?;
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
        // Outside of the limits: somebody who has made a mistake in them wants to see it.
        .route(
            "/rules",
            get(move || async move { format!("{}\n", status.status()) }),
        ))
}

async fn current(Path(city): Path<String>) -> Json<Value> {
    let report = report(&city);
    Json(json!({ "city": report.city, "celsius": report.celsius }))
}
