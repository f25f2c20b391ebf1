//! A limited tonic service, and a client that reads what it is told: `cargo run --example tonic`.
//!
//! With an address the client calls that server instead: `cargo run --example tonic -- http://127.0.0.1:3000` while
//! `rest_and_grpc` runs.

#![expect(clippy::print_stdout, reason = "examples print to the terminal")]

use std::{error::Error, time::Duration};

use tokio::{net::TcpListener, time::sleep};
use tollgate::{MemoryStore, Quota, RateLimitLayer, Rule, SECOND, key::client_ip};
use tonic::{
    Request, Response, Status,
    transport::{Server, server::TcpIncoming},
};
use tonic_types::StatusExt;

use weather::{
    City, Report,
    weather_client::WeatherClient,
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
    let address = match std::env::args().nth(1) {
        Some(address) => address,
        None => start_server().await?,
    };
    println!("calling {address}");
    let mut client = WeatherClient::connect(address).await?;
    let mut denials = 0;
    while denials < 2 {
        let oslo = City {
            name: "Oslo".to_owned(),
        };
        match client.current(oslo).await {
            Ok(answer) => {
                let left = answer.metadata().get("ratelimit");
                let left = left.map_or("nothing said", |left| left.to_str().unwrap_or("?"));
                println!("{} degrees in Oslo; {left}", answer.get_ref().celsius);
            }
            Err(status) => {
                denials += 1;
                let wait = tell(&status);
                let Some(wait) = wait else {
                    return Err(status.into());
                };
                println!("waiting for {wait:?}, as the server says\n");
                sleep(wait).await;
            }
        }
    }
    Ok(())
}

/// Three calls at once for each address, then one a second, for all services of the server.
async fn start_server() -> Result<String, Box<dyn Error>> {
    let rule = Rule::new("calls-per-ip", Quota::gcra(1, SECOND).burst(3)).by(client_ip());
    let limits = RateLimitLayer::new(MemoryStore::new(), [rule])?;

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}", listener.local_addr()?);
    let server = Server::builder()
        .layer(limits)
        .add_service(WeatherServer::new(Mild))
        .serve_with_incoming(TcpIncoming::from(listener));
    tokio::spawn(server);
    Ok(address)
}

/// Prints all that a denial says, and gives the wait.
fn tell(status: &Status) -> Option<Duration> {
    println!("{:?}: {}", status.code(), status.message());
    let details = status.get_error_details();
    if let Some(failure) = details.quota_failure() {
        for violation in &failure.violations {
            println!("  {}: {}", violation.subject, violation.description);
        }
    }
    if let Some(info) = details.error_info() {
        println!("  {} of {}", info.reason, info.domain);
    }
    for name in ["grpc-retry-pushback-ms", "ratelimit", "retry-after"] {
        if let Some(value) = status.metadata().get(name) {
            println!("  {name}: {}", value.to_str().unwrap_or("?"));
        }
    }
    details.retry_info()?.retry_delay
}
