//! A service of four permits under more than it can serve, over HTTP: nothing in front of it, what others have, and shedding by
//! priority.

use std::{convert::Infallible, error::Error, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    response::{IntoResponse, Response},
};
use congestion_limiter::{
    limiter::{DefaultLimiter, Limiter, Outcome},
    limits::Vegas,
};
use http::{Request, StatusCode};
use little_loadshedder::{LoadShed, LoadShedResponse};
use tokio::{net::TcpListener, sync::Semaphore};
use tollgate::{
    Head,
    shed::{Capacity, Priority, ShedLayer},
};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn, util::BoxCloneSyncService};

// The load is that of the example, which has its own picture.
#[path = "../../../examples/overload/load.rs"]
mod load;

const PERMITS: usize = 4;
const WORK: Duration = Duration::from_millis(50);

type Front = BoxCloneSyncService<Request<Body>, Response, Infallible>;

fn boxed<S>(service: S) -> Front
where
    S: Service<Request<Body>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Response: IntoResponse,
    S::Future: Send,
{
    BoxCloneSyncService::new(service.map_response(IntoResponse::into_response))
}

fn class(head: &Head<'_>) -> Priority {
    match head.uri.path() {
        "/p0" => Priority::P0,
        "/p1" => Priority::P1,
        "/p2" => Priority::P2,
        _ => Priority::P3,
    }
}

/// The service behind each of them.
fn fronts() -> Result<Vec<(&'static str, Front)>, Box<dyn Error>> {
    let work = || {
        let permits = Arc::new(Semaphore::new(PERMITS));
        service_fn(move |_: Request<Body>| {
            let permits = Arc::clone(&permits);
            async move {
                let _permit = permits.acquire().await;
                tokio::time::sleep(WORK).await;
                Ok::<_, Infallible>(StatusCode::OK)
            }
        })
    };
    let tower = ServiceBuilder::new()
        .load_shed()
        .concurrency_limit(PERMITS)
        .service(work());
    let tower = service_fn(move |request| {
        let answer = tower.clone().oneshot(request);
        async move { Ok::<_, Infallible>(answer.await.unwrap_or(StatusCode::SERVICE_UNAVAILABLE)) }
    });
    // A target of twice the work, as `in_flight` below allows.
    let little = LoadShed::new(work(), 0.01, 2 * WORK);
    let little = service_fn(move |request| {
        let answer = little.clone().oneshot(request);
        async move {
            Ok::<_, Infallible>(match answer.await {
                Ok(LoadShedResponse::Inner(status)) => status,
                Ok(LoadShedResponse::Overload) | Err(_) => StatusCode::SERVICE_UNAVAILABLE,
            })
        }
    });
    let shed = |capacity| ShedLayer::new(capacity).priority(class);
    Ok(vec![
        ("nothing", boxed(work())),
        ("tower load_shed", boxed(tower)),
        ("little-loadshedder", boxed(little)),
        (
            "congestion-limiter",
            congestion(
                DefaultLimiter::new(Vegas::new_with_initial_limit(PERMITS)),
                work(),
            ),
        ),
        (
            "tollgate, in_flight(6)",
            boxed(
                shed(Capacity::in_flight(6)?)
                    .layer(work().map_response(IntoResponse::into_response)),
            ),
        ),
        (
            "tollgate, adaptive",
            boxed(
                shed(Capacity::adaptive()).layer(work().map_response(IntoResponse::into_response)),
            ),
        ),
    ])
}

fn congestion<L, S>(limiter: L, inner: S) -> Front
where
    L: Limiter + Send + 'static,
    S: Service<Request<Body>, Response = StatusCode, Error = Infallible>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send,
{
    let limiter = Arc::new(limiter);
    boxed(service_fn(move |request| {
        let (limiter, inner) = (Arc::clone(&limiter), inner.clone());
        async move {
            let Some(token) = limiter.try_acquire().await else {
                return Ok::<_, Infallible>(StatusCode::SERVICE_UNAVAILABLE);
            };
            let status = inner.oneshot(request).await?;
            limiter.release(token, Some(Outcome::Success)).await;
            Ok(status)
        }
    }))
}

async fn serve(front: Front) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let app = Router::new().fallback_service(front);
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(address)
}

/// Prints the table: each of them at each load for so many seconds.
pub(crate) fn table(seconds: f64) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        println!("| load | in front | useful work | P0 served | P0, p99 | P1 shed | P2 shed | P3 shed |");
        println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
        let could = PERMITS as f64 / WORK.as_secs_f64();
        for multiple in [2.0, 4.0, 10.0] {
            for (name, front) in fronts()? {
                let outcome = load::send(serve(front).await?, multiple * could, 0.4 / multiple, seconds).await;
                let useful = f64::from(outcome.served.iter().sum::<u32>()) / (could * seconds);
                println!(
                    "| {multiple} × | {name} | {:.0} % | {:.0} % | {:.0} ms | {:.0} % | {:.0} % | {:.0} % |",
                    useful * 100.0,
                    outcome.part(&outcome.served, 0),
                    outcome.p99_of_p0(),
                    outcome.part(&outcome.shed, 1),
                    outcome.part(&outcome.shed, 2),
                    outcome.part(&outcome.shed, 3),
                );
            }
        }
        Ok(())
    })
}
