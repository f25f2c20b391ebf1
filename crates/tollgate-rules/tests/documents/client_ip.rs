//! How a document says that addresses are found, what keys are called, and rules for handlers.

use http::{Request, StatusCode};
use tollgate::{
    Admission, Key, MemoryStore, RateLimitLayer,
    key::{PeerAddr, client_ip},
};
use tollgate_rules::{Bindings, Format, LiveRules, RuleDocument, RuleText, operators::Explained};
use tower::{Layer, ServiceExt, service_fn};

use crate::{client, get, passing, request, says, toml};

const PER_IP: &str = "[[rules]]\nname = 'per-ip'\nlimit = 'fixed_window 2/h'\nby = 'client_ip'\n";

/// A request through a proxy, of one of ten clients in turns.
fn through(peer: [u8; 4], header: &'static str) -> impl Fn() -> Request<String> {
    let next = std::sync::atomic::AtomicU32::new(0);
    move || {
        let mut request = get("/");
        request
            .extensions_mut()
            .insert(PeerAddr((peer, 40_000).into()));
        let client = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let value = format!("203.0.113.{client}").parse().expect("a value");
        request.headers_mut().insert(header, value);
        request
    }
}

#[tokio::test]
async fn trusted_proxies_are_said_once_for_all_rules() {
    let forwarded = "x-forwarded-for";
    for (table, header, network, passed) in [
        (
            "header = 'x-forwarded-for', trusted_proxies = ['10.0.0.0/8']",
            forwarded,
            10,
            10,
        ),
        (
            "header = 'X-Forwarded-For', trusted_proxies = '10.0.0.0/8'",
            forwarded,
            11,
            2,
        ),
        ("header = 'x-forwarded-for', hops = 1", forwarded, 11, 10),
        (
            "header = 'cf-connecting-ip', trusted_proxies = ['10.0.0.1']",
            "cf-connecting-ip",
            10,
            10,
        ),
        ("header = 'x-forwarded-for', hops = 1", "forwarded", 10, 2),
    ] {
        let peer = [network, 0, 0, 1];
        let other = PER_IP
            .replace("'per-ip'", "'other'")
            .replace("client_ip", "header:x-none");
        // Conditions know it too.
        let condition = other.clone() + "when = { client_in = '203.0.113.0/24' }\n";
        // It may stand behind the rules.
        let text = format!(
            "version = 1\n{PER_IP}[client_ip]\n{}\n",
            table.replace(", ", "\n")
        );
        let document = toml(&text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(
            passing(document.rules(), through(peer, header)).await,
            passed,
            "{table}"
        );
        let text = format!("version = 1\nclient_ip = {{ {table} }}\n{condition}");
        let document = toml(&text).unwrap_or_else(|error| panic!("{error}"));
        let counted = passing(document.rules(), through(peer, header)).await == 2;
        assert_eq!(counted, passed == 10, "{table}");
    }
}

#[test]
fn a_document_says_it_once_and_not_where_the_code_does() {
    let said = "version = 1\nclient_ip = { header = 'x-forwarded-for', hops = 1 }\n";
    let one = RuleText::named("a", format!("{said}{PER_IP}"), Format::Toml);
    let two = one.clone().and(RuleText::named("b", said, Format::Toml));
    let error = two.parse(&Bindings::new()).expect_err("two").to_string();
    says(&error, "is in a already");
    let code = Bindings::new().client_ip(client_ip().hops(2).x_forwarded_for());
    let error = one.parse(&code).expect_err("both").to_string();
    says(&error, "Bindings::client_ip");
    // A text without it follows that of another.
    let after = RuleText::named("c", format!("version = 1\n{PER_IP}"), Format::Toml);
    let changes = one.changes_from(&after, &Bindings::new()).expect("valid");
    let line = "client_ip: (none) → {\"header\":\"x-forwarded-for\",\"hops\":1}";
    assert!(
        changes
            .iter()
            .any(|change| change.replace(' ', "") == line.replace(' ', "")),
        "{changes:?}"
    );
}

#[tokio::test]
async fn a_label_is_the_key_or_a_part_of_it() {
    let three = "['header:x-api-key', 'path', 'method']";
    for (by, label, shown) in [
        ("'header:x-api-key'", "'key'", "acme-key-1"),
        ("'client_ip'", "'key'", "192.0.2.1"),
        (three, "'path'", "/a"),
        (three, "'key'", "acme-key-1, /a, GET"),
        ("['raw', 'header:x-api-key', 'constant']", "'raw'", "/a"),
        ("'header:x-api-key'", "{ first = 4 }", "acme…"),
        (
            "['path', 'header:x-api-key']",
            "{ of = 'header:x-api-key', first = 99 }",
            "acme-key-1",
        ),
        ("'header:x-other'", "'key'", "without a key"),
    ] {
        let document = toml(&crate::one(by, &format!("label = {label}")));
        let document = document.unwrap_or_else(|error| panic!("{error}"));
        let layer = RateLimitLayer::new(MemoryStore::new(), document.rules()).expect("valid");
        crate::passing_through(&layer, || client("/a", "acme-key-1")).await;
        let top = layer.limiter().top_keys("rule", 1).expect("it keeps them");
        assert_eq!(top[0].label.as_deref(), Some(shown), "{by} {label}");
    }
}

#[tokio::test]
async fn a_rule_for_a_handler_has_its_limit_in_the_file() {
    let text = |limit| {
        format!(
            "version = 1\n[[rules]]\nname = 'per-account'\nlimit = 'fixed_window {limit}/h'\nby = 'handler'\nunit = 'tries'\n"
        )
    };
    let rules = LiveRules::from_text(&text(2), Format::Toml, Bindings::new()).expect("valid");
    let layer = rules.layer(MemoryStore::new()).expect("valid");
    let service = layer.layer(service_fn(async |request: Request<String>| {
        let admission: Admission = request.extensions().get().cloned().expect("it is attached");
        let key = Key::of(request.uri().path());
        let denied = admission.acquire("per-account", &key).await.err();
        let response = denied.map(|denied| denied.into_response());
        Ok::<_, std::convert::Infallible>(
            response
                .unwrap_or_default()
                .map(|body| String::from_utf8_lossy(&body).into_owned()),
        )
    }));
    let send = async |account: &str| {
        let request = request(http::Method::POST, account);
        let Ok(response) = service.clone().oneshot(request).await;
        response
    };
    for status in [200, 200, 429] {
        assert_eq!(send("/ann").await.status(), status);
    }
    assert_eq!(send("/bob").await.status(), StatusCode::OK);
    let denied = axum::body::Body::new(send("/ann").await.into_body());
    let denied = axum::body::to_bytes(denied, 9_999).await.expect("a body");
    let denied = String::from_utf8_lossy(&denied).into_owned();
    says(&denied, "2 tries");
    rules.set_text(&text(3), Format::Toml).expect("valid");
    assert_eq!(send("/ann").await.status(), StatusCode::OK);
    assert_eq!(send("/ann").await.status(), StatusCode::TOO_MANY_REQUESTS);
    rules
        .set_text(&text(3).replace("unit", "mode = 'off'\nunit"), Format::Toml)
        .expect("valid");
    assert_eq!(send("/ann").await.status(), StatusCode::OK);
    // The program explains it, and finds a client by the text that a handler mostly makes a key of.
    let document = RuleDocument::parse(&text(2), Format::Toml, &Bindings::new()).expect("valid");
    let explained = document.explain(&get("/").into_parts().0);
    assert_eq!(explained[0].outcome, Explained::LeftToHandler);
    let explained = document
        .explain_key("per-account", &["/ann"])
        .expect("a key");
    assert_eq!(explained.key, Some(Key::of("/ann")));
}

#[test]
fn what_is_right_and_probably_not_meant_is_warned_of() {
    let plans = "plans = { gold = \"9/min\", pro = \"7/min\" }";
    let unused =
        "one of its plans (gold, pro), because nothing says which request has which: add plan = ";
    let with_plan = format!("plan = \"plan\"\n{plans}");
    let cost = |most: u32| format!("cost = {{ header = 'x-cost', max = {most} }}\n{with_plan}");
    let denied = "costs 3 units, and fixed_window 2/min lets at most 2 pass at once";
    let ended =
        "[[overrides]]\nrule = 'rule'\nkey = 'a'\nlimit = '9/min'\nuntil = 2020-01-01T00:00:00Z";
    for (by, more, warned) in [
        ("'header:authorization'", "", Some("bearer s")),
        (
            "['path', 'header:Proxy-Authorization']",
            "",
            Some("bearer s"),
        ),
        ("'header:x-api-key'", "", None),
        ("'authorization'", "", None),
        ("'tenant'", plans, Some(unused)),
        ("'tenant'", &with_plan, None),
        ("'tenant'", &cost(3), Some(denied)),
        ("'tenant'", &cost(2), None),
        (
            "'tenant'",
            "when = { not = { methods = ['GET', 'POTS'] } }",
            Some("\"POTS\" is no method of HTTP; did you mean \"POST\"?"),
        ),
        (
            "'tenant'",
            "when = { methods = ['QUERY', 'PURGE', 'REPORT'] }",
            None,
        ),
        (
            "'tenant'",
            ended,
            Some("1 of its overrides are over, the last one since 2020-01-01T00:00:00Z"),
        ),
    ] {
        let document = toml(&crate::one(by, more)).expect("valid");
        let warnings: Vec<_> = document.warnings().collect();
        let count = usize::from(warned.is_some());
        assert_eq!(warnings.len(), count, "{warnings:?}");
        let said =
            |one: &String| one.starts_with("rule: ") && one.contains(warned.unwrap_or_default());
        assert!(warnings.iter().all(said), "{warnings:?}");
    }
}
