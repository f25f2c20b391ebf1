//! Requests without a browser: who is let in, and what is answered.

use std::net::SocketAddr;

use axum::{
    Extension, Router,
    body::{Body, to_bytes},
    extract::ConnectInfo,
};
use http::{Request, Response, StatusCode, header};
use serde_json::{Value, json};
use tollgate::{MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, key::header as by_header};
use tollgate_console::{Access, Console, Operator};
use tower::util::ServiceExt;

use crate::service::{App, LIMITS};

const TOKEN: &str = "b83f0c1e97d24a6f8f5e2b7a9c3d1e60";

pub(crate) async fn sent(router: &Router, request: Request<Body>) -> Response<Body> {
    router.clone().oneshot(request).await.expect("an answer")
}

pub(crate) async fn json_of(response: Response<Body>) -> Value {
    let body = to_bytes(response.into_body(), 1 << 20)
        .await
        .expect("a body");
    serde_json::from_slice(&body).expect("JSON")
}

/// All that a page begins with.
pub(crate) async fn state(router: &Router) -> Value {
    let request = Request::get("/state").body(Body::empty());
    json_of(sent(router, request.expect("a request")).await).await
}

/// The status of a request with these fields.
async fn status(router: &Router, method: &str, path: &str, fields: &[(&str, &str)]) -> u16 {
    let mut request = Request::builder()
        .method(method)
        .uri(format!("http://localhost:3000{path}"));
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let body = if method == "POST" {
        r#"{"client":"acme"}"#
    } else {
        ""
    };
    sent(router, request.body(Body::from(body)).expect("a request"))
        .await
        .status()
        .as_u16()
}

/// The cookie of a log-in.
async fn log_in(router: &Router, token: &str, fields: &[(&str, &str)]) -> String {
    let mut request = Request::post("/login").header("content-type", "application/json");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let body = Body::from(json!({ "token": token }).to_string());
    let answer = sent(router, request.body(body).expect("a request")).await;
    let cookie = answer.headers()[header::SET_COOKIE].to_str().expect("text");
    cookie.to_owned()
}

/// What an action says that it did, or why not.
async fn acted(router: &Router, action: &Value) -> (StatusCode, String) {
    let answer = sent(router, act(action)).await;
    let status = answer.status();
    let json = json_of(answer).await;
    let text = json["done"].as_str().or(json["error"].as_str());
    (status, text.expect("words").to_owned())
}

pub(crate) fn act(action: &Value) -> Request<Body> {
    let request = Request::post("/act").header(header::CONTENT_TYPE, "application/json");
    request
        .body(Body::from(action.to_string()))
        .expect("a request")
}

