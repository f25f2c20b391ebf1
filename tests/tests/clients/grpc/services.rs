//! Around a server, a service, a method.

use tollgate_tests::{
    app::layer,
    grpc::GrpcServer,
    weather::{Mild, city, v1::weather_server::WeatherServer},
};
use tonic::{Code, transport::Server};
use tower::Layer;

use crate::grpc::few;

#[tokio::test]
async fn one_service_is_limited_and_its_name_is_kept() {
    let service = Mild::default();
    // The wrapped service is added by its name, which the layer hands on.
    let limited = layer([few(1)]).layer(WeatherServer::new(service.clone()));
    let server = GrpcServer::start(Server::builder().add_service(limited)).await;
    let mut client = server.client().await;
    client.current(city("Oslo")).await.expect("it is allowed");
    let status = client.current(city("Oslo")).await.expect_err("denied");
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(service.calls(), 1);
}
