//! Recipes: complete programs for the usual things.
//!
//! Each ends in assertions, and sends requests to the service without a network: `oneshot` is from `tower::ServiceExt`. In
//! a real service `axum::serve` takes that place, with `into_make_service_with_connect_info::<SocketAddr>()` where an
//! address counts. Programs with [`Admission`](crate::Admission) as an argument of a handler need the feature `axum`,
//! waiting in line needs `tokio`.
//!
//! - [Public reads behind a proxy](#public-reads-behind-a-proxy)
//! - [A log-in, by address and by account](#a-log-in-by-address-and-by-account)
//! - [A log-in where only failures count](#a-log-in-where-only-failures-count)
//! - [An API for tenants with plans](#an-api-for-tenants-with-plans)
//! - [A search that costs what it takes](#a-search-that-costs-what-it-takes)
//! - [Several routes on one budget](#several-routes-on-one-budget)
//! - [A worker](#a-worker)
//! - [Paying the real cost afterwards](#paying-the-real-cost-afterwards)
//! - [Trying out a new limit](#trying-out-a-new-limit)
//! - [Health checks and internal calls](#health-checks-and-internal-calls)
//! - [Scripts on other origins](#scripts-on-other-origins)
//! - [A service without axum](#a-service-without-axum)
//! - [Tests without waiting](#tests-without-waiting)
//!
//! # Public reads behind a proxy
//!
//! Behind a proxy the peer is the proxy. Say which header it writes, and from where you believe it; the
//! [page on keys](crate::key#the-clients-address) has a table of proxies. What a client adds to the header itself changes
//! nothing.
//!
//! ```
//! use axum::{Router, body::Body, routing::get};
//! use http::{Request, StatusCode};
//! use tollgate::{
//!     MINUTE, MemoryStore, Quota, RateLimitLayer, Rule,
//!     key::{PeerAddr, client_ip},
//! };
//! use tower::ServiceExt;
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let client = client_ip().trusted_proxies(["10.0.0.0/8"]).x_forwarded_for();
//!     let limits = RateLimitLayer::new(
//!         MemoryStore::new(),
//!         [Rule::new("reads-per-ip", Quota::gcra(60, MINUTE).burst(2)).by(client)],
//!     )?;
//!     let app = Router::new().route("/", get(|| async { "hello" })).layer(limits);
//!
//!     let get = async |forwarded_for: &str| {
//!         let request = Request::get("/")
//!             .extension(PeerAddr("10.0.0.1:40000".parse().unwrap()))
//!             .header("x-forwarded-for", forwarded_for);
//!         app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status()
//!     };
//!     assert_eq!(get("203.0.113.9").await, StatusCode::OK);
//!     assert_eq!(get("203.0.113.9").await, StatusCode::OK);
//!     // The first entry is what the client wrote. It is still the same client.
//!     assert_eq!(get("198.51.100.1, 203.0.113.9").await, StatusCode::TOO_MANY_REQUESTS);
//!     assert_eq!(get("203.0.113.10").await, StatusCode::OK);
//!     Ok(())
//! }
//! ```
//!
//! # A log-in, by address and by account
//!
//! The address is known before the body is read, the account only afterwards. The second rule is left to the handler, which
//! asks it with the key that it has learned. A denial is the layer's own answer, so `?` is enough. `quiet` tells nobody how
//! close he is.
//!
//! The two are two decisions: what the address was debited stays when the account is denied. That is as it should be here.
//!
//! ```
//! # #[cfg(not(feature = "axum"))] fn main() {}
//! # #[cfg(feature = "axum")] use with_axum::main;
//! # #[cfg(feature = "axum")] mod with_axum {
//! use axum::{Form, Router, body::Body, routing::post};
//! use http::{Request, StatusCode, header};
//! use tollgate::{
//!     Admission, Denied, Key, MINUTE, MemoryStore, OnStoreError, Protocol, Quota, RateLimitLayer, Rule,
//!     key::{PeerAddr, client_ip},
//! };
//! use tower::ServiceExt;
//!
//! async fn login(
//!     admission: Admission,
//!     Form(form): Form<Vec<(String, String)>>,
//! ) -> Result<StatusCode, Denied> {
//!     let field = |name| form.iter().find(|(n, _)| n == name).map_or("", |(_, value)| value);
//!     // One budget, however the account is spelled.
//!     let account = field("account").to_lowercase();
//!     admission.acquire("login-per-account", &Key::of(account)).await?;
//!     Ok(match field("password") {
//!         "open sesame" => StatusCode::OK,
//!         _ => StatusCode::UNAUTHORIZED,
//!     })
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! # pub
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let limits = RateLimitLayer::new(
//!         MemoryStore::new(),
//!         [
//!             Rule::new("login-per-ip", Quota::sliding_log(20, MINUTE))
//!                 .on_store_error(OnStoreError::Deny)
//!                 .by(client_ip()),
//!             Rule::new("login-per-account", Quota::sliding_log(2, MINUTE))
//!                 .on_store_error(OnStoreError::Deny)
//!                 .by_handler(),
//!         ],
//!     )?
//!     .hide_quota()
//!     .protocol(Protocol::Http);
//!     let app = Router::new().route("/login", post(login).route_layer(limits));
//!
//!     let attempt = async |form: &'static str| {
//!         let request = Request::post("/login")
//!             .extension(PeerAddr("192.0.2.1:40000".parse().unwrap()))
//!             .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
//!         app.clone().oneshot(request.body(Body::from(form)).unwrap()).await.unwrap()
//!     };
//!     assert_eq!(attempt("account=ali&password=guess").await.status(), StatusCode::UNAUTHORIZED);
//!     assert_eq!(attempt("account=Ali&password=guess").await.status(), StatusCode::UNAUTHORIZED);
//!     let denied = attempt("account=ali&password=guess").await;
//!     assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
//!     assert!(denied.headers().contains_key(header::RETRY_AFTER));
//!     assert!(!denied.headers().contains_key("ratelimit"));
//!     assert_eq!(attempt("account=bea&password=open+sesame").await.status(), StatusCode::OK);
//!     Ok(())
//! }
//! # }
//! ```
//!
//! To start a client anew after a successful log-in, keep a clone of the layer, or its `limits.limiter()`, in the application's
//! state and call [`reset`](crate::Limiter::reset).
//!
//! # A log-in where only failures count
//!
//! A person who knows the password should not be locked out for using it often. Both rules take first and give back on success: if
//! a failure were counted only when it is known, any number of guesses at the same time would pass.
//!
//! By address, [`count_if`](crate::RequestRule::count_if) says which responses count, and the handler has nothing to do. The account
//! is in the body: the handler holds what it has taken as a ticket, and cancels it on success. See also
//! [Count only what fails](crate::guide::count_failures).
//!
//! ```
//! # #[cfg(not(feature = "axum"))] fn main() {}
//! # #[cfg(feature = "axum")] use with_axum::main;
//! # #[cfg(feature = "axum")] mod with_axum {
//! use axum::{Form, Router, body::Body, routing::post};
//! use http::{Request, StatusCode, header};
//! use tollgate::{
//!     Admission, Denied, Key, MINUTE, MemoryStore, OnStoreError, Protocol, Quota, RateLimitLayer, Rule,
//!     key::{PeerAddr, client_ip},
//! };
//! use tower::ServiceExt;
//!
//! async fn login(
//!     admission: Admission,
//!     Form(form): Form<Vec<(String, String)>>,
//! ) -> Result<StatusCode, Denied> {
//!     let field = |name| form.iter().find(|(n, _)| n == name).map_or("", |(_, value)| value);
//!     let account = Key::of(field("account").to_lowercase());
//!     let attempt = admission.acquire_ticket("failures-per-account", &account).await?;
//!     if field("password") != "open sesame" {
//!         // What was taken stays taken.
//!         return Ok(StatusCode::UNAUTHORIZED);
//!     }
//!     attempt.cancel();
//!     Ok(StatusCode::OK)
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! # pub
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let limits = RateLimitLayer::new(
//!         MemoryStore::new(),
//!         [
//!             Rule::new("failures-per-ip", Quota::sliding_log(20, MINUTE))
//!                 .on_store_error(OnStoreError::Deny)
//!                 .by(client_ip())
//!                 .count_if(|response| response.is_failure()),
//!             Rule::new("failures-per-account", Quota::sliding_log(2, MINUTE))
//!                 .on_store_error(OnStoreError::Deny)
//!                 .by_handler(),
//!         ],
//!     )?
//!     .hide_quota()
//!     .protocol(Protocol::Http);
//!     let app = Router::new().route("/login", post(login).route_layer(limits));
//!
//!     let attempt = async |form: &'static str| {
//!         let request = Request::post("/login")
//!             .extension(PeerAddr("192.0.2.1:40000".parse().unwrap()))
//!             .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
//!         app.clone().oneshot(request.body(Body::from(form)).unwrap()).await.unwrap().status()
//!     };
//!     for _ in 0..30 {
//!         assert_eq!(attempt("account=ali&password=open+sesame").await, StatusCode::OK);
//!     }
//!     assert_eq!(attempt("account=ali&password=guess").await, StatusCode::UNAUTHORIZED);
//!     assert_eq!(attempt("account=ali&password=open+sesame").await, StatusCode::OK);
//!     assert_eq!(attempt("account=ali&password=guess").await, StatusCode::UNAUTHORIZED);
//!     // Two failures are two failures: now not even the right password is looked at.
//!     assert_eq!(attempt("account=ali&password=open+sesame").await, StatusCode::TOO_MANY_REQUESTS);
//!     Ok(())
//! }
//! # }
//! ```
//!
//! An attacker who has an account of his own can log in to it between his guesses. That gives back what those log-ins took,
//! and nothing of what his guesses did.
//!
//! # An API for tenants with plans
//!
//! A plan is another quota of the same rule, chosen for each request. A tenant that changes plans keeps what it has used.
//! `unlimited` asks no store and writes no header. Two rules in one layer: a request that the tenant's budget refuses takes
//! nothing from the key's either.
//!
//! The tenant comes from the middleware that has checked the key, never from a header. With `Router::layer` the one added
//! last is the outermost, so authentication stands below the limit.
//!
//! ```
//! use axum::{Router, body::Body, extract::Request, middleware, response::Response, routing::get};
//! use http::StatusCode;
//! use tollgate::{
//!     MINUTE, MemoryStore, Missing, Quota, RateLimitLayer, Rule, key::extension_with,
//! };
//! use tower::ServiceExt;
//!
//! #[derive(Clone)]
//! struct Caller {
//!     key: u64,
//!     tenant: &'static str,
//!     plan: &'static str,
//! }
//!
//! async fn authenticate(mut request: Request, next: middleware::Next) -> Result<Response, StatusCode> {
//!     let key = request.headers().get("x-api-key").ok_or(StatusCode::UNAUTHORIZED)?;
//!     let caller = match key.as_bytes() {
//!         b"k1" => Caller { key: 1, tenant: "acme", plan: "free" },
//!         b"k2" => Caller { key: 2, tenant: "acme", plan: "free" },
//!         b"k3" => Caller { key: 3, tenant: "globex", plan: "gold" },
//!         b"k4" => Caller { key: 4, tenant: "ours", plan: "internal" },
//!         _ => return Err(StatusCode::UNAUTHORIZED),
//!     };
//!     request.extensions_mut().insert(caller);
//!     Ok(next.run(request).await)
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let limits = RateLimitLayer::new(
//!         MemoryStore::new(),
//!         [
//!             Rule::new("items-per-key", Quota::gcra(600, MINUTE).burst(2))
//!                 .by(extension_with(|caller: &Caller| Some(&caller.key)))
//!                 .when_missing(Missing::Reject(StatusCode::UNAUTHORIZED)),
//!             Rule::new("items-per-tenant", Quota::sliding_window(3, MINUTE))
//!                 .plan("gold", Quota::sliding_window(1_000, MINUTE))
//!                 .plan("internal", Quota::unlimited())
//!                 .by(extension_with(|caller: &Caller| Some(caller.tenant)))
//!                 .when_missing(Missing::Reject(StatusCode::UNAUTHORIZED))
//!                 .plan_by(|head| {
//!                     let caller = head.extensions.get::<Caller>()?;
//!                     // The rule's own quota is that of the free plan. A plan that the rule does not have counts like it,
//!                     // and is told once in the log.
//!                     (caller.plan != "free").then_some(caller.plan)
//!                 }),
//!         ],
//!     )?;
//!     let app = Router::new()
//!         .route("/items", get(|| async { "[]" }))
//!         .layer(limits)
//!         .layer(middleware::from_fn(authenticate));
//!
//!     let get = async |key: &str| {
//!         let request = Request::get("/items").header("x-api-key", key);
//!         app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
//!     };
//!     assert_eq!(get("k1").await.status(), StatusCode::OK);
//!     assert_eq!(get("k1").await.status(), StatusCode::OK);
//!     assert_eq!(get("k2").await.status(), StatusCode::OK);
//!     // The key has a unit left, the tenant has none.
//!     let denied = get("k2").await;
//!     assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
//!     assert!(denied.headers()["ratelimit"].to_str()?.contains("\"items-per-tenant\";r=0"));
//!
//!     let gold = get("k3").await;
//!     assert!(gold.headers()["ratelimit"].to_str()?.contains("\"items-per-tenant\";r=999"));
//!     let internal = get("k4").await;
//!     assert!(!internal.headers()["ratelimit"].to_str()?.contains("items-per-tenant"));
//!     Ok(())
//! }
//! ```
//!
//! # A search that costs what it takes
//!
//! A request costs one unit by default. Cap what you compute: a cost above what the quota ever lets pass at once
//! is denied for ever, with no `Retry-After`.
//!
//! ```
//! use axum::{Router, body::Body, routing::get};
//! use http::{Request, StatusCode, request::Parts};
//! use tollgate::{MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, key::constant};
//! use tower::ServiceExt;
//!
//! /// A unit for each word, 1 to 20.
//! fn words(head: &Parts) -> u64 {
//!     let query = head.uri.query().unwrap_or_default();
//!     query.split('+').count().clamp(1, 20) as u64
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let rule = Rule::new("search-words", Quota::token_bucket(20).refill(10, MINUTE));
//!     let limits =
//!         RateLimitLayer::new(MemoryStore::new(), [rule.by(constant("all")).cost_by(words)])?;
//!     let app = Router::new().route("/search", get(|| async { "nothing" }).route_layer(limits));
//!
//!     let search = async |query: &str| {
//!         let request = Request::get(format!("/search?q={query}")).body(Body::empty());
//!         app.clone().oneshot(request.unwrap()).await.unwrap()
//!     };
//!     let found = search("anvils+for+coyotes").await;
//!     assert_eq!(found.headers()["ratelimit"], r#""search-words";r=17;t=18"#);
//!     let long = search(&"word+".repeat(100)).await;
//!     assert_eq!(long.status(), StatusCode::TOO_MANY_REQUESTS);
//!     // It took nothing, and it passes when three units have come back.
//!     assert_eq!(long.headers()["ratelimit"], r#""search-words";r=17;t=18"#);
//!     Ok(())
//! }
//! ```
//!
//! # Several routes on one budget
//!
//! A name is one budget on one store. Use the name with two costs, in two layers on clones of the store. Give it one quota
//! everywhere: of two sizes that are live at once under one name, a denial under the small one cuts a bucket to its size, so
//! that the large one has units again.
//!
//! ```
//! use axum::{Router, body::Body, routing::{get, post}};
//! use http::{Method, Request, StatusCode};
//! use tollgate::{
//!     MINUTE, MemoryStore, Quota, RateLimitLayer, RequestRule, Rule, key::constant,
//! };
//! use tower::ServiceExt;
//!
//! fn api(units: u64) -> RequestRule {
//!     Rule::new("api", Quota::gcra(60, MINUTE)).cost(units).by(constant("all"))
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let store = MemoryStore::new();
//!     let read = RateLimitLayer::new(store.clone(), [api(1)])?;
//!     let export = RateLimitLayer::new(store, [api(50)])?;
//!     let app = Router::new()
//!         .route("/items", get(|| async { "[]" }).route_layer(read))
//!         .route("/export", post(|| async { "started" }).route_layer(export));
//!
//!     let send = async |method: Method, path: &str| {
//!         let request = Request::builder().method(method).uri(path).body(Body::empty());
//!         app.clone().oneshot(request.unwrap()).await.unwrap().status()
//!     };
//!     assert_eq!(send(Method::POST, "/export").await, StatusCode::OK);
//!     assert_eq!(send(Method::POST, "/export").await, StatusCode::TOO_MANY_REQUESTS);
//!     assert_eq!(send(Method::GET, "/items").await, StatusCode::OK);
//!     Ok(())
//! }
//! ```
//!
//! # A worker
//!
//! No HTTP is involved: a [`Limiter`](crate::Limiter) has the same rules. `acquire_up_to` takes what is there now, for a
//! batch. `wait` waits for a unit, in the order of arrival, for as long as you say, and `acquire_within` for checks at costs of
//! their own. Both need the feature `tokio`; a thread takes `wait_blocking`, which needs none.
//!
//! ```
//! # #[cfg(not(feature = "tokio"))] fn main() {}
//! # #[cfg(feature = "tokio")]
//! # mod with_tokio {
//! use std::time::Duration;
//! use tollgate::{Clock, Key, Limiter, MemoryStore, Quota, Rule, SECOND};
//!
//! // Tokio's clock is paused, so that this program waits for nothing; leave both out in a service.
//! #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # pub
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let store = MemoryStore::builder().clock(Clock::tokio()).build();
//!     let provider = Rule::new("provider", Quota::token_bucket(50).refill(10, SECOND));
//!     let limiter = Limiter::new(store, [provider])?;
//!     let key = Key::of("api.example.com");
//!     let call = limiter.check("provider", &key)?;
//!
//!     let batch = limiter.acquire_up_to(&[call], 80).await;
//!     assert_eq!(batch.units, 50);
//!
//!     // A tenth of a second later there is one more.
//!     let next = limiter.wait("provider", &key, Duration::from_secs(1)).await?;
//!     assert!(next.is_allowed());
//!     // 20 units take two seconds. That is known at once, and nothing is taken.
//!     let many = limiter.acquire_within(&[call.with_cost(20)], Duration::from_secs(1)).await?;
//!     assert!(!many.is_allowed());
//!     Ok(())
//! }
//! # }
//! # #[cfg(feature = "tokio")] use with_tokio::main;
//! ```
//!
//! # Paying the real cost afterwards
//!
//! What a request costs may be known only when it is done: tokens of a model, bytes of an export. Take an estimate first,
//! and settle it with a [`Ticket`](crate::Ticket). Where the real cost is higher, what is there is taken.
//!
//! Where the work takes long, count in a window, as here: it knows the units of a ticket, and gives back all of them. A bucket
//! refills meanwhile, and gives back [what it has not refilled](crate::Ticket#accuracy) since they were taken.
//!
//! A ticket settles all rules of its decision alike. Where a rule that counts requests stands beside one that counts
//! tokens, take the part of the second: [`Ticket::of_rule`](crate::Ticket::of_rule).
//!
//! ```
//! use axum::{Router, body::Body, extract::State, routing::post};
//! use http::{Request, StatusCode};
//! use tollgate::{Key, Limiter, MINUTE, MemoryStore, Quota, Rule};
//! use tower::ServiceExt;
//!
//! const ESTIMATE: u64 = 4_000;
//!
//! async fn complete(State(limiter): State<Limiter>, prompt: String) -> Result<String, StatusCode> {
//!     let account = Key::of("account-7");
//!     let check = limiter
//!         .check("tokens-per-account", &account)
//!         .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?
//!         .with_cost(ESTIMATE);
//!     let decision = limiter.acquire(&[check]).await;
//!     if !decision.is_allowed() {
//!         return Err(StatusCode::TOO_MANY_REQUESTS);
//!     }
//!     // A client that hangs up drops this future. The estimate then stays taken: the work may have been done, and whoever
//!     // hangs up just before the end must not work for nothing.
//!     let ticket = limiter.ticket(&[check], &decision);
//!     let answer = prompt.to_uppercase();
//!     ticket.settle(answer.len() as u64);
//!     Ok(answer)
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let rule = Rule::new("tokens-per-account", Quota::sliding_window(10_000, MINUTE));
//!     let limiter = Limiter::new(MemoryStore::new(), [rule])?;
//!     let app = Router::new().route("/complete", post(complete)).with_state(limiter.clone());
//!
//!     let request = Request::post("/complete").body(Body::from("hello"))?;
//!     assert_eq!(app.oneshot(request).await?.status(), StatusCode::OK);
//!
//!     let check = limiter.check("tokens-per-account", &Key::of("account-7"))?;
//!     let left = limiter.peek(&[check.with_cost(0)]).await;
//!     assert_eq!(left.verdicts()[0].remaining(), 10_000 - 5);
//!     Ok(())
//! }
//! ```
//!
//! With a single rule in the layer, [`Admission::ticket`](crate::Admission::ticket) is shorter.
//!
//! # Trying out a new limit
//!
//! | to learn | take |
//! | --- | --- |
//! | whom an additional rule would deny | [`shadow`](crate::Rule::shadow): a state of its own, counted as if it were alone |
//! | whom it would deny if it took another rule's place | [`shadow_instead_of`](crate::Rule::shadow_instead_of) |
//! | who is beyond a lower limit of the same rule | [`threshold`](crate::Rule::threshold): read on the rule's state, never written |
//!
//! None of them denies, nor shows in header fields. Watch `tollgate_requests_total` with `decision="shadow_denied"` and
//! `tollgate_shadow_differences_total`; a handler sees them in the [`Admission`](crate::Admission). When the numbers look
//! right, take away `.shadow()`.
//!
//! ```
//! # #[cfg(not(feature = "axum"))] fn main() {}
//! # #[cfg(feature = "axum")] use with_axum::main;
//! # #[cfg(feature = "axum")] mod with_axum {
//! use axum::{Router, body::Body, routing::get};
//! use http::Request;
//! use tollgate::{
//!     Admission, MINUTE, MemoryStore, Outcome, Quota, RateLimitLayer, Rule, key::constant,
//! };
//! use tower::ServiceExt;
//!
//! /// The names of those that would have denied.
//! async fn reports(admission: Admission) -> String {
//!     let names: Vec<_> = admission
//!         .verdicts()
//!         .filter(|verdict| verdict.outcome() == Outcome::Deny)
//!         .map(|verdict| verdict.name().to_owned())
//!         .collect();
//!     names.join(" ")
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! # pub
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let limits = RateLimitLayer::new(
//!         MemoryStore::new(),
//!         [
//!             Rule::new("api", Quota::fixed_window(100, MINUTE))
//!                 .threshold("api-is-busy", Quota::fixed_window(3, MINUTE))
//!                 .by(constant("all")),
//!             Rule::new("api-stricter", Quota::sliding_log(2, MINUTE))
//!                 .shadow_instead_of("api")
//!                 .by(constant("all")),
//!         ],
//!     )?
//!     .attach_decision();
//!     let app = Router::new().route("/", get(reports)).layer(limits);
//!
//!     let get = async || {
//!         let response = app.clone().oneshot(Request::new(Body::empty())).await.unwrap();
//!         assert!(!response.headers()["ratelimit"].to_str().unwrap().contains("stricter"));
//!         axum::body::to_bytes(response.into_body(), 1_000).await.unwrap()
//!     };
//!     assert_eq!(get().await, "");
//!     assert_eq!(get().await, "");
//!     assert_eq!(get().await, "api-stricter");
//!     assert_eq!(get().await, "api-stricter api-is-busy");
//!     Ok(())
//! }
//! # }
//! ```
//!
//! # Health checks and internal calls
//!
//! The simplest exemption is a route without the layer. Where one layer covers them all, `exempt` lets requests pass
//! uncounted, and counts them as `skipped` in the metrics. Exempt by what the client cannot forge: the path of a route that
//! does nothing, the network that it comes from, or what a middleware has verified. Never by a header.
//!
//! [`client_in`](crate::condition::client_in) looks at the socket's peer. Behind a proxy that is the proxy: there take
//! [`ClientIp::is_in`](crate::key::ClientIp::is_in), with the proxies that you trust.
//!
//! ```
//! use axum::{Router, body::Body, routing::get};
//! use http::{Request, StatusCode};
//! use tollgate::{
//!     MINUTE, MemoryStore, Quota, RateLimitLayer, Rule,
//!     condition::client_in,
//!     key::{PeerAddr, constant},
//! };
//! use tower::ServiceExt;
//!
//! /// Put into the extensions by what has checked the client's certificate, say.
//! #[derive(Clone)]
//! struct Internal;
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let rule = Rule::new("all", Quota::gcra(1, MINUTE))
//!         .by(constant("all"))
//!         .exempt(|head| head.uri.path() == "/healthz")
//!         .exempt(client_in(["10.0.0.0/8", "2001:db8:7::/48"])?)
//!         .exempt(|head| head.extensions.get::<Internal>().is_some());
//!     let app = Router::new()
//!         .route("/", get(|| async { "hello" }))
//!         .route("/healthz", get(|| async { "ok" }))
//!         .layer(RateLimitLayer::new(MemoryStore::new(), [rule])?);
//!
//!     let send = async |request: http::request::Builder| {
//!         app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status()
//!     };
//!     assert_eq!(send(Request::get("/")).await, StatusCode::OK);
//!     assert_eq!(send(Request::get("/")).await, StatusCode::TOO_MANY_REQUESTS);
//!     assert_eq!(send(Request::get("/healthz")).await, StatusCode::OK);
//!     assert_eq!(send(Request::get("/").extension(Internal)).await, StatusCode::OK);
//!     let peer = PeerAddr("10.1.2.3:40000".parse()?);
//!     assert_eq!(send(Request::get("/").extension(peer)).await, StatusCode::OK);
//!     Ok(())
//! }
//! ```
//!
//! # Scripts on other origins
//!
//! A script sees a header field of another origin only if the server names it, and sees nothing at all of a denial without
//! `Access-Control-Allow-Origin`. So the CORS layer stands outside the limiter and names
//! [`exposed_headers`](crate::header::exposed_headers). With tower-http:
//!
//! ```text
//! CorsLayer::new().allow_origin(origin).expose_headers(exposed_headers().collect::<Vec<_>>())
//! ```
//!
//! By hand:
//!
//! ```
//! use axum::{Router, body::Body, middleware::map_response, response::Response, routing::get};
//! use http::{HeaderValue, Request, StatusCode, header};
//! use tollgate::{
//!     MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, header::exposed_headers, key::constant,
//! };
//! use tower::ServiceExt;
//!
//! async fn allow_our_pages(mut response: Response) -> Response {
//!     let names: Vec<_> = exposed_headers().map(|name| name.to_string()).collect();
//!     let exposed = HeaderValue::try_from(names.join(", ")).expect("names of fields");
//!     let headers = response.headers_mut();
//!     headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
//!     let origin = HeaderValue::from_static("https://app.example.com");
//!     headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
//!     response
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let rule = Rule::new("api", Quota::gcra(1, MINUTE)).by(constant("all"));
//!     let app = Router::new()
//!         .route("/", get(|| async { "hello" }))
//!         .layer(RateLimitLayer::new(MemoryStore::new(), [rule])?)
//!         // Added last, so it is outermost: denials pass through it as well.
//!         .layer(map_response(allow_our_pages));
//!
//!     let send = async || app.clone().oneshot(Request::new(Body::empty())).await.unwrap();
//!     assert_eq!(send().await.status(), StatusCode::OK);
//!     let denied = send().await;
//!     assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
//!     let exposed = denied.headers()["access-control-expose-headers"].to_str()?;
//!     assert!(exposed.contains("retry-after") && exposed.contains("ratelimit-policy"));
//!     Ok(())
//! }
//! ```
//!
//! # A service without axum
//!
//! The layer wraps any `tower::Service` from `http::Request` to `http::Response` that is `Clone`, and leaves its error type
//! as it is. Denials are responses. Their bodies are [`ResponseBody`](crate::ResponseBody), which is the inner service's
//! body or a full one.
//!
//! ```
//! use std::{convert::Infallible, time::Duration};
//! use http::{Request, Response, StatusCode};
//! use tollgate::{Admission, MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, key::header};
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! async fn handle(request: Request<String>) -> Result<Response<String>, Infallible> {
//!     // There because of `attach`. Without a verdict where the rule was not asked, as with a preflight.
//!     let left = request
//!         .extensions()
//!         .get::<Admission>()
//!         .and_then(|admission| Some(admission.verdict("device")?.remaining()));
//!     Ok(Response::new(format!("{left:?}")))
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//!     let rule = Rule::new("device", Quota::gcra(2, MINUTE)).by(header("x-device"));
//!     let service = ServiceBuilder::new()
//!         // Written first, so it is outermost.
//!         .timeout(Duration::from_secs(5))
//!         .layer(RateLimitLayer::new(MemoryStore::new(), [rule])?.attach_decision())
//!         // Without it a denial would wait for a place below. An error of it gives back what the request took.
//!         .load_shed()
//!         .concurrency_limit(8)
//!         .service_fn(handle);
//!
//!     let send = async || {
//!         let request = Request::get("/").header("x-device", "7").body(String::new());
//!         service.clone().oneshot(request.unwrap()).await
//!     };
//!     assert_eq!(send().await?.status(), StatusCode::OK);
//!     assert_eq!(send().await?.status(), StatusCode::OK);
//!     assert_eq!(send().await?.status(), StatusCode::TOO_MANY_REQUESTS);
//!     Ok(())
//! }
//! ```
//!
//! # Tests without waiting
//!
//! A [`ManualClock`](crate::ManualClock) moves when it is told to, so a test of a limit needs no sleep and no tolerance. It
//! is exact to the microsecond.
//!
//! ```
//! use std::time::Duration;
//! use axum::{Router, body::Body, routing::get};
//! use http::{Request, StatusCode};
//! use tollgate::{key::constant, ManualClock, MemoryStore, Quota, RateLimitLayer, Rule, RuleError, SECOND, Store};
//! use tower::ServiceExt;
//!
//! /// The application takes its store, so that a test can bring its own.
//! fn app(store: impl Store) -> Result<Router, RuleError> {
//!     let rule = Rule::new("api", Quota::gcra(1, SECOND)).by(constant("all"));
//!     Ok(Router::new().route("/", get(|| async {})).layer(RateLimitLayer::new(store, [rule])?))
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let clock = ManualClock::new(1_700_000_000_000_000);
//!     let app = app(MemoryStore::builder().clock(&clock).build())?;
//!     let send = async || app.clone().oneshot(Request::new(Body::empty())).await.unwrap().status();
//!
//!     assert_eq!(send().await, StatusCode::OK);
//!     clock.advance(Duration::from_micros(999_999));
//!     assert_eq!(send().await, StatusCode::TOO_MANY_REQUESTS);
//!     clock.advance(Duration::from_micros(1));
//!     assert_eq!(send().await, StatusCode::OK);
//!     Ok(())
//! }
//! ```
