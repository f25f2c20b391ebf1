//! What Envoy sends, and what becomes of it.

use http::StatusCode;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    envoy_answers::get,
    support::{
        envoy::{Asks, Envoy, HEAD, VERSIONS},
        server::Server,
        upstream::upstream,
    },
};

/// The status of a request that is written by hand.
async fn raw(url: &str, head: &[u8]) -> u16 {
    let mut stream = TcpStream::connect(url.strip_prefix("http://").expect("it is one"))
        .await
        .expect("it listens");
    stream.write_all(head).await.expect("it reads");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.expect("it answers");
    str::from_utf8(&answer[9..])
        .expect("it is text")
        .parse()
        .expect("a status")
}

#[tokio::test]
async fn all_descriptors_of_a_request_are_one_decision_and_a_rule_counts_a_client_once() {
    let rules = "version = 1\n\
        [[rules]]\nname = 'tenant'\nlimit = 'fixed_window 3/h'\nby = 'descriptor:tenant'\nat = 'edge'\n\
        [[rules]]\nname = 'user'\nlimit = 'fixed_window 1/h'\nby = 'descriptor:user'\nat = 'edge'\nwhen = { domain = 'edge', descriptor = ['user'] }\n\
        [[rules]]\nname = 'behind'\nlimit = 'concurrent 1'\nby = 'client_ip'\nat = 'service'\n";
    let tenant = "request_headers: { header_name: x-tenant, descriptor_key: tenant }";
    let user = "request_headers: { header_name: x-user, descriptor_key: user }";
    let rate_limits = format!(
        "[ {{ actions: [ {{ {tenant} }} ] }}, {{ actions: [ {{ {user} }} ] }}, {{ actions: [ {{ {user} }}, {{ {tenant} }} ] }} ]"
    );
    let (upstream, server) = (upstream().await, Server::grpc(rules));
    for (version, suffix) in VERSIONS.iter().zip(["a", "b"]) {
        let filter = "enable_x_ratelimit_headers: DRAFT_VERSION_03";
        let asks = Asks {
            rate_limits: &rate_limits,
            filter,
            ..Asks::head(&server.addresses[..1])
        };
        let envoy = Envoy::start(version, upstream, asks).await;
        let ask =
            async |user: &str| get(&envoy.url, &[("x-tenant", suffix), ("x-user", user)]).await;
        let of = |user: &str| format!("{user}{suffix}");
        // The tenant is in two descriptors, and the other rule only in the one that is a user alone.
        let first = ask(&of("u")).await;
        assert_eq!(
            (first.status.as_u16(), first.field("x-ratelimit-limit")),
            (
                200,
                "1, 3;w=3600;name=\"tenant\", 1;w=3600;name=\"user\", 3;w=3600;name=\"tenant\""
            )
        );
        assert!(
            first.field("ratelimit").contains("\"tenant\";r=2;"),
            "{:?}",
            first.fields
        );
        // Denied by the user's limit, three times; the tenant loses nothing by it.
        for _ in 0..3 {
            let denied = ask(&of("u")).await;
            assert_eq!(denied.status, 429);
            assert!(
                denied.field("ratelimit").contains("\"tenant\";r=2;"),
                "{:?}",
                denied.fields
            );
        }
        assert_eq!(
            [ask(&of("v")).await.status, ask(&of("w")).await.status],
            [StatusCode::OK; 2]
        );
        assert_eq!(ask(&of("x")).await.status, 429);
        // Without the fields there is no descriptor, and no call.
        let calls = envoy.counter("ok").await + envoy.counter("over_limit").await;
        assert_eq!(get(&envoy.url, &[]).await.status, 200);
        assert_eq!(
            envoy.counter("ok").await + envoy.counter("over_limit").await,
            calls
        );
    }
}

#[tokio::test]
async fn hits_are_what_a_request_costs() {
    let rules = "version = 1\n[[rules]]\nname = 'user'\nlimit = 'fixed_window 5/h'\nby = 'descriptor:user'\nat = 'edge'\n";
    let (upstream, server) = (upstream().await, Server::grpc(rules));
    let user = "actions: [ { request_headers: { header_name: x-user, descriptor_key: user } } ]";
    let start = async |hits: &str| {
        let rate_limits = format!("[ {{ {user}, {hits} }} ]");
        let asks = Asks {
            rate_limits: &rate_limits,
            ..Asks::head(&server.addresses[..1])
        };
        Envoy::start(VERSIONS[0], upstream, asks).await
    };
    let (three, look) = (
        start("hits_addend: { number: 3 }").await,
        start("hits_addend: { number: 0 }").await,
    );
    let left = async |envoy: &Envoy| {
        let answer = get(&envoy.url, &[("x-user", "a")]).await;
        (
            answer.status.as_u16(),
            answer
                .field("ratelimit")
                .split(';')
                .nth(1)
                .unwrap_or_default()
                .to_owned(),
        )
    };
    assert_eq!(left(&look).await, (200, "r=5".to_owned()));
    assert_eq!(left(&three).await, (200, "r=2".to_owned()));
    assert_eq!(left(&three).await, (429, "r=2".to_owned()));
    assert_eq!(left(&look).await, (200, "r=2".to_owned()));
    // What is given back is not taken, and said to be unknown here.
    let back = start("hits_addend: { number: 2, is_negative_hits: true }").await;
    assert_eq!(left(&back).await, (200, String::new()));
    assert!(
        server
            .metrics()
            .await
            .contains("tollgate_negative_hits_total 1")
    );
    // What the response says is taken at the end, if it is there.
    let end =
        start("apply_on_stream_done: true, hits_addend: { format: \"%RESP(x-tokens-used)%\" }")
            .await;
    let after = get(&end.url, &[("x-user", "b")]).await;
    assert_eq!((after.status.as_u16(), after.field("ratelimit")), (200, ""));
    tollgate_test_servers::eventually::eventually("it is taken", || async {
        let looked = get(&look.url, &[("x-user", "b")]).await;
        looked.field("ratelimit").contains("r=2;").then_some(())
    })
    .await;
}

