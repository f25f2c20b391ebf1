//! What rules count by, and when they apply.

use std::cell::RefCell;

use http::{Method, Request};

use crate::{Caller, get, one, passing, request, says, toml};

#[tokio::test]
async fn every_built_in_key_counts_and_is_overridden_by_its_text() {
    let with = |name: &'static str, value: &'static str| {
        move || {
            let mut request = get("/a/b?q=x%20y");
            let name = http::HeaderName::from_static(name);
            request
                .headers_mut()
                .insert(name, http::HeaderValue::from_static(value));
            request
        }
    };
    type Make = Box<dyn Fn() -> Request<String>>;
    let tenant = || {
        let mut request = get("/a/b");
        request.extensions_mut().insert(Caller {
            tenant: "acme",
            plan: None,
        });
        request
    };
    let call = || request(Method::POST, "/weather.v1.Weather/Current");
    // One client in another spelling each time.
    let in_turn = |paths: [&'static str; 3]| {
        let mut paths = paths.into_iter().cycle();
        let next = RefCell::new(move || get(paths.next().expect("a cycle")));
        move || next.borrow_mut()()
    };
    let cases: Vec<(&str, &str, Make)> = vec![
        ("'client_ip'", "'192.0.2.1'", Box::new(|| get("/a/b"))),
        (
            "'header:x-api-key'",
            "'k 1'",
            Box::new(with("x-api-key", "k 1")),
        ),
        (
            "'authorization'",
            "'bearer  k1'",
            Box::new(with("authorization", "Bearer k1")),
        ),
        (
            "'cookie:session'",
            "'s-1'",
            Box::new(with("cookie", "a=b; session=s-1")),
        ),
        ("'query:q'", "'x y'", Box::new(|| get("/a/b?q=x%20y"))),
        ("'path'", "'/a/b'", Box::new(|| get("/a/b?q=1"))),
        ("'method'", "'GET'", Box::new(|| get("/a/b"))),
        ("'grpc_service'", "'weather.v1.Weather'", Box::new(call)),
        (
            "'grpc_method'",
            "'/weather.v1.Weather/Current'",
            Box::new(call),
        ),
        (
            "'path:id'",
            "'é%62'",
            Box::new(in_turn(["/a/%C3%A9b", "/a/%c3%a9%62", "/a/%c3%A9b"])),
        ),
        (
            "'query:q'",
            "'é%62+'",
            Box::new(in_turn([
                "/?q=%C3%A9b%2b",
                "/?q=%c3%a9%62%2B",
                "/?%71=%c3%A9b%2B",
            ])),
        ),
        (
            "'header:host'",
            "'A.example:80'",
            Box::new(in_turn([
                "http://a.example/",
                "http://A.EXAMPLE:80/",
                "https://a.example.:8443/",
            ])),
        ),
        ("'tenant'", "'acme'", Box::new(tenant)),
        (
            "['client_ip', 'constant', 'header:x-api-key']",
            "['192.0.2.1', 'k']",
            Box::new(with("x-api-key", "k")),
        ),
    ];
    for (by, key, request) in cases {
        let when = ["", "when = { path = '/a/{id}' }"];
        let text = one(by, when[usize::from(by.contains("path:"))]);
        let document = toml(&text).expect("valid");
        assert_eq!(passing(document.rules(), &request).await, 2, "{by}");
        let more = format!("[[overrides]]\nrule = \"rule\"\nkey = {key}\nlimit = \"7/min\"\n");
        let document = toml(&format!("{text}{more}")).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(passing(document.rules(), &request).await, 7, "{by}");
        let free = more.replace("7/min", "unlimited");
        let document = toml(&format!("{text}{free}")).expect("valid");
        assert_eq!(passing(document.rules(), &request).await, 10, "{by}");
    }
    let everybody = toml(&one("\"constant\"", "")).expect("valid");
    assert_eq!(passing(everybody.rules(), || get("/")).await, 2);
}

