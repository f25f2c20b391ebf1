//! REST and gRPC on one port, under one layer and one budget: `cargo run --example rest_and_grpc`.

use std::error::Error;

use axum::{Json, extract::Path, routing::get};
use serde_json::{Value, json};
use tollgate::{MemoryStore, Quota, RateLimitLayer, Rule, SECOND, key::client_ip};
use tollgate_examples::{
    serve::serve,
    weather::{Mild, report, v1::weather_server::WeatherServer},
};
use tonic::service::Routes;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Five requests at once for each address, of whichever kind, then one in two seconds.
    let rule = Rule::new("per-ip", Quota::gcra(1, 2 * SECOND).burst(5)).by(client_ip());
    let limits = RateLimitLayer::new(MemoryStore::new(), [rule])?;

    let app = Routes::new(WeatherServer::new(Mild::default()))
        .into_axum_router()
        .route("/weather/{city}", get(current))
        // Around both. A denial is told as the request asks for it, by its content type.
        .layer(limits);
    serve(app, |address| {
        format!(
            "Try:
  for i in 1 2 3; do curl -i http://{address}/weather/Oslo; echo; done
  cargo run --example tonic -- http://{address}
"
        )
    })
    .await
}

async fn current(Path(city): Path<String>) -> Json<Value> {
    let report = report(&city);
    Json(json!({ "city": report.city, "celsius": report.celsius }))
}