#[tokio::test]
async fn no_field_of_a_client_makes_its_request_pass() {
    let rules = "version = 1\n\
        [[rules]]\nname = 'per-key'\nlimit = 'fixed_window 1/h'\nby = 'header:x-api-key'\n\
        [[rules]]\nname = 'user'\nlimit = 'fixed_window 1/h'\nby = 'descriptor:user'\nat = 'edge'\n";
    let upstream = upstream().await;
    let user =
        r#"{ actions: [ { request_headers: { header_name: x-user, descriptor_key: user } } ] } ]"#;
    let rate_limits = HEAD.trim_end_matches(']').to_owned() + ", " + user;
    for version in VERSIONS {
        let server = Server::grpc(rules);
        let asks = Asks {
            rate_limits: &rate_limits,
            ..Asks::head(&server.addresses[..1])
        };
        let envoy = Envoy::start(version, upstream, asks).await;
        let long = format!("/{}?{}", "a/".repeat(2_000), "q".repeat(20_000));
        for (path, fields) in [
            // No UTF-8, which a string of the protocol has to be.
            ("/", &b"x-api-key: \xff\xfe\r\n"[..]),
            ("/", b"x-api-key: twice\r\nx-api-key: other\r\n"),
            ("/%ff%00%zz<>\"`{}|\\^", b"x-api-key: path\r\n"),
            (&*long, b"x-api-key: long\r\n"),
            ("/", b"x-user: \r\nx-api-key: empty\r\n"),
            ("/", b"x-user: \xff\r\nx-api-key: user\r\n"),
        ] {
            let name = format!("{version} {path:.9} {}", String::from_utf8_lossy(fields));
            let mut head =
                format!("GET {path} HTTP/1.1\r\nhost: a\r\nx-version: {version}\r\n").into_bytes();
            head.extend_from_slice(fields);
            head.extend_from_slice(b"\r\n");
            let _ = raw(&envoy.url, &head).await;
            assert_ne!(raw(&envoy.url, &head).await, 200, "{name}");
        }
        assert_eq!(envoy.counter("error").await, 0, "{version}");
    }
}

#[tokio::test]
async fn a_call_of_grpc_ends_as_one_and_a_shadow_is_not_shown() {
    let rules = "version = 1\n\
        [[rules]]\nname = 'per-key'\nlimit = 'fixed_window 1/h'\nby = 'header:x-api-key'\n\
        [[rules]]\nname = 'tried'\nlimit = 'fixed_window 1/d'\nby = 'header:x-api-key'\nmode = 'shadow'\n";
    let (upstream, server) = (upstream().await, Server::grpc(rules));
    for version in VERSIONS {
        let filter = "rate_limited_as_resource_exhausted: true\n              enable_x_ratelimit_headers: DRAFT_VERSION_03";
        let asks = Asks {
            filter,
            ..Asks::head(&server.addresses[..1])
        };
        let envoy = Envoy::start(version, upstream, asks).await;
        let call = async || {
            let request = reqwest::Client::new().post(format!("{}/Weather/Today", envoy.url));
            let request = request
                .header("content-type", "application/grpc")
                .header("x-api-key", version);
            request.send().await.expect("it is answered")
        };
        let allowed = call().await;
        assert_eq!(
            allowed.headers()["x-ratelimit-limit"],
            "1, 1;w=3600;name=\"per-key\"",
            "{version}"
        );
        let denied = call().await;
        let field = |name: &str| {
            denied
                .headers()
                .get(name)
                .map_or("", |it| it.to_str().expect("it is text"))
        };
        assert_eq!(
            (
                denied.status().as_u16(),
                field("grpc-status"),
                field("content-type")
            ),
            (200, "8", "application/grpc")
        );
        assert_eq!(field("grpc-message"), "rate limit exceeded");
        assert!(
            !field("grpc-retry-pushback-ms").is_empty()
                && !field("grpc-status-details-bin").is_empty()
        );
    }
}
