//! REST and gRPC on one port.

use axum::{Router, routing::get};
use http::StatusCode;
use tollgate::key::client_ip;
use tollgate_tests::{
    app::{layer, per_minute},
    grpc::channel,
    server::Server,
    weather::{
        Mild, city,
        v1::{weather_client::WeatherClient, weather_server::WeatherServer},
    },
};
use tonic::{Code, service::Routes};

#[tokio::test]
async fn rest_and_grpc_share_a_budget_and_get_their_own_denials() {
    let limits = layer([per_minute("per-ip", 2).by(client_ip())]);
    let app: Router = Routes::new(WeatherServer::new(Mild::default()))
        .into_axum_router()
        .route("/cities", get(async || "Oslo"))
        .layer(limits);
    let server = Server::start(app).await;
    let mut client = WeatherClient::new(channel(server.address()).await);

    let rest = server.get("/cities").await;
    assert_eq!((rest.status, &*rest.body), (200, "Oslo"));
    assert_eq!(rest.list("ratelimit"), "\"per-ip\";r=1;t=60");
    client
        .current(city("Oslo"))
        .await
        .expect("the second of two");

    let rest = server.get("/cities").await;
    assert_eq!(rest.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(rest.list("content-type"), "application/problem+json");
    assert_eq!(rest.list("grpc-status"), "");
    let status = client.current(city("Oslo")).await.expect_err("denied");
    assert_eq!(status.code(), Code::ResourceExhausted);
    let reported = status.metadata().get("ratelimit").expect("what is left");
    assert_eq!(reported, "\"per-ip\";r=0;t=60");
}
