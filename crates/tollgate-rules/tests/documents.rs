//! Documents: what they mean, in all three syntaxes.

use std::{convert::Infallible, net::IpAddr};

use http::{Method, Request, Response};
use proptest::prelude::*;
use tollgate::{
    Clock, Consistency, Key, LeaseShare, MINUTE, ManualClock, MemoryStore, Missing, OnChange,
    OnStoreError, Quota, RateLimitLayer, RequestRule, RuleSet, SECOND,
    key::{PeerAddr, computed},
};
use tollgate_rules::{Bindings, DocumentError, Format, RuleDocument};
use tower::{Layer, ServiceExt, service_fn};

/// Noon of some day.
const START: u64 = 1_767_268_800_000_000;
const DAY: u64 = 86_400_000_000;

#[derive(Clone)]
struct Caller {
    tenant: &'static str,
    plan: Option<&'static str>,
}

fn bindings() -> Bindings {
    let by_tenant = computed(|head| Some(Key::of(head.extensions.get::<Caller>()?.tenant)));
    let raw = computed(|head| Some(Key::of(head.uri.path())));
    Bindings::new()
        .key_with_text("tenant", by_tenant, |text| {
            (text != "nobody").then(|| Key::of(text))
        })
        .key("raw", raw)
        .cost("words", |head| {
            head.uri.query().map_or(1, |query| query.len() as u64)
        })
        .plan("plan", |head| {
            head.extensions
                .get::<Caller>()
                .and_then(|caller| caller.plan)
        })
        .condition("beta", |head| head.headers.contains_key("x-beta"))
}

fn toml(text: &str) -> Result<RuleDocument, DocumentError> {
    RuleDocument::parse(text, Format::Toml, &bindings())
}

fn request(method: Method, uri: &str) -> Request<String> {
    let peer: IpAddr = [192, 0, 2, 1].into();
    let mut request = Request::new(String::new());
    *request.method_mut() = method;
    *request.uri_mut() = uri.parse().expect("a URI");
    request
        .extensions_mut()
        .insert(PeerAddr((peer, 40_000).into()));
    request
}

fn get(uri: &str) -> Request<String> {
    request(Method::GET, uri)
}

fn client(uri: &str, name: &str) -> Request<String> {
    let mut request = get(uri);
    let value = http::HeaderValue::from_str(name).expect("a value");
    request.headers_mut().insert("x-api-key", value);
    request
}

/// How many of ten requests pass. Time stands still.
async fn passing(rules: Vec<RequestRule>, request: impl Fn() -> Request<String>) -> u32 {
    let clock = ManualClock::new(START);
    let store = MemoryStore::builder().clock(Clock::from(clock)).build();
    let layer = RateLimitLayer::switchable(store, rules).expect("valid rules");
    passing_through(&layer, request).await
}

