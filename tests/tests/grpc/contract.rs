//! The contract of Tower, around a gRPC service.

use http::{Request, Response};
use tollgate::RateLimitLayer;
use tollgate_conformance::SwitchedStore;
use tollgate_tests::{
    app::stores,
    probe::Probe,
    weather::{Mild, v1::weather_server::WeatherServer},
};
use tonic::{body::Body, service::Routes};
use tower::{Layer, Service, ServiceExt, buffer::Buffer, limit::ConcurrencyLimit};

use crate::few;

/// A call of a unary method with the empty message.
fn call() -> Request<Body> {
    let message = http_body_util::Full::from(&[0_u8; 5][..]);
    Request::post("/weather.v1.Weather/Current")
        .header("content-type", "application/grpc")
        .body(Body::new(message))
        .expect("a request")
}

/// Makes a call once the service is ready; gives the status in the head of the response.
async fn send<S, B>(service: &mut S) -> Option<String>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: std::fmt::Debug,
{
    let ready = service.ready().await.expect("it becomes ready");
    let response = ready.call(call()).await.expect("an answer");
    let status = response.headers().get("grpc-status")?;
    Some(status.to_str().expect("a number").to_owned())
}

fn limited<S>(store: SwitchedStore, limit: u64, inner: S) -> tollgate::service::RateLimit<S> {
    RateLimitLayer::new(store, [few(limit)])
        .expect("a valid rule")
        .layer(inner)
}

fn routes(service: &Mild) -> Routes {
    Routes::new(WeatherServer::new(service.clone()))
}

#[tokio::test]
async fn only_an_instance_that_was_ready_is_called() {
    for store in stores() {
        let service = Mild::default();
        let mut limited = limited(store, 3, Probe::new(routes(&service)));
        for expected in [None, None, None, Some("8")] {
            assert_eq!(send(&mut limited).await.as_deref(), expected);
        }
        assert_eq!(service.calls(), 3);
    }
}

#[tokio::test]
async fn a_denial_frees_the_permit_of_a_concurrency_limit() {
    for store in stores() {
        let service = Mild::default();
        let inner = ConcurrencyLimit::new(Probe::new(routes(&service)), 1);
        let mut first = limited(store, 1, inner);
        let mut second = first.clone();
        for (caller, expected) in [(0, None), (1, Some("8")), (0, Some("8")), (1, Some("8"))] {
            let caller = if caller == 0 { &mut first } else { &mut second };
            assert_eq!(send(caller).await.as_deref(), expected);
        }
        assert_eq!(service.calls(), 1);
    }
}

#[tokio::test]
async fn a_queue_inside_is_not_filled_by_denials() {
    for store in stores() {
        let service = Mild::default();
        let mut limited = limited(store, 2, Buffer::new(routes(&service), 1));
        for expected in [None, None, Some("8"), Some("8"), Some("8")] {
            assert_eq!(send(&mut limited).await.as_deref(), expected);
        }
        assert_eq!(service.calls(), 2);
    }
}
