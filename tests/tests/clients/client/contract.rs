//! The contract of Tower.

use http::Request;
use tokio::task::JoinSet;
use tollgate_client::ClientRateLimitLayer;
use tollgate_tests::probe::Probe;
use tower::{BoxError, Layer, Service, ServiceExt, limit::ConcurrencyLimit};

use crate::client::provider::{Bytes, Provider, answer, get};

/// The service once it is ready.
async fn readied<S>(service: &mut S) -> &mut S
where
    S: Service<Request<Bytes>, Error = BoxError>,
{
    service.ready().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn retries_get_permits_of_a_concurrency_limit() {
    let refused = (0..4).map(|_| answer(503, &[("retry-after", "1")]));
    let provider = Provider::new(refused);
    let inner = Probe::new(ConcurrencyLimit::new(Probe::new(provider.clone()), 1));
    let client = ClientRateLimitLayer::new().layer(inner);
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        tasks.spawn(client.clone().oneshot(get()));
    }
    for response in tasks.join_all().await {
        assert_eq!(response.unwrap().status(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_future_frees_the_inner_permit() {
    let provider = Provider::new([answer(200, &[("ratelimit", r#""a";r=0;t=9"#)])]);
    let inner = ConcurrencyLimit::new(provider.clone(), 1);
    let mut client = ClientRateLimitLayer::new().layer(inner);
    readied(&mut client).await.call(get()).await.unwrap();
    drop(readied(&mut client).await.call(get()));
    readied(&mut client).await.call(get()).await.unwrap();
    assert_eq!(provider.calls(), 2);
}
