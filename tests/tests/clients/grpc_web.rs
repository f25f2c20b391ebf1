//! gRPC-Web in its bytes, with tonic-web inside of the layer and around it.

use axum::Router;
use tollgate::RateLimitLayer;
use tollgate_tests::{
    server::Server,
    weather::{Mild, v1::weather_server::WeatherServer},
};
use tonic::service::Routes;
use tonic_web::GrpcWebLayer;

use crate::{
    curl::{Answer, Version, curl_with},
    per_minute,
};
use tollgate_tests::app::layer;

/// The path of the method that answers once.
pub(crate) const CURRENT: &str = "/weather.v1.Weather/Current";

/// A message in its frame: no compression, 6 bytes.
const MESSAGE: &str = "\0\0\0\0\x06\x0a\x04Oslo";
const MESSAGE_AS_TEXT: &str = "AAAAAAYKBE9zbG8=";

fn weather() -> Router {
    Routes::new(WeatherServer::new(Mild::default())).into_axum_router()
}

/// tonic-web inside of the layer, which sees gRPC-Web.
pub(crate) fn inside(limits: RateLimitLayer) -> Router {
    weather().layer(GrpcWebLayer::new()).layer(limits)
}

/// tonic-web around the layer, which sees gRPC.
fn around(limits: RateLimitLayer) -> Router {
    weather().layer(limits).layer(GrpcWebLayer::new())
}

async fn call(server: &Server, media_type: &str, message: &str) -> Answer {
    let content_type = format!("Content-Type: {media_type}");
    let accept = format!("Accept: {media_type}");
    let arguments = [
        "--header",
        &content_type,
        "--header",
        &accept,
        "--data-binary",
        "@-",
    ];
    curl_with(
        message,
        Version::Http1,
        server.address(),
        CURRENT,
        &arguments,
    )
    .await
}

#[tokio::test]
async fn a_denial_has_its_status_in_the_header_fields_and_no_body() {
    for app in [inside, around] {
        for (sent, message, reported) in [
            (
                "application/grpc-web+proto",
                MESSAGE,
                "application/grpc-web+proto",
            ),
            (
                "application/grpc-web-text+proto",
                MESSAGE_AS_TEXT,
                "application/grpc-web-text+proto",
            ),
        ] {
            let server = Server::start(app(layer([per_minute("one", 1)]))).await;
            let allowed = call(&server, sent, message).await;
            assert_eq!(allowed.status(), 200, "{sent}");
            assert_eq!(allowed.field("content-type"), Some(reported));
            // The status comes after the message, in the body.
            assert_eq!(allowed.field("grpc-status"), None);
            assert!(!allowed.body.is_empty());
            assert_eq!(allowed.field("ratelimit"), Some(r#""one";r=0;t=60"#));

            let denied = call(&server, sent, message).await;
            assert_eq!(denied.status(), 200, "{sent}");
            assert_eq!(denied.field("content-type"), Some(reported));
            assert_eq!(denied.field("grpc-status"), Some("8"));
            assert_eq!(denied.field("grpc-retry-pushback-ms"), Some("60000"));
            assert_eq!(denied.field("retry-after"), Some("60"));
            assert_eq!(denied.field("ratelimit"), Some(r#""one";r=0;t=60"#));
            assert!(denied.field("grpc-status-details-bin").is_some());
            assert!(denied.body.is_empty(), "{denied:?}");
        }
    }
}
