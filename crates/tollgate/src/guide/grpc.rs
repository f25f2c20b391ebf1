//! gRPC: around a server, a service, a method; REST beside it; what clients see.
//!
//! The layer is the one for HTTP. It finds out by each request's content type that it is a gRPC call, and denies it
//! [in gRPC](crate::rejection#grpc). With the feature `tonic` it knows tonic's connections, so that
//! [`client_ip`](crate::key::client_ip()) works without more, under TLS too.
//!
//! # A whole server
//!
//! Rules see the method that is called, so one layer serves many of them: a budget for each caller, a narrower one for a
//! dear method, in one decision.
//!
//! ```
//! use tollgate::{
//!     MINUTE, MemoryStore, Missing, Quota, RateLimitLayer, Rule, RuleError, SECOND,
//!     condition::grpc_method_is,
//!     key::{client_ip, metadata},
//! };
//!
//! fn limits(store: MemoryStore) -> Result<RateLimitLayer, RuleError> {
//!     RateLimitLayer::new(store, [
//!         Rule::new("calls-per-ip", Quota::gcra(20, SECOND).burst(40)).by(client_ip()),
//!         Rule::new("forecasts-per-tenant", Quota::token_bucket(100).refill(1, SECOND))
//!             .by(metadata("tenant"))
//!             // UNAUTHENTICATED, in gRPC.
//!             .when_missing(Missing::Reject(http::StatusCode::UNAUTHORIZED))
//!             .when(grpc_method_is("weather.v1.Weather", "Forecast")),
//!     ])
//! }
//!
//! # #[cfg(feature = "tonic")]
//! async fn serve(services: tonic::service::Routes) -> Result<(), Box<dyn std::error::Error>> {
//!     tonic::transport::Server::builder()
//!         .layer(limits(MemoryStore::new())?)
//!         .add_routes(services)
//!         .serve("127.0.0.1:50051".parse()?)
//!         .await?;
//!     Ok(())
//! }
//! # assert!(limits(MemoryStore::new()).is_ok());
//! ```
//!
//! Metadata that a client may make up is a poor key: see [choosing a key](crate::key#choosing-a-key). An interceptor or a layer in
//! front that has verified the caller puts it into the extensions, and [`extension`](crate::key::extension()) counts by it.
//!
//! tonic's services look at no method: an OPTIONS request is a call to them. With a message, or with a content type, it is
//! counted as any other, whatever fields of a CORS preflight it has. Without either it passes uncounted, and begins a handler
//! that takes a stream, which finds it empty. Where that costs something and no CORS layer outside answers preflights, call
//! [`count_preflight`](crate::RateLimitLayer::count_preflight).
//!
//! # One service
//!
//! `Server::builder().add_service(limits.layer(WeatherServer::new(service)))` limits this service and leaves reflection and
//! health checks alone. The wrapped service keeps its name (`NamedService`).
//!
//! # In the handler
//!
//! [`attach`](crate::RateLimitLayer::attach_decision) puts an [`Admission`](crate::Admission) into the extensions of tonic's
//! `Request`. A rule that the handler asks, by a key from the message, denies with a [`Denied`](crate::Denied), which `?`
//! turns into the `Status` that the layer would have sent:
//!
//! ```text
//! async fn current(&self, call: Request<City>) -> Result<Response<Report>, Status> {
//!     let admission = call.extensions().get::<Admission>().cloned().ok_or_else(|| Status::internal("no layer"))?;
//!     admission.acquire("per-city", &Key::of(&call.get_ref().name)).await?;
//! ```
//!
//! # Long streams
//!
//! A stream is one call, and is counted once. Where a client sends for hours, count its messages as well, with a
//! [`MessageLimitLayer`](crate::MessageLimitLayer) inside: see [`message`](crate::message). Where messages wait for their turn,
//! give a stream less than the window of its connection, so that other calls on it go on: see `wait_up_to` there.
//!
//! # REST and gRPC on one port
//!
//! tonic's services are routes of axum, so that one layer goes around both, and one budget counts both:
//!
//! ```
//! # #[cfg(not(feature = "axum"))] fn main() {}
//! # #[cfg(feature = "axum")] use with_axum::main;
//! # #[cfg(feature = "axum")] mod with_axum {
//! use axum::{Router, body::Body, routing::get};
//! use http::Request;
//! use tollgate::{MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, key::{PeerAddr, client_ip}};
//! use tonic::service::Routes;
//! use tower::ServiceExt;
//!
//! #[tokio::main(flavor = "current_thread")]
//! # pub
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let rule = Rule::new("per-ip", Quota::fixed_window(1, MINUTE)).by(client_ip());
//!     let app: Router = Routes::default() // .add_service(WeatherServer::new(service))
//!         .into_axum_router()
//!         .route("/weather/{city}", get(|| async { "20 degrees" }))
//!         .layer(RateLimitLayer::new(MemoryStore::new(), [rule])?);
//!
//!     let peer = PeerAddr("192.0.2.1:40000".parse()?);
//!     let rest = Request::get("/weather/Oslo").extension(peer).body(Body::empty())?;
//!     assert_eq!(app.clone().oneshot(rest).await?.status(), 200);
//!     let call = Request::post("/weather.v1.Weather/Current")
//!         .header("content-type", "application/grpc")
//!         .extension(peer)
//!         .body(Body::empty())?;
//!     let denied = app.oneshot(call).await?;
//!     assert_eq!((denied.status().as_u16(), &denied.headers()["grpc-status"]), (200, &"8".parse()?));
//!     Ok(())
//! }
//! # }
//! ```
//!
//! `GrpcWebLayer` must not be around the REST routes: it answers 400 to every HTTP/1 request that is not gRPC-Web. Put it around
//! the gRPC services, and the limit outside or inside of it.
//!
//! # What clients do with it
//!
//! | client | what it obeys |
//! | --- | --- |
//! | gRPC's own (C++, Python, Ruby, Go, Java) | `grpc-retry-pushback-ms`, if its service config has a `retryPolicy` with `RESOURCE_EXHAUSTED`: it waits exactly so long, or does not retry at -1 |
//! | OpenTelemetry exporters | `RetryInfo`: without it they drop what they hold |
//! | tonic's | nothing by itself: read `Status::get_error_details` of `tonic-types`, as `cargo run --example tonic` does, or put `tollgate-client` in front of its channel: `ClientRateLimitLayer::new().over_channel(channel)` (feature `tonic`) |
//! | browsers, by gRPC-Web | what their code reads; CORS has to expose `grpc-status`, `grpc-message` and `grpc-status-details-bin` |
