//! A browser: what a script of one origin can see of a limiter of another.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{Router, body::Body, response::Html, routing};
use http::{HeaderName, Method, Request};
use serde_json::{Value, json};
use tollgate::{MINUTE, Quota, RateLimitLayer, Rule, key::header};
use tollgate_tests::server::Server;
use tower::util::MapRequestLayer;
use tower_http::cors::CorsLayer;

use crate::{cors::cors, grpc_web, program::run};
use tollgate_tests::app::layer;

/// What a browser knows of its user, until it is dropped.
struct Profile(PathBuf);

impl Profile {
    fn new() -> Self {
        // Browsers of several tests run at the same time.
        static BROWSERS: AtomicU64 = AtomicU64::new(0);
        let number = BROWSERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("browser-{}-{number}", std::process::id());
        Self(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name))
    }
}

impl Drop for Profile {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The page at this address when its scripts have come to rest.
pub(crate) async fn shown(url: &str) -> String {
    let profile = Profile::new();
    let profile = format!("--user-data-dir={}", profile.0.display());
    let arguments = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-quic",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
        &profile,
        // Time of the page, which stands still while it waits for the network.
        "--virtual-time-budget=10000",
        "--dump-dom",
        url,
    ];
    let browser = std::env::var_os("TOLLGATE_CHROMIUM").unwrap_or_else(|| "chromium".into());
    let output = run(browser, &arguments, "").await;
    String::from_utf8(output.stdout).expect("a page in UTF-8")
}

fn hello() -> Router {
    Router::new().route("/", routing::get(|| async { "hello" }))
}

fn one_for_each_key() -> RateLimitLayer {
    let rule = Rule::new("one", Quota::fixed_window(1, MINUTE)).by(header("x-api-key"));
    layer([rule])
}

/// As `cors`, but it shows scripts no field.
fn closed() -> CorsLayer {
    cors().expose_headers([] as [HeaderName; 0])
}

/// A service on an origin of its own, which counts the preflights that come.
async fn served(app: Router, preflights: &Arc<AtomicU64>) -> Server {
    let preflights = Arc::clone(preflights);
    let count = MapRequestLayer::new(move |request: Request<Body>| {
        let sends = request
            .headers()
            .contains_key("access-control-request-method");
        if request.method() == Method::OPTIONS && sends {
            preflights.fetch_add(1, Ordering::SeqCst);
        }
        request
    });
    Server::start(app.layer(count)).await
}

/// A service for the script, whose requests have a custom header, so that the browser sends a preflight first.
fn service(server: &Server, path: &str, options: &Value) -> Value {
    json!({ "url": format!("http://{}{path}", server.address()), "options": options })
}

#[tokio::test]
async fn a_script_reads_the_exposed_fields_of_a_denial() {
    let preflights = Arc::default();
    let limits = one_for_each_key;
    let around = served(hello().layer(limits()).layer(cors()), &preflights).await;
    let unexposed = served(hello().layer(limits()).layer(closed()), &preflights).await;
    let inside = served(hello().layer(cors()).layer(limits()), &preflights).await;
    let grpc = served(grpc_web::inside(limits()).layer(cors()), &preflights).await;

    let get = json!({ "headers": { "x-api-key": "a" } });
    let call = json!({
        "method": "POST",
        "headers": {
            "x-api-key": "a",
            "content-type": "application/grpc-web-text",
            "accept": "application/grpc-web-text",
        },
        "body": "AAAAAAYKBE9zbG8=",
    });
    let services = json!({
        "around": service(&around, "/", &get),
        "unexposed": service(&unexposed, "/", &get),
        "inside": service(&inside, "/", &get),
        "grpc": service(&grpc, grpc_web::CURRENT, &call),
    });
    let page = include_str!("page.html").replace("{services}", &services.to_string());
    let page = Router::new().route("/", routing::get(|| async { Html(page) }));
    let origin = Server::start(page).await;

    let shown = shown(&format!("http://{}/", origin.address())).await;
    let reported = shown
        .split_once(r#"<pre id="reported">"#)
        .expect("a page")
        .1;
    let reported = reported.split_once("</pre>").expect("a whole page").0;
    let reported: Value =
        serde_json::from_str(reported).unwrap_or_else(|error| panic!("{error}: {shown}"));

    let fields = |name: &str, nth: usize| reported[name][nth]["fields"].clone();
    assert_eq!(reported["around"][0]["status"], 200, "{reported}");
    assert_eq!(fields("around", 0)["ratelimit"], r#""one";r=0;t=60"#);
    assert_eq!(reported["around"][1]["status"], 429);
    assert_eq!(fields("around", 1)["retry-after"], "60");
    assert_eq!(fields("around", 1)["ratelimit"], r#""one";r=0;t=60"#);
    assert_eq!(fields("around", 1)["ratelimit-policy"], r#""one";q=1;w=60"#);

    // The status is there, the wait is not.
    assert_eq!(reported["unexposed"][1]["status"], 429);
    assert_eq!(fields("unexposed", 1).get("retry-after"), None);
    // The first was answered by the service, through CORS; of the denial there is nothing but an error.
    assert_eq!(reported["inside"][0]["status"], 200);
    assert_eq!(reported["inside"][1], json!({ "error": "TypeError" }));

    assert_eq!(reported["grpc"][0]["status"], 200);
    assert_eq!(fields("grpc", 0).get("grpc-status"), None);
    assert_eq!(reported["grpc"][1]["status"], 200);
    assert_eq!(fields("grpc", 1)["grpc-status"], "8");
    assert_eq!(fields("grpc", 1)["grpc-message"], "rate limit exceeded");
    assert_eq!(fields("grpc", 1)["grpc-retry-pushback-ms"], "60000");
    assert!(fields("grpc", 1)["grpc-status-details-bin"].is_string());

    assert!(preflights.load(Ordering::SeqCst) >= 4);
}
