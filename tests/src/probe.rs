//! Services that hold their callers to the contract of Tower.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use tower_service::Service;

/// Passes calls on, and panics where this very instance was not ready.
#[derive(Debug)]
pub struct Probe<S> {
    inner: S,
    ready: bool,
}

impl<S> Probe<S> {
    /// A probe in front of `inner`.
    pub fn new(inner: S) -> Self {
        Self {
            inner,
            ready: false,
        }
    }
}

impl<S: Clone> Clone for Probe<S> {
    /// A clone is not ready, whatever the original is.
    fn clone(&self) -> Self {
        Self::new(self.inner.clone())
    }
}

impl<S: Service<R>, R> Service<R> for Probe<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        let answer = self.inner.poll_ready(cx);
        self.ready = matches!(answer, Poll::Ready(Ok(())));
        answer
    }

    fn call(&mut self, request: R) -> S::Future {
        assert!(
            std::mem::take(&mut self.ready),
            "an instance was called that was not ready"
        );
        self.inner.call(request)
    }
}

/// Answers every request with an empty 200, becomes ready at the second poll only, and counts its calls.
#[derive(Debug, Default)]
pub struct Leaf {
    polled: bool,
    calls: Arc<AtomicU64>,
}

impl Leaf {
    /// How often it was called, its clones included.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Clone for Leaf {
    fn clone(&self) -> Self {
        Self {
            polled: false,
            calls: Arc::clone(&self.calls),
        }
    }
}

impl<B> Service<Request<B>> for Leaf {
    type Response = Response<axum::body::Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.polled {
            return Poll::Ready(Ok(()));
        }
        self.polled = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        self.polled = false;
        self.calls.fetch_add(1, Ordering::SeqCst);
        ready(Ok(Response::new(Bytes::new().into())))
    }
}
