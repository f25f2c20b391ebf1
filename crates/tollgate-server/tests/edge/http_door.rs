//! The check over HTTP, as each proxy asks for it.

use http::{HeaderMap, Method, StatusCode};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::support::server::Server;

const RULES: &str = "version = 1\n\
    [[rules]]\nname = 'per-ip'\nlimit = 'fixed_window 1/h'\nby = 'client_ip'\nwhen = { path = '/a/{*rest}', methods = ['POST', 'HEAD'] }\n\
    [[rules]]\nname = 'closed'\nlimit = 'none'\nby = 'constant'\nwhen = { header = { name = 'host', equals = 'closed.example' } }\n";

fn server(style: &str) -> Server {
    let settings = format!(
        "rules = 'limits.toml'\nmetrics = '127.0.0.1:0'\n[[http]]\nlisten = '127.0.0.1:0'\nstyle = '{style}'\n"
    );
    Server::start(&settings, RULES)
}

async fn check(
    server: &Server,
    method: Method,
    path: &str,
    fields: &[(&str, &str)],
) -> (StatusCode, HeaderMap, String) {
    let request =
        reqwest::Client::new().request(method, format!("http://{}{path}", server.addresses[0]));
    let request = fields.iter().fold(request, |request, (name, value)| {
        request.header(*name, *value)
    });
    let response = request.send().await.expect("it is answered");
    let (status, fields) = (response.status(), response.headers().clone());
    (status, fields, response.text().await.expect("it is text"))
}

/// What a proxy says of the request of a client at this address.
fn of_client(address: &str) -> [(&str, &str); 3] {
    [
        ("x-forwarded-method", "POST"),
        ("x-forwarded-uri", "/a/b?c=d"),
        ("x-forwarded-for", address),
    ]
}

#[tokio::test]
async fn a_proxy_that_forwards_gets_a_response_to_hand_on() {
    let server = server("forwarded");
    // The last one that is no proxy: what stands before it is the client's own.
    let client = of_client("192.0.2.1, 198.51.100.7, 127.0.0.1");
    let (status, fields, body) = check(&server, Method::GET, "/check", &client).await;
    assert_eq!((status.as_u16(), &*body), (200, ""));
    assert_eq!(fields["ratelimit-policy"], "\"per-ip\";q=1;w=3600");
    let (status, fields, body) =
        check(&server, Method::GET, "/check", &of_client("198.51.100.7")).await;
    let body: Value = serde_json::from_str(&body).expect("it is JSON");
    assert_eq!((status.as_u16(), &body["status"]), (429, &429.into()));
    assert!(
        fields.contains_key("retry-after") && fields["content-type"] == "application/problem+json"
    );
    // A HEAD has no body, and the check of it none either.
    let mut head = of_client("198.51.100.7");
    head[0].1 = "HEAD";
    let (status, _, body) = check(&server, Method::GET, "/check", &head).await;
    assert_eq!((status.as_u16(), &*body), (429, ""));
    // To the proxy, a call of gRPC is denied by the status, too.
    let call = [
        &of_client("198.51.100.7")[..],
        &[("content-type", "application/grpc")],
    ]
    .concat();
    assert_eq!(check(&server, Method::GET, "/check", &call).await.0, 429);
    // Clients where proxies are, too.
    for (address, status) in [("127.0.0.8", 200), ("127.0.0.9", 200), ("127.0.0.9", 429)] {
        let (answered, ..) = check(&server, Method::GET, "/check", &of_client(address)).await;
        assert_eq!(answered, status, "{address}");
    }
    // The name of a request means nothing here: a client chooses it.
    for (address, status) in [("198.51.100.8", 200), ("198.51.100.8", 429)] {
        let named = [&of_client(address)[..], &[("x-request-id", "1")]].concat();
        assert_eq!(
            check(&server, Method::GET, "/check", &named).await.0,
            status
        );
    }
    // Without what has to be said, and elsewhere.
    for (fields, says) in [
        (
            &[("x-forwarded-uri", "/"), ("x-original-uri", "/")][..],
            "X-Forwarded-Method",
        ),
        (
            &[("x-forwarded-method", "GET"), ("x-original-uri", "/a/b")],
            "X-Forwarded-Uri",
        ),
        (
            &[
                ("x-forwarded-method", "GET"),
                ("x-forwarded-uri", "/a"),
                ("x-forwarded-uri", "/b"),
            ],
            "X-Forwarded-Uri",
        ),
    ] {
        let (status, _, body) = check(&server, Method::GET, "/check", fields).await;
        assert!(status == 400 && body.contains(says), "{body}");
    }
    assert_eq!(
        check(&server, Method::GET, "/check/a", &client).await.0,
        404
    );
}