#[tokio::test]
async fn a_rule_for_get_counts_head_unless_it_says_otherwise() {
    let head = || request(Method::HEAD, "/");
    for (when, counts) in [
        ("{ methods = ['GET'] }", true),
        ("{ methods = ['GET'], not = { methods = ['HEAD'] } }", false),
        ("{ methods = ['HEAD'] }", true),
        ("{ methods = ['POST'] }", false),
        ("{ not = { methods = ['GET'] } }", false),
        ("{ any = [{ path = '/x' }, { methods = 'GET' }] }", true),
    ] {
        let document = toml(&one("\"constant\"", &format!("when = {when}"))).expect(when);
        let passed = passing(document.rules(), head).await;
        assert_eq!(passed == 2, counts, "{when}");
    }
    // In a group, the rule that names HEAD has it.
    let rule = |name: &str, limit: u32, methods: &str| {
        format!(
            "[[rules]]\nname = '{name}'\nlimit = 'fixed_window {limit}/h'\nby = 'constant'\nwhen = {{ methods = [{methods}] }}\n"
        )
    };
    let text = format!(
        "version = 1\n{}{}[[groups]]\nname = 'g'\nrules = ['reads', 'heads']\n",
        rule("reads", 2, "'GET'"),
        rule("heads", 5, "'HEAD', 'OPTIONS'"),
    );
    let document = toml(&text).expect("valid");
    assert_eq!(passing(document.rules(), head).await, 5);
    assert_eq!(passing(document.rules(), || get("/")).await, 2);
}

#[tokio::test]
async fn a_condition_on_the_header_host_is_on_the_host_in_each_version_of_http() {
    for (target, field, is_when, is_unless) in [
        ("http://a.example/", None, true, false),
        ("/", Some("a.EXAMPLE.:8080"), true, false),
        ("http://b.example/", None, false, true),
        ("/", None, false, true),
        // The application may read either.
        ("http://b.example/", Some("a.example"), true, true),
    ] {
        let request = || {
            let mut request = get(target);
            let field = field.map(http::HeaderValue::from_static);
            let host = field.map(|value| (http::header::HOST, value));
            request.headers_mut().extend(host);
            request
        };
        for (name, counts) in [("when", is_when), ("unless", is_unless)] {
            let more =
                format!("{name} = {{ header = {{ name = 'Host', equals = 'A.example:80' }} }}");
            let document = toml(&one("\"constant\"", &more)).expect("valid");
            let passed = passing(document.rules(), request).await;
            assert_eq!(passed == 2, counts, "{target} {field:?} {name}");
        }
    }
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn a_route_and_a_grpc_service_count_apart_within_a_nested_router_too() {
    use axum::{Router, routing::get};
    use tollgate::{
        MemoryStore, RateLimitLayer,
        clock::{Clock, ManualClock},
    };
    use tower::ServiceExt;

    for (text, last) in [
        (one("\"route\"", ""), 429),
        (
            one("\"constant\"", "when = { grpc_service = 'users' }"),
            200,
        ),
    ] {
        let document = toml(&text).expect("valid");
        let clock = Clock::from(ManualClock::new(crate::START));
        let store = MemoryStore::builder().clock(clock).build();
        let layer = RateLimitLayer::new(store, document.rules()).expect("valid");
        let inner = Router::new()
            .route("/users/{id}", get(async || ""))
            .route("/posts/{id}", get(async || ""))
            .layer(layer);
        let app = Router::new().nest("/api", inner);
        for (path, status) in [
            ("/api/users/1", 200),
            ("/api/users/2", 200),
            ("/api/users/3", 429),
            ("/api/posts/1", 200),
            ("/api/posts/2", 200),
            ("/api/posts/3", last),
        ] {
            let request = Request::get(path).body(axum::body::Body::empty());
            let Ok(response) = app.clone().oneshot(request.expect("a request")).await;
            assert_eq!(response.status().as_u16(), status, "{text} {path}");
        }
    }
    // It has no text form.
    let more = "[[overrides]]\nrule = \"rule\"\nkey = \"/users/{id}\"\nlimit = \"7/min\"\n";
    let error = toml(&one("\"route\"", more)).expect_err("there is no such key");
    says(&error, "have no text form");
}

#[test]
fn a_key_has_each_of_its_parts_up_to_six() {
    const HEADERS: [&str; 6] = ["x-a", "x-b", "x-c", "x-d", "x-e", "x-f"];
    for parts in 2..=HEADERS.len() {
        let names = HEADERS[..parts].iter();
        let names: Vec<_> = names.map(|name| format!("\"header:{name}\"")).collect();
        let document = toml(&one(&format!("[{}]", names.join(", ")), ""));
        let document = document.unwrap_or_else(|error| panic!("{error}"));
        let key = |other: Option<usize>| {
            let mut request = get("/");
            for (index, name) in HEADERS.iter().enumerate() {
                let value = if other == Some(index) {
                    "other"
                } else {
                    "same"
                };
                let value = http::HeaderValue::from_static(value);
                request.headers_mut().insert(*name, value);
            }
            document.explain(&request.into_parts().0)[0].key.clone()
        };
        for part in 0..HEADERS.len() {
            let differs = key(Some(part)) != key(None);
            assert_eq!(differs, part < parts, "part {part} of {parts}");
        }
    }
}
