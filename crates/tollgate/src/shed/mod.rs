//! Shedding: a service that runs short of capacity rejects the least important requests first, before any work is done.
//!
//! A rate limit knows clients and not the service; [`ShedLayer`] knows the service and no clients. Each request has a
//! [`Priority`], and each class a share of the [`Capacity`] from which on it is shed: P3 from 70 %, P2 from 80 %, P1 from 90 %, P0
//! never. From the threshold on a growing share of the class is shed, so that the load does not swing, and when the capacity is used up all
//! of it. The answer is 503 with `Retry-After`, in gRPC `UNAVAILABLE` with a pushback, and rate limits outside of the layer give their units
//! back.
//!
//! ```
//! use axum::{Router, body::Body, routing::get};
//! use http::{Request, StatusCode};
//! use tollgate::shed::{Capacity, Priority, ShedLayer};
//! use tower::ServiceExt;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let shed = ShedLayer::new(Capacity::adaptive());
//! let app = Router::new()
//!     .route("/", get(|| async { "hello" }).layer(shed.clone()))
//!     .route("/health", get(|| async { "ok" }).layer(shed.at(Priority::P0)));
//!
//! let response = app.oneshot(Request::get("/").body(Body::empty())?).await?;
//! assert_eq!(response.status(), StatusCode::OK);
//! # Ok(())
//! # }
//! ```
//!
//! With a number of your own, classes by path, and classes that your gateway writes:
//!
//! ```
//! use http::{Request, Response, StatusCode};
//! use tollgate::shed::{Capacity, Priority, ShedLayer};
//! use tower::{Layer, Service, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let shed = ShedLayer::new(Capacity::in_flight(1)?)
//!     .priority(|head| if head.uri.path() == "/batch" { Priority::P3 } else { Priority::P1 })
//!     .priority_header("x-priority", ["10.0.0.0/8"])?;
//!
//! async fn handle(_: Request<String>) -> Result<Response<String>, std::convert::Infallible> {
//!     Ok(Response::new("done".into()))
//! }
//! let service = shed.layer(service_fn(handle));
//!
//! // A response is in flight until its body has ended.
//! let running = service.clone().oneshot(Request::new(String::new())).await?;
//! let batch = Request::get("/batch").body(String::new())?;
//! let shed = service.clone().oneshot(batch).await?;
//! assert_eq!(shed.status(), StatusCode::SERVICE_UNAVAILABLE);
//! drop(running);
//! let batch = Request::get("/batch").body(String::new())?;
//! assert_eq!(service.clone().oneshot(batch).await?.status(), StatusCode::OK);
//! # Ok(())
//! # }
//! ```
//!
//! # Where the layer goes
//!
//! Outside of the work, inside of rate limits: a request that a limit denies then counts nowhere. In a fleet, a rule with slots
//! whose plans are the classes sheds by one number for all processes: the [guide](crate::guide::overload) says when which of the two helps, and
//! has figures.
//!
//! # Promises
//!
//! - P0 is never shed, and no class below its threshold.
//! - A request costs less than 100 ns and no allocation; with [`Capacity::in_flight`] no clock is read below the thresholds.
//! - A client that does not read its response keeps its place: set a write timeout in the server or the proxy in front of it.

mod adaptive;
mod capacity;
mod future;
mod layer;
mod observe;
mod priority;
mod service;
mod shedder;

pub use self::{capacity::Capacity, layer::ShedLayer, priority::Priority, service::Shed};
