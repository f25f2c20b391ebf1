//! REST and gRPC on one port.

use axum::{
    Json, Router,
    extract::Path,
    routing::{get, post},
};
use serde_json::{Value, json};
use tollgate::{
    LimitsEndpoint, RateLimitLayer, RuleError, Store, key::client_ip, observe::TopKeysEndpoint,
};
use tollgate_console::Console;
use tollgate_rules::LiveRules;
use tonic::{Request, Response, Status, service::Routes};

use weather::{
    City, Report,
    weather_server::{Weather, WeatherServer},
};

/// What `build.rs` makes of `proto/weather.proto`.
#[allow(missing_docs, unreachable_pub, reason = "generated")]
mod weather {
    tonic::include_proto!("weather.v1");
}

/// It is 20 degrees everywhere.
struct Mild;

#[tonic::async_trait]
impl Weather for Mild {
    async fn current(&self, city: Request<City>) -> Result<Response<Report>, Status> {
        let city = city.into_inner().name;
        Ok(Response::new(Report { city, celsius: 20 }))
    }
}

/// The service, limited by the rules, with its state in `store` and its console at `/tollgate`.
pub(crate) fn app(
    rules: &LiveRules,
    store: impl Store,
    console: Console,
) -> Result<Router, RuleError> {
    // One layer around all routes: the file selects them.
    let limits: RateLimitLayer = rules.layer(store)?;
    let left = LimitsEndpoint::new([&limits], client_ip())?;
    let top_keys = TopKeysEndpoint::new([&limits]);
    let status = rules.clone();
    let console = console.layer("all routes", &limits).rules(rules);
    Ok(Routes::new(WeatherServer::new(Mild))
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
        )
        .nest("/tollgate", console.router()))
}

async fn current(Path(city): Path<String>) -> Json<Value> {
    Json(json!({ "city": city, "celsius": 20 }))
}
