//! The service with four permits, and what stands in front of it.

use std::{
    convert::Infallible,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use tokio::{sync::Semaphore, time::Instant};
use tollgate::{
    Head,
    clock::Clock,
    shed::{Capacity, Priority, ShedLayer},
};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn, util::BoxCloneService};

use crate::overload::limit_finder::{Aimd, Gradient2, LimitFinder, Vegas};

/// How many requests are worked on at once.
pub(super) const PERMITS: usize = 4;

/// What stands in front of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// Nothing: each request waits for a permit.
    Nothing,
    /// tower's `load_shed` in front of a `ConcurrencyLimit` of four.
    LoadShed,
    /// `Capacity::in_flight` of this number.
    InFlight(usize),
    /// `Capacity::adaptive`.
    Adaptive,
    /// Additive increase and multiplicative decrease of a number in flight, as `Capacity::measured`.
    Aimd,
    /// TCP Vegas, likewise.
    Vegas,
    /// Gradient2, likewise.
    Gradient2,
}

impl Stack {
    /// All that the table has.
    pub const ALL: [Self; 7] = [
        Self::Nothing,
        Self::LoadShed,
        Self::InFlight(6),
        Self::Adaptive,
        Self::Aimd,
        Self::Vegas,
        Self::Gradient2,
    ];
}

impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.pad("nothing"),
            Self::LoadShed => f.pad("tower load_shed"),
            Self::InFlight(requests) => f.pad(&format!("in_flight({requests})")),
            Self::Adaptive => f.pad("adaptive"),
            Self::Aimd => f.pad("AIMD"),
            Self::Vegas => f.pad("Vegas"),
            Self::Gradient2 => f.pad("Gradient2"),
        }
    }
}

/// The service with what stands in front of it. It answers with the status of the response.
pub(super) type Front = BoxCloneService<Request<()>, StatusCode, Infallible>;

/// How long a request is worked on. Called when the work begins: a slow database is slow for all.
pub(super) type Work = Arc<dyn Fn() -> Duration + Send + Sync>;

pub(super) fn front(stack: Stack, work: Work) -> Front {
    let permits = Arc::new(Semaphore::new(PERMITS));
    let inner = service_fn(move |_: Request<()>| {
        let (permits, work) = (Arc::clone(&permits), Arc::clone(&work));
        async move {
            let _permit = permits.acquire().await.expect("it is never closed");
            tokio::time::sleep(work()).await;
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    match stack {
        Stack::Nothing => boxed(inner),
        Stack::LoadShed => {
            let limited = ServiceBuilder::new()
                .load_shed()
                .concurrency_limit(PERMITS)
                .service(inner);
            BoxCloneService::new(service_fn(move |request| {
                let answer = limited.clone().oneshot(request);
                async move {
                    let answer = answer.await;
                    Ok(answer.map_or(StatusCode::SERVICE_UNAVAILABLE, |it| it.status()))
                }
            }))
        }
        Stack::InFlight(requests) => {
            boxed(shed(Capacity::in_flight(requests).expect("at least one")).layer(inner))
        }
        Stack::Adaptive => boxed(shed(Capacity::adaptive()).layer(inner)),
        // Late is twice the time that a request is worked on.
        Stack::Aimd => found(Aimd::new(0.1), inner),
        Stack::Vegas => found(Vegas::new(), inner),
        Stack::Gradient2 => found(Gradient2::new(), inner),
    }
}

fn shed(capacity: Capacity) -> ShedLayer {
    let of_request = |head: &Head<'_>| head.extensions.get().copied().unwrap_or(Priority::P3);
    ShedLayer::new(capacity)
        .priority(of_request)
        .clock(Clock::tokio())
}

fn boxed<S, B>(service: S) -> Front
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: 'static,
{
    BoxCloneService::new(service.map_response(|response| response.status()))
}

/// A limit that is found outside of the layer, with the requests in flight.
struct Found<F> {
    finder: F,
    in_flight: usize,
}

fn found<S, B>(finder: impl LimitFinder + 'static, inner: S) -> Front
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
{
    let found = Arc::new(Mutex::new(Found {
        finder,
        in_flight: 0,
    }));
    let load = {
        let found = Arc::clone(&found);
        move || {
            let found = lock(&found);
            found.in_flight as f64 / found.finder.limit()
        }
    };
    let measured = service_fn(move |request| {
        let (inner, found) = (inner.clone(), Arc::clone(&found));
        async move {
            lock(&found).in_flight += 1;
            let began = Instant::now();
            let counted = Counted(&found);
            let response = inner.oneshot(request).await;
            let mut found = lock(counted.0);
            let in_flight = found.in_flight;
            found
                .finder
                .sample(began.elapsed().as_secs_f64(), in_flight);
            response
        }
    });
    boxed(shed(Capacity::measured(load)).layer(measured))
}

/// A request in flight, also one that its client gives up.
struct Counted<'a, F>(&'a Mutex<Found<F>>);

impl<F> Drop for Counted<'_, F> {
    fn drop(&mut self) {
        lock(self.0).in_flight -= 1;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
