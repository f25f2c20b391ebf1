//! Where the layer can stand, and what it can stand around.

use std::{
    convert::Infallible,
    error::Error,
    fmt,
    marker::PhantomPinned,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use tollgate::{RateLimitLayer, RequestRule, service::RateLimit};
use tollgate_tests::{
    app::{self, all, per_minute, stores},
    events::Events,
};
use tower::{Layer, ServiceExt, service_fn};
use tracing::Level;

fn two() -> RequestRule {
    all(per_minute("two", 2))
}

fn layer() -> RateLimitLayer {
    app::layer([two()])
}

/// A third-party body: no default, not `Unpin`, with errors of its own.
struct OddBody {
    reported: bool,
    _pinned: PhantomPinned,
}

impl OddBody {
    fn new() -> Self {
        Self {
            reported: false,
            _pinned: PhantomPinned,
        }
    }
}

#[derive(Debug, PartialEq)]
struct OddError(&'static str);

impl fmt::Display for OddError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for OddError {}

impl http_body::Body for OddBody {
    type Data = Bytes;
    type Error = OddError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, OddError>>> {
        Poll::Ready(Some(if self.reported {
            Err(OddError("cut off"))
        } else {
            Ok(Frame::data(Bytes::from_static(b"odd")))
        }))
    }
}

/// A request body that holds nothing and stays where it is.
struct NoBody(#[allow(dead_code)] PhantomPinned);

impl http_body::Body for NoBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }
}

#[tokio::test]
async fn a_layer_that_is_applied_twice_is_reported_once() {
    let layer = app::layer([all(per_minute("four", 4))]);
    let twice = app::behind(layer.clone()).layer(layer);
    let events = Events::listen();
    for _ in 0..2 {
        assert_eq!(app::status(&twice, "/").await, 200);
    }
    events.one(Level::WARN, &["rule \"four\"", "apply it once"]);
}

#[tokio::test]
async fn bodies_need_no_default_and_no_unpin() {
    let inner =
        service_fn(|_: Request<NoBody>| async { Ok::<_, OddError>(Response::new(OddBody::new())) });
    for store in stores() {
        let service = RateLimitLayer::new(store, [two()]).unwrap().layer(inner);
        let send = || {
            let request = Request::new(NoBody(PhantomPinned));
            service.clone().oneshot(request)
        };
        for _ in 0..2 {
            let body = send().await.unwrap().into_body();
            let mut body = Box::pin(body);
            let frame = body.frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), "odd");
        }
        let denied = send().await.unwrap();
        assert_eq!(denied.status(), 429);
        let text = denied.into_body().collect().await.unwrap().to_bytes();
        assert!(text.starts_with(b"{\"type\""), "{text:?}");
    }
}

#[tokio::test]
async fn size_and_end_of_a_body_stay_known() {
    use http_body::Body as _;
    let inner = service_fn(|_: Request<String>| async {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"four"))))
    });
    let service = layer().layer(inner);
    let body = |service: RateLimit<_>| async {
        service
            .oneshot(Request::new(String::new()))
            .await
            .unwrap()
            .into_body()
    };
    for _ in 0..2 {
        assert_eq!(body(service.clone()).await.size_hint().exact(), Some(4));
    }
    let denied = body(service).await;
    let length = denied.size_hint().exact().unwrap();
    assert!(!denied.is_end_stream());
    let bytes = denied.collect().await.unwrap().to_bytes();
    assert_eq!(bytes.len() as u64, length);
}