#[tokio::test]
async fn only_who_has_the_token_is_let_in() {
    let app = App::new(LIMITS);
    let router = app.console(Access::token(TOKEN).expect("long")).router();
    let right = format!("Bearer {TOKEN}");
    for path in ["/state", "/events", "/top", "/overview"] {
        for (fields, expected) in [
            (&[][..], 401),
            (&[("authorization", "Bearer x")], 401),
            (&[("cookie", "tollgate-console=0")], 401),
            (&[("authorization", &*right)], 200),
        ] {
            assert_eq!(status(&router, "GET", path, fields).await, expected);
        }
    }
    let fields = [("authorization", &*right)];
    for (method, path, expected) in [("GET", "/act", 404), ("HEAD", "/state", 405)] {
        assert_eq!(status(&router, method, path, &fields).await, expected);
    }
    let json = ("content-type", "application/json");
    for path in ["/act", "/client", "/explain"] {
        assert_eq!(status(&router, "POST", path, &[json]).await, 401, "{path}");
    }
    let fields = [("origin", "https://a.example"), ("host", "a.example")];
    let cookie = log_in(&router, TOKEN, &fields).await;
    assert!(
        cookie.contains("; HttpOnly; SameSite=Strict; ") && cookie.ends_with("; Secure"),
        "{cookie}"
    );
    assert!(!cookie.contains(TOKEN));
    let cookie = format!("a=b; {}", cookie.split(';').next().expect("a pair"));
    let fields = [("cookie", &*cookie)];
    assert_eq!(status(&router, "GET", "/state", &fields).await, 200);
    // After the four above, by whatever way it comes; files say nothing of it.
    let bearer = [("authorization", "Bearer x")];
    assert_eq!(status(&router, "GET", "/console.css", &bearer).await, 200);
    for tried in 4..11 {
        let request = Request::post("/login").header(json.0, json.1);
        let request = request.body(Body::from(r#"{"token":"x"}"#));
        let answer = sent(&router, request.expect("a request")).await;
        assert_eq!(answer.status(), if tried < 10 { 401 } else { 429 });
    }
    assert_eq!(status(&router, "GET", "/state", &bearer).await, 429);
    // The right token is let in, whatever strangers have tried.
    log_in(&router, TOKEN, &[]).await;
}

/// While a token changes, one of two processes has the new one.
#[tokio::test]
async fn a_browser_stays_logged_in_to_processes_with_two_tokens() {
    let app = App::new(LIMITS);
    let tokens = [TOKEN.to_owned(), TOKEN.replace('b', "c")];
    let of_token = |token: &String| app.console(Access::token(token).expect("long")).router();
    let processes = tokens.each_ref().map(of_token);
    let mut cookies = Vec::new();
    for (process, token) in processes.iter().zip(&tokens) {
        let cookie = log_in(process, token, &[]).await;
        cookies.push(cookie.split(';').next().expect("a pair").to_owned());
    }
    let names: Vec<_> = cookies.iter().map(|it| it.split('=').next()).collect();
    assert_ne!(names[0], names[1]);
    let statuses = async |cookie: &str| {
        let [one, two] = &processes;
        let fields = [("cookie", cookie)];
        [
            status(one, "GET", "/state", &fields).await,
            status(two, "GET", "/state", &fields).await,
        ]
    };
    assert_eq!(statuses(&cookies[0]).await, [200, 401]);
    assert_eq!(statuses(&cookies.join("; ")).await, [200, 200]);
    let log_out = Request::post("/logout").header("cookie", cookies.join("; "));
    let log_out = log_out.body(Body::empty()).expect("a request");
    let answer = sent(&processes[0], log_out).await;
    let ended = answer.headers().get_all(header::SET_COOKIE);
    assert_eq!(ended.iter().count(), 2);
}

#[tokio::test]
async fn only_this_machine_is_let_in_without_a_proxy_and_by_a_name_of_its_own() {
    let app = App::new(LIMITS);
    let of_peer = |peer: &str| {
        let peer: SocketAddr = peer.parse().expect("an address");
        app.console(Access::loopback())
            .router::<()>()
            .layer(Extension(ConnectInfo(peer)))
    };
    let router = of_peer("127.0.0.1:9");
    let proxied = [("x-forwarded-for", "192.0.2.7")];
    for (router, fields, expected) in [
        (&router, &[][..], 200),
        (&of_peer("[::ffff:127.0.0.1]:9"), &[], 200),
        (&of_peer("192.0.2.7:9"), &[], 403),
        // Without an address.
        (&app.console(Access::loopback()).router(), &[], 403),
        (&router, &proxied, 403),
    ] {
        assert_eq!(status(router, "GET", "/state", fields).await, expected);
    }
    for (host, expected) in [
        ("localhost:3000", 200),
        ("127.0.0.1", 200),
        ("[::1]:3000", 200),
        ("evil.example:3000", 403),
        ("localhost.evil.example", 403),
    ] {
        let request = Request::get("/state").header(header::HOST, host);
        let answer = sent(&router, request.body(Body::empty()).expect("a request")).await;
        assert_eq!(answer.status().as_u16(), expected, "{host}");
    }
}

#[tokio::test]
async fn what_another_site_sends_is_refused_whoever_it_is() {
    let app = App::new(LIMITS);
    let router = app.console(Access::by_application()).router();
    let json = ("content-type", "application/json");
    for (fields, expected) in [
        (vec![json, ("sec-fetch-site", "same-origin")], 200),
        (vec![json, ("sec-fetch-site", "cross-site")], 403),
        (vec![json, ("sec-fetch-site", "same-site")], 403),
        (vec![json, ("origin", "http://localhost:3000")], 200),
        (vec![json, ("origin", "http://localhost:4000")], 403),
        (vec![json, ("origin", "null")], 403),
        // A form or a script of another site can send nothing else without asking first.
        (vec![("content-type", "text/plain")], 415),
        (vec![json], 200),
    ] {
        let status = status(&router, "POST", "/client", &fields).await;
        assert_eq!(status, expected, "{fields:?}");
    }
    let site = ("sec-fetch-site", "cross-site");
    assert_eq!(status(&router, "GET", "/events", &[site]).await, 403);
    let navigates = [site, ("sec-fetch-mode", "navigate")];
    assert_eq!(status(&router, "GET", "/overview", &navigates).await, 200);
}

#[tokio::test]
async fn rules_from_code_are_shown_previewed_and_reset_and_not_switched() {
    let rule = Rule::new("per-key", Quota::fixed_window(2, MINUTE));
    let rule = rule
        .plan("pro", Quota::fixed_window(9, MINUTE))
        .by(by_header("x-api-key"));
    let limits = RateLimitLayer::new(MemoryStore::new(), [rule]).expect("valid");
    let console = Console::new(Access::by_application()).layer("api", &limits);
    let router: Router = console.router().layer(Extension(Operator::new("alice")));
    let state = state(&router).await;
    assert_eq!(
        (&state["scope"], &state["rules"][0]["limit"]),
        (&json!("none"), &json!("fixed_window 2/min"))
    );
    let because = "ticket 4711";
    let switch =
        json!({ "action": "switch", "rule": "per-key", "limit": "off", "because": because });
    let (status, error) = acted(&router, &switch).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(error.contains("in its code"), "{error}");
    let preview = json!({ "action": "preview", "layer": 0, "rule": "per-key", "limit": "1/min", "because": because });
    let (_, done) = acted(&router, &preview).await;
    assert_eq!(done, "began a preview of per-key at fixed_window 1/min");
    assert_eq!(limits.limiter().rules().rules().len(), 2);
    assert_eq!(self::state(&router).await["rules"][1]["mode"], "preview");
    let end = json!({ "action": "end-preview", "layer": 0, "rule": "per-key", "because": because });
    let (_, done) = acted(&router, &end).await;
    assert_eq!(done, "ended the preview of per-key");
    let (status, _) = acted(&router, &end).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    let begun = limits
        .handle()
        .preview("per-key", Quota::fixed_window(1, MINUTE));
    begun.expect("it begins in the code");
    assert_eq!(acted(&router, &end).await.1, "ended the preview of per-key");
    let reset = json!({ "action": "reset", "rule": "per-key", "client": "x-api-key: acme", "because": because });
    let (_, done) = acted(&router, &reset).await;
    assert_eq!(done, "reset a client of per-key, which had used nothing");
    for (field, value, says) in [
        ("because", json!(" "), "say why"),
        ("limit", json!("1/mni"), "min"),
        ("limit", json!("concurrent 1"), "keep it in a preview"),
        ("rule", json!("per-kye"), "per-key"),
    ] {
        let mut wrong = preview.clone();
        wrong[field] = value;
        let (status, error) = acted(&router, &wrong).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{field}");
        assert!(error.contains(says), "{error}");
    }
}

#[tokio::test]
async fn whom_the_application_knows_is_the_author_and_a_client_is_told_what_was_set() {
    let app = App::new(LIMITS);
    let router = app.console(Access::by_application()).router();
    let router = router.layer(Extension(Operator::new("alice")));
    let switch = json!({ "action": "switch", "rule": "*", "limit": "off", "because": "over" });
    assert_eq!(sent(&router, act(&switch)).await.status(), 200);
    assert_eq!(state(&router).await["entries"][0]["by"], "alice");
    let looked_up = async || {
        let request = Request::post("/client").header(header::CONTENT_TYPE, "application/json");
        let body = Body::from(r#"{"client":"x-api-key: acme"}"#);
        let answer = sent(&router, request.body(body).expect("a request")).await;
        json_of(answer).await["rules"][0].clone()
    };
    assert_eq!(looked_up().await["outcome"], "not counted: the rule is off");
    let end = json!({ "action": "end", "id": 1, "is_local": true, "because": "over" });
    assert_eq!(sent(&router, act(&end)).await.status(), 200);
    let raise = json!({ "action": "override", "rule": "items-per-key", "client": "acme", "limit": "50/h", "because": "over" });
    assert_eq!(sent(&router, act(&raise)).await.status(), 200);
    assert_eq!(looked_up().await["plan"], "an override");
    assert_eq!(state(&router).await["rules"][0]["plans"], json!([]));
}

#[test]
fn the_vendored_files_are_those_that_were_published() {
    let folder = format!("{}/page/uplot", env!("CARGO_MANIFEST_DIR"));
    let mut check = std::process::Command::new("sha256sum");
    let checked = check
        .args(["--check", "--strict", "SHA256SUMS"])
        .current_dir(&folder)
        .status();
    assert!(checked.expect("sha256sum").success());
    let license = std::fs::read_to_string(format!("{folder}/LICENSE")).expect("text");
    assert!(license.contains("The MIT License"));
}
