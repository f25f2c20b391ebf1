//! Around a server, a service, a method.

use tollgate::{
    condition::grpc_service_is,
    key::{grpc_method, grpc_service, metadata},
};
use tollgate_tests::{
    app::{all, layer, per_minute},
    grpc::GrpcServer,
    weather::{Mild, city, v1::weather_server::WeatherServer},
};
use tonic::{Code, Request, metadata::MetadataValue, transport::Server};
use tower::Layer;

use crate::{few, serve};

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

#[tokio::test]
async fn methods_have_budgets_of_their_own() {
    let rules = [
        per_minute("per-method", 1).by(grpc_method()),
        per_minute("per-service", 2)
            .by(grpc_service())
            .when(grpc_service_is("weather.v1.Weather")),
    ];
    let server = serve(layer(rules), &Mild::default()).await;
    let mut client = server.client().await;
    client.current(city("Oslo")).await.expect("it is allowed");
    let status = client.current(city("Oslo")).await.expect_err("denied");
    let violated = |status: &tonic::Status| {
        use tonic_types::StatusExt;
        let failure = status.get_details_quota_failure().expect("details");
        failure.violations[0].quota_id.clone()
    };
    assert_eq!(violated(&status), "per-method");
    client.watch(city("Oslo")).await.expect("another method");
    let reports = tokio_stream::iter([]);
    let status = client.record(reports).await.expect_err("denied");
    assert_eq!(violated(&status), "per-service");
}

#[tokio::test]
async fn entries_of_the_metadata_are_keys() {
    let rules = [
        per_minute("per-tenant", 1).by(metadata("tenant")),
        per_minute("per-device", 1).by(metadata("device-bin")),
    ];
    let server = serve(layer(rules), &Mild::default()).await;
    let mut client = server.client().await;
    let call = |tenant: &str, device: &[u8]| {
        let mut call = Request::new(city("Oslo"));
        let metadata = call.metadata_mut();
        metadata.insert("tenant", tenant.parse().expect("a value"));
        metadata.insert_bin("device-bin", MetadataValue::from_bytes(device));
        call
    };
    client
        .current(call("a", b"\0\xff"))
        .await
        .expect("the first");
    client.current(call("b", b"\0\xfe")).await.expect("others");
    client
        .current(call("a", b"\0\xfd"))
        .await
        .expect_err("the same tenant");
    client
        .current(call("c", b"\0\xff"))
        .await
        .expect_err("the same device");
}

#[tokio::test]
async fn an_unknown_method_is_counted_by_shared_rules() {
    let server = serve(layer([all(per_minute("all", 1))]), &Mild::default()).await;
    let mut channel = server.channel().await;
    let mut unknown = async || {
        let path = format!("http://{}/weather.v1.Weather/Unknown", server.address());
        let call = http::Request::post(path)
            .header("content-type", "application/grpc")
            .body(tonic::body::Body::empty())
            .expect("a request");
        use tower::{Service, ServiceExt};
        let channel = channel.ready().await.expect("connected");
        let response = channel.call(call).await.expect("an answer");
        response.headers()["grpc-status"]
            .to_str()
            .expect("a number")
            .to_owned()
    };
    assert_eq!(unknown().await, "12");
    assert_eq!(unknown().await, "8");
}
