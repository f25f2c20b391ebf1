//! REST and gRPC on one port, under one layer and one budget: `cargo run --example rest_and_grpc`.

#![expect(clippy::print_stdout, reason = "examples print to the terminal")]

use std::{env, error::Error, net::SocketAddr};

use axum::{Json, extract::Path, routing::get};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tollgate::{MemoryStore, Quota, RateLimitLayer, Rule, SECOND, key::client_ip};
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

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Five requests at once for each address, REST and gRPC together, then one in two seconds.
    let rule = Rule::new("per-ip", Quota::gcra(1, 2 * SECOND).burst(5)).by(client_ip());
    let limits = RateLimitLayer::new(MemoryStore::new(), [rule])?;

    let app = Routes::new(WeatherServer::new(Mild))
        .into_axum_router()
        .route("/weather/{city}", get(current))
        // Around both. A denial is told as the request asks for it, by its content type.
        .layer(limits);
    let port = env::var("PORT").unwrap_or_else(|_| "3000".to_owned());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    let address = listener.local_addr()?;
    println!(
        "listening on http://{address}

Try:
  for i in 1 2 3; do curl -i http://{address}/weather/Oslo; echo; done
  cargo run --example tonic -- http://{address}
"
    );
    // Client IP addresses come from the socket, so the server has to hand them to the requests.
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, service).await?)
}

async fn current(Path(city): Path<String>) -> Json<Value> {
    Json(json!({ "city": city, "celsius": 20 }))
}
