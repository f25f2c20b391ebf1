//! What looks like a CORS preflight, and is a call.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use tollgate::RateLimitLayer;
use tollgate_tests::weather::Mild;
use tonic::body::Body;
use tower::{Service, ServiceExt};

use crate::{serve, used_up};

/// How many calls of OPTIONS with the fields of a preflight, and a message, get to the service.
async fn calls_that_pass(layer: RateLimitLayer) -> u64 {
    let service = Mild::default();
    let server = serve(layer, &service).await;
    let mut channel = server.channel().await;
    // A city without a name.
    let message = Full::new(Bytes::from_static(&[0; 5]));
    let call = Request::options("/weather.v1.Weather/Current")
        .header("origin", "https://example.com")
        .header("access-control-request-method", "POST")
        .body(Body::new(message))
        .expect("a request");
    let ready = channel.ready().await.expect("a connection");
    let response = ready.call(call).await.expect("an answer");
    let _ = response.into_body().collect().await;
    service.calls()
}

#[tokio::test]
async fn tonic_serves_a_call_whatever_its_method_so_that_preflights_have_to_be_counted() {
    assert_eq!(calls_that_pass(used_up()).await, 1);
    assert_eq!(calls_that_pass(used_up().count_preflight()).await, 0);
}