#[tokio::test]
async fn nginx_gets_a_403_with_the_body_in_a_field_and_one_answer_for_a_request() {
    let server = server("nginx");
    let named = |id| [&of_client("198.51.100.7")[..], &[("x-request-id", id)]].concat();
    let ask = async |id| check(&server, Method::GET, "/check?deny=403", &named(id)).await;
    for _ in 0..2 {
        let (status, fields, _) = ask("first").await;
        assert_eq!(
            (status.as_u16(), &fields["ratelimit-policy"]),
            (200, &"\"per-ip\";q=1;w=3600".parse().unwrap())
        );
    }
    for _ in 0..2 {
        let (status, fields, body) = ask("second").await;
        assert_eq!(status, 403);
        assert_eq!(fields["x-problem"], body);
        assert!(fields.contains_key("retry-after"));
    }
    assert_eq!(
        check(&server, Method::GET, "/check", &named("third"))
            .await
            .0,
        429
    );
    assert!(
        server
            .metrics()
            .await
            .contains("tollgate_checks_total{door=\"http\",domain=\"\",code=\"over_limit\"} 3")
    );
}

#[tokio::test]
async fn a_preflight_passes_uncounted_unless_it_has_a_body() {
    let rules =
        "version = 1\n[[rules]]\nname = 'per-ip'\nlimit = 'fixed_window 1/h'\nby = 'client_ip'\n";
    let settings = "rules = 'limits.toml'\n[[http]]\nlisten = '127.0.0.1:0'\nstyle = 'forwarded'\n";
    let server = Server::start(settings, rules);
    let preflight = [
        ("x-forwarded-method", "OPTIONS"),
        ("x-forwarded-uri", "/a"),
        ("x-forwarded-for", "198.51.100.7"),
        ("origin", "https://shop.example"),
        ("access-control-request-method", "POST"),
    ];
    for (length, status) in [("0", 200), ("0", 200), ("7", 200), ("7", 429), ("0", 200)] {
        let body = "x".repeat(length.parse().expect("a number"));
        let request = reqwest::Client::new()
            .get(format!("http://{}/check", server.addresses[0]))
            .body(body);
        let request = preflight.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        let answered = request.send().await.expect("it is answered").status();
        assert_eq!(answered, status, "{length}");
    }
}

#[tokio::test]
async fn envoy_asks_with_the_method_and_the_path_of_its_client() {
    let server = server("envoy");
    let client = [
        ("x-forwarded-for", "198.51.100.7"),
        ("x-forwarded-uri", "/other"),
        ("x-forwarded-method", "GET"),
    ];
    let (status, fields, _) = check(&server, Method::POST, "/check/a//b?deny=403", &client).await;
    assert_eq!(
        (status.as_u16(), fields.contains_key("ratelimit")),
        (200, true)
    );
    let denied = check(&server, Method::POST, "/check/a/b?deny=403", &client);
    assert_eq!(denied.await.0, 429, "a client does not choose it");
    assert_eq!(
        check(&server, Method::GET, "/check/a/b", &client).await.0,
        200
    );
    assert_eq!(
        check(&server, Method::GET, "/checked", &client).await.0,
        404
    );
    // The host is in the target, as over HTTP/2.
    let mut socket = TcpStream::connect(&*server.addresses[0]).await.unwrap();
    let asked = b"GET http://closed.example/check/ HTTP/1.1\r\nconnection: close\r\n\r\n";
    socket.write_all(asked).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}