async fn passing_through(layer: &RateLimitLayer, request: impl Fn() -> Request<String>) -> u32 {
    let service = layer.layer(service_fn(|_: Request<String>| async {
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    let mut passed = 0;
    for _ in 0..10 {
        let Ok(response) = service.clone().oneshot(request()).await;
        passed += u32::from(response.status().is_success());
    }
    passed
}

const TOML: &str = r#"
version = 1

[[rules]]
name = "search-per-key"
description = "What a client may search."
limit = "20/s burst 50"
by = "header:x-api-key"
when = { path = "/search/{*rest}", methods = ["GET"] }
unless = { client_in = ["10.0.0.0/8"] }
cost = 2
plan = "plan"
plans = { gold = "200/s burst 500", internal = "unlimited" }
consistency = { leased = "12.5%" }
on_store_error = "deny"
mode = "enforce"
on_change = "scale"
missing = 401
keep_on_error = true

[[rules]]
name = "everything"
limit = { algorithm = "sliding_buckets", units = 1000, per = "1min", buckets = 30 }
by = ["client_ip", "method"]
consistency = { eventual = { interval = "50ms", max_unreported = 10 } }
on_store_error = { cap = "fixed_window 10/s" }
mode = "shadow"

[[overrides]]
rule = "search-per-key"
key = "acme-key-1"
limit = "500/s burst 1000"
until = 2026-12-01T00:00:00Z
reason = "launch week"

[[switches]]
rules = ["everything"]
limit = "50%"
until = "2026-11-30T00:00:00+01:00"
"#;

const YAML: &str = r#"
version: 1
rules:
  - name: search-per-key
    description: What a client may search.
    limit: 20/s burst 50
    by: header:x-api-key
    when: { path: "/search/{*rest}", methods: [GET] }
    unless:
      client_in: 10.0.0.0/8
    cost: 2
    plan: plan
    plans:
      gold: 200/s burst 500
      internal: unlimited
    consistency: { leased: 12.5 }
    on_store_error: deny
    mode: enforce
    on_change: scale
    missing: 401
    keep_on_error: true
  - name: everything
    limit: { algorithm: sliding_buckets, units: 1000, per: 1min, buckets: 30 }
    by: [client_ip, method]
    consistency: { eventual: { interval: 50ms, max_unreported: 10 } }
    on_store_error: { cap: fixed_window 10/s }
    mode: shadow
overrides:
  - rule: search-per-key
    key: acme-key-1
    limit: 500/s burst 1000
    until: 2026-12-01T00:00:00Z
    reason: launch week
switches:
  - rules: everything
    limit: 50%
    until: 2026-11-30T00:00:00+01:00
"#;

const JSON: &str = r#"{
  "version": 1,
  "rules": [
    {
      "name": "search-per-key",
      "limit": "20/s burst 50",
      "by": "header:x-api-key",
      "when": {"path": "/search/{*rest}", "methods": ["GET"]},
      "unless": {"client_in": ["10.0.0.0/8"]},
      "cost": 2,
      "plan": "plan",
      "plans": {"gold": "200/s burst 500", "internal": "unlimited"},
      "consistency": {"leased": "12.5 %"},
      "on_store_error": "deny",
      "on_change": "scale",
      "missing": 401,
      "keep_on_error": true
    },
    {
      "name": "everything",
      "limit": {"algorithm": "sliding_buckets", "units": 1000, "per": "60s", "buckets": 30},
      "by": ["client_ip", "method"],
      "consistency": {"eventual": {"interval": "50ms", "max_unreported": 10}},
      "on_store_error": {"cap": "fixed_window 10/s"},
      "mode": "shadow"
    }
  ],
  "overrides": [{"rule": "search-per-key", "key": "acme-key-1", "limit": "500/s burst 1000", "until": "2026-12-01T00:00:00Z"}],
  "switches": [{"rules": "everything", "limit": "50%", "until": "2026-11-29T23:00:00Z"}]
}"#;

#[test]
fn one_model_has_three_syntaxes() {
    // As they would be in code.
    let code = [
        tollgate_core::Rule::new("search-per-key", Quota::gcra(20, SECOND).burst(50))
            .cost(2)
            .plan("gold", Quota::gcra(200, SECOND).burst(500))
            .plan("internal", Quota::unlimited())
            .consistency(Consistency::Leased {
                share: LeaseShare::permille(125),
            })
            .on_store_error(OnStoreError::Deny)
            .on_change(OnChange::Scale),
        tollgate_core::Rule::new(
            "everything",
            Quota::sliding_buckets(500, MINUTE).buckets(30),
        )
        .consistency(Consistency::Eventual {
            interval: std::time::Duration::from_millis(50),
            max_unreported: 10,
        })
        .on_store_error(OnStoreError::Cap(Quota::fixed_window(10, SECOND)))
        .shadow(),
    ];
    for (text, format) in [
        (TOML, Format::Toml),
        (YAML, Format::Yaml),
        (JSON, Format::Json),
    ] {
        let document = RuleDocument::parse(text, format, &bindings()).expect("valid");
        let rules = document.rules_at(START);
        let layer = RateLimitLayer::new(MemoryStore::new(), rules).expect("valid");
        let limiter = layer.limiter();
        let mut expected = code.to_vec();
        expected[0] = expected[0]
            .clone()
            .plan("override 1", Quota::gcra(500, SECOND).burst(1_000));
        assert_eq!(limiter.rules().given(), expected, "{format}");
        // Later neither the override nor the switch is in force.
        let november_30 = document.expires_after(START).expect("a switch");
        let december_1 = document.expires_after(november_30).expect("an override");
        assert_eq!(december_1 - november_30, DAY + DAY / 24, "{format}");
        assert_eq!(document.expires_after(december_1), None);
        let rules = document.rules_at(december_1);
        let layer = RateLimitLayer::new(MemoryStore::new(), rules).expect("valid");
        let limiter = layer.limiter();
        assert_eq!(limiter.rules().given()[0], code[0], "{format}");
        assert_eq!(
            limiter.rules().given()[1].quota().limit(),
            1_000,
            "{format}"
        );
    }
}

#[tokio::test]
async fn requests_are_counted_as_the_document_says() {
    let document = toml(TOML).expect("valid");
    let rules = || document.rules_at(START);
    // 50 units at two each are more than ten requests.
    assert_eq!(passing(rules(), || client("/search/a", "ann")).await, 10);
    let smaller = TOML
        .replace("burst 50", "burst 6")
        .replace("cost = 2", "cost = \"words\"");
    let smaller = toml(&smaller).expect("valid");
    let rules = || smaller.rules_at(START);
    assert_eq!(passing(rules(), || client("/search/a?x", "ann")).await, 6);
    assert_eq!(passing(rules(), || client("/search/a?xyz", "ann")).await, 2);
    // Another path or method, and an address that is exempt.
    assert_eq!(passing(rules(), || client("/other?xyz", "ann")).await, 10);
    let post = || request(Method::POST, "/search/a?xyz");
    assert_eq!(passing(rules(), post).await, 10);
    let internal = || {
        let mut request = client("/search/a?xyz", "ann");
        let peer: IpAddr = [10, 0, 0, 1].into();
        request.extensions_mut().insert(PeerAddr((peer, 1).into()));
        request
    };
    assert_eq!(passing(rules(), internal).await, 10);
    // Without a key: 401.
    assert_eq!(passing(rules(), || get("/search/a")).await, 0);
    // A plan, and a client's own limit.
    let planned = |plan| {
        move || {
            let mut request = client("/search/a?xyz", "ann");
            let (tenant, plan) = ("acme", Some(plan));
            request.extensions_mut().insert(Caller { tenant, plan });
            request
        }
    };
    assert_eq!(passing(rules(), planned("gold")).await, 10);
    assert_eq!(passing(rules(), planned("internal")).await, 10);
    assert_eq!(
        passing(rules(), || client("/search/a?xyz", "acme-key-1")).await,
        10
    );
}

fn one(by: &str, more: &str) -> String {
    format!(
        "version = 1\n[[rules]]\nname = \"rule\"\nlimit = \"fixed_window 2/min\"\nby = {by}\n{more}\n"
    )
}

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
    let cases: Vec<(&str, &str, Make)> = vec![
        ("\"client_ip\"", "\"192.0.2.1\"", Box::new(|| get("/a/b"))),
        (
            "\"header:x-api-key\"",
            "\"k 1\"",
            Box::new(with("x-api-key", "k 1")),
        ),
        (
            "\"cookie:session\"",
            "\"s-1\"",
            Box::new(with("cookie", "a=b; session=s-1")),
        ),
        ("\"query:q\"", "\"x y\"", Box::new(|| get("/a/b?q=x%20y"))),
        ("\"path\"", "\"/a/b\"", Box::new(|| get("/a/b?q=1"))),
        ("\"method\"", "\"GET\"", Box::new(|| get("/a/b"))),
        (
            "\"grpc_service\"",
            "\"weather.v1.Weather\"",
            Box::new(|| request(Method::POST, "/weather.v1.Weather/Current")),
        ),
        (
            "\"grpc_method\"",
            "\"/weather.v1.Weather/Current\"",
            Box::new(|| request(Method::POST, "/weather.v1.Weather/Current")),
        ),
        ("\"path:id\"", "\"b\"", Box::new(|| get("/a/b"))),
        ("\"tenant\"", "\"acme\"", Box::new(tenant)),
        (
            "[\"client_ip\", \"constant\", \"header:x-api-key\"]",
            "[\"192.0.2.1\", \"k\"]",
            Box::new(with("x-api-key", "k")),
        ),
    ];
    for (by, key, request) in cases {
        let when = if by.contains("path:") {
            "when = { path = \"/a/{id}\" }"
        } else {
            ""
        };
        let text = one(by, when);
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
async fn conditions_hold_as_they_are_written() {
    let post = || request(Method::POST, "/weather.v1.Weather/Current");
    let beta = |value: &'static str| {
        move || {
            let mut request = get("/a");
            request
                .headers_mut()
                .insert("x-beta", http::HeaderValue::from_static(value));
            request
        }
    };
    type Make = Box<dyn Fn() -> Request<String>>;
    let cases: Vec<(&str, Make, bool)> = vec![
        ("{ path = \"/a/{id}\" }", Box::new(|| get("/a/7")), true),
        ("{ path = \"/a/{id}\" }", Box::new(|| get("/a/7/x")), false),
        (
            "{ methods = [\"POST\", \"GET\"] }",
            Box::new(|| get("/")),
            true,
        ),
        ("{ methods = \"POST\" }", Box::new(|| get("/")), false),
        ("{ header = \"x-beta\" }", Box::new(beta("1")), true),
        ("{ header = \"x-beta\" }", Box::new(|| get("/a")), false),
        (
            "{ header = { name = \"x-beta\", equals = \"1\" } }",
            Box::new(beta("1")),
            true,
        ),
        (
            "{ header = { name = \"x-beta\", equals = \"1\" } }",
            Box::new(beta("2")),
            false,
        ),
        (
            "{ grpc_service = \"weather.v1.Weather\" }",
            Box::new(post),
            true,
        ),
        ("{ grpc_service = \"weather.v1\" }", Box::new(post), false),
        (
            "{ grpc_method = \"weather.v1.Weather/Current\" }",
            Box::new(post),
            true,
        ),
        (
            "{ grpc_method = \"weather.v1.Weather/Watch\" }",
            Box::new(post),
            false,
        ),
        (
            "{ client_in = [\"198.51.100.0/24\", \"192.0.2.0/24\"] }",
            Box::new(|| get("/")),
            true,
        ),
        (
            "{ client_in = \"198.51.100.0/24\" }",
            Box::new(|| get("/")),
            false,
        ),
        ("\"beta\"", Box::new(beta("1")), true),
        ("{ is = [\"beta\"] }", Box::new(|| get("/")), false),
        ("{ not = { path = \"/a\" } }", Box::new(|| get("/a")), false),
        ("{ not = { path = \"/a\" } }", Box::new(|| get("/b")), true),
        (
            "{ any = [{ path = \"/a\" }, { path = \"/b\" }] }",
            Box::new(|| get("/b")),
            true,
        ),
        (
            "{ any = [{ path = \"/a\" }, { path = \"/b\" }] }",
            Box::new(|| get("/c")),
            false,
        ),
        (
            "{ all = [{ path = \"/a\" }, \"beta\"] }",
            Box::new(beta("1")),
            true,
        ),
        (
            "{ path = \"/b\", is = \"beta\" }",
            Box::new(beta("1")),
            false,
        ),
    ];
    for (when, request, holds) in cases {
        let document = toml(&one("\"constant\"", &format!("when = {when}")));
        let document = document.unwrap_or_else(|error| panic!("{error}"));
        let counted = passing(document.rules(), &request).await == 2;
        assert_eq!(counted, holds, "{when}");
    }
}

#[tokio::test]
async fn of_a_group_only_the_most_specific_rule_counts() {
    let text = r#"
        version = 1
        rules = [
            { name = "everything", limit = "fixed_window 1/min", by = "constant" },
            { name = "reads", limit = "fixed_window 3/min", by = "constant", when = { path = "/api/{*rest}" } },
            { name = "writes", limit = "fixed_window 2/min", by = "constant", when = { path = "/api/{*rest}", methods = ["POST"] } },
            { name = "export", limit = "fixed_window 5/min", by = "constant", when = { path = "/api/export" } },
        ]
        groups = [{ name = "api", rules = ["everything", "writes", "export", "reads"] }]
    "#;
    let document = toml(text).unwrap_or_else(|error| panic!("{error}"));
    for (method, path, limit) in [
        (Method::GET, "/", 1),
        (Method::GET, "/api/x", 3),
        (Method::POST, "/api/x", 2),
        (Method::GET, "/api/export", 5),
        (Method::POST, "/api/export", 5),
    ] {
        let request = || request(method.clone(), path);
        assert_eq!(
            passing(document.rules(), request).await,
            limit,
            "{method} {path}"
        );
    }
    // A rule that is off is not there.
    let off = text.replace(
        "by = \"constant\", when = { path = \"/api/export\" }",
        "by = \"constant\", mode = \"off\", when = { path = \"/api/export\" }",
    );
    let document = toml(&off).expect("valid");
    assert_eq!(passing(document.rules(), || get("/api/export")).await, 3);
}

#[tokio::test]
async fn switches_take_precedence_until_they_expire() {
    let with = |switch: &str| {
        let text = one("\"constant\"", "").replace("2/min", "5/min");
        let text = format!(
            "{text}\n[[overrides]]\nrule = \"rule\"\nkey = \"x\"\nlimit = \"9/min\"\n[[switches]]\n{switch}\n"
        );
        toml(&text.replace("by = \"constant\"", "by = \"header:x-api-key\""))
    };
    let passing = async |switch: &str, name: &str| {
        let document = with(switch).unwrap_or_else(|error| panic!("{error}"));
        passing(document.rules_at(START), || client("/", name)).await
    };
    // Rounded up: 2.5 is 3, 4.5 is 5.
    assert_eq!(passing("rules = \"*\"\nlimit = \"50%\"", "ann").await, 3);
    assert_eq!(passing("rules = \"*\"\nlimit = \"50%\"", "x").await, 5);
    assert_eq!(
        passing("rules = \"rule\"\nlimit = \"0.1%\"", "ann").await,
        1
    );
    assert_eq!(
        passing("rules = [\"rule\"]\nlimit = \"off\"", "ann").await,
        10
    );
    assert_eq!(
        passing("rules = [\"rule\"]\nlimit = \"shadow\"", "ann").await,
        10
    );
    let expired = "rules = \"*\"\nlimit = \"off\"\nuntil = 2001-01-01T00:00:00Z";
    assert_eq!(passing(expired, "ann").await, 5);
}

#[test]
fn what_is_off_stays_off() {
    let text = one("\"constant\"", "mode = \"off\"");
    let text = format!("{text}\n[[switches]]\nrules = \"*\"\nlimit = \"shadow\"\n");
    let document = toml(&text).expect("valid");
    let [rule] = &document.limiter_rules()[..] else {
        panic!("one rule");
    };
    assert_eq!(*rule.mode(), tollgate_core::Mode::Off);
}

#[tokio::test]
async fn a_rollout_counts_a_part_of_the_clients_and_its_shadow_the_others() {
    for (others, rules_of_it) in [("off", 1), ("shadow", 2)] {
        let rollout = format!("rollout = {{ percent = 30, others = \"{others}\" }}");
        let document = toml(&one("\"header:x-api-key\"", &rollout)).expect("valid");
        let store = MemoryStore::builder()
            .clock(Clock::from(ManualClock::new(START)))
            .build();
        let layer = RateLimitLayer::new(store, document.rules()).expect("valid");
        assert_eq!(layer.limiter().rules().given().len(), rules_of_it);
        let mut limited = 0;
        for n in 0..200 {
            let name = format!("customer-{n}");
            match passing_through(&layer, || client("/", &name)).await {
                2 => limited += 1,
                10 => {}
                other => panic!("{other} of ten pass"),
            }
        }
        assert!((40..80).contains(&limited), "{others}: {limited}");
    }
}

#[test]
fn thousands_of_rules_with_tens_of_thousands_of_overrides_are_read() {
    use std::fmt::Write;
    let mut text = "version = 1\n".to_owned();
    for n in 0..2_000 {
        let _ = write!(
            text,
            "[[rules]]\nname = \"rule-{n}\"\nlimit = \"{}/min\"\nby = \"header:x-api-key\"\nwhen = {{ path = \"/r{n}\" }}\n",
            n + 1
        );
    }
    for n in 0..20_000 {
        let _ = write!(
            text,
            "[[overrides]]\nrule = \"rule-{}\"\nkey = \"client-{n}\"\nlimit = \"{}/min\"\n",
            n % 2_000,
            5 + n % 7
        );
    }
    let document = toml(&text).expect("valid");
    assert_eq!(document.rules().len(), 2_000);
    assert!(RuleSet::new(document.limiter_rules()).is_ok());
    assert_eq!(document.names().count(), 2_000);
}

#[test]
fn what_is_missing_is_a_setting_of_the_rule() {
    let rule = one("\"header:x-api-key\"", "missing = \"skip\"");
    let rules = toml(&rule).expect("valid").rules();
    let shown = format!("{:?}", rules[0]);
    assert!(shown.contains(&format!("{:?}", Missing::Skip)), "{shown}");
}

/// A text of all the characters that mean something, and of words that do.
fn garbage() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("version"),
        Just("rules"),
        Just("name"),
        Just("limit"),
        Just("by"),
        Just("when"),
        Just("overrides"),
        Just("[["),
        Just("]]"),
        Just("{"),
        Just("}"),
        Just("["),
        Just("]"),
        Just("="),
        Just(":"),
        Just("- "),
        Just("\n"),
        Just("\n  "),
        Just("\""),
        Just("'"),
        Just("100/min"),
        Just("1"),
        Just("&a "),
        Just("*a"),
        Just("<<"),
        Just("!!str "),
        Just("|\n"),
        Just("é"),
        Just("\u{0}"),
        Just("#"),
        Just(","),
        Just("true"),
        Just("2026-01-01T00:00:00Z"),
    ];
    proptest::collection::vec(word, 0..60).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_text_is_a_document_or_an_error(text in prop_oneof![garbage(), "\\PC{0,200}"]) {
        for format in [Format::Toml, Format::Yaml, Format::Json] {
            if let Err(error) = RuleDocument::parse(&text, format, &bindings()) {
                prop_assert!(!error.mistakes().is_empty());
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }

    #[test]
    fn a_document_with_one_part_cut_out_is_a_document_or_an_error(
        at in 0..TOML.len(), len in 0_usize..40, insert in "[\\[\\]{}\"=a0 \\n]{0,3}",
    ) {
        for (text, format) in [(TOML, Format::Toml), (YAML, Format::Yaml), (JSON, Format::Json)] {
            let at = at.min(text.len());
            let end = (at + len).min(text.len());
            let cut = format!("{}{insert}{}", &text[..at], &text[end..]);
            if let Err(error) = RuleDocument::parse(&cut, format, &bindings()) {
                let lines = cut.split('\n').count();
                for mistake in error.mistakes() {
                    prop_assert!((1..=lines).contains(&mistake.line()), "{error}");
                    prop_assert!(mistake.column() >= 1 && !mistake.message().is_empty());
                }
            }
        }
    }
}

#[test]
fn bombs_deep_nesting_and_large_documents_are_refused_or_read_in_bounds() {
    let laughs = {
        let mut text = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for (name, before) in ["b", "c", "d", "e", "f", "g", "h", "i"]
            .iter()
            .zip("abcdefgh".chars())
        {
            let list = vec![format!("*{before}"); 9].join(", ");
            text.push_str(&format!("{name}: &{name} [{list}]\n"));
        }
        text
    };
    let deep_list = format!("rules: {}{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep_table = format!("rules = {}1{}", "{a=".repeat(100_000), "}".repeat(100_000));
    let deep_json = "{\"a\":".repeat(100_000);
    let deep_not = format!(
        "version: 1\nrules: [{{ name: a, limit: 1/s, by: constant, when: {}path: /a{} }}]",
        "{ not: ".repeat(60),
        " }".repeat(60)
    );
    let long = format!("version = 1\nrules = \"{}\"", "x".repeat(10 << 20));
    let many = format!("version = 1\n{}", "[[rules]]\n".repeat(20_000));
    for (text, format) in [
        (laughs, Format::Yaml),
        (deep_list, Format::Yaml),
        (deep_table, Format::Toml),
        (deep_json, Format::Json),
        (deep_not, Format::Yaml),
        (long, Format::Toml),
        (many, Format::Toml),
    ] {
        let error = RuleDocument::parse(&text, format, &bindings()).expect_err("it is no document");
        let shown = error.to_string();
        assert!(shown.len() < 100_000, "{} bytes", shown.len());
    }
}
