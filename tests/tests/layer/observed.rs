//! What operators see: metrics and events.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    sync::{Arc, Mutex},
};

use axum::Router;
use http::{Request, StatusCode};
use tollgate::{
    Admission, Key, MINUTE, Missing, OnStoreError, Quota, RateLimitLayer, Rule, SECOND,
    key::{KeyExtractor as _, client_ip, computed, constant, header, look_up, method},
};
use tollgate_conformance::SwitchedStore;
use tollgate_tests::{
    app::{all, app, app_on, behind, get, layer, per_minute, send, status, still, text},
    counted::{Counted, Metrics},
    events::Events,
};
use tracing::{Instrument as _, Level, field::Empty};

async fn send_times(app: &Router, times: usize) {
    for _ in 0..times {
        send(app, get("/")).await;
    }
}

/// Asserts what was counted as requests of a rule, and that nothing else was.
#[track_caller]
fn requests<const N: usize>(counted: &Counted, rule: &str, expected: [(&str, u64); N]) {
    let decisions = [
        "allowed",
        "withheld",
        "degraded",
        "denied",
        "shadow_allowed",
        "shadow_denied",
        "skipped",
    ];
    let reported: BTreeMap<_, _> = decisions
        .into_iter()
        .map(|decision| (decision, counted.requests(rule, decision)))
        .filter(|(_, count)| *count > 0)
        .collect();
    assert_eq!(reported, BTreeMap::from(expected), "{rule}");
}

#[tokio::test]
async fn the_type_of_subject_is_what_the_key_says_of_itself_or_the_rule() {
    let metrics = Metrics::record();
    let app = app([
        per_minute("address", 9).by(client_ip()),
        per_minute("both", 9).by((header("x-api-key"), method())),
        per_minute("either", 9).by(header("x-api-key").or(constant("all"))),
        per_minute("own", 9).by(computed(|head| Some(Key::of(head.uri.path())))),
        per_minute("said", 9)
            .subject_type("tenant\n\"")
            .by(header("x-api-key")),
    ]);
    let request = Request::get("/").header("x-api-key", "acme");
    let request = request.extension(axum::extract::ConnectInfo(std::net::SocketAddr::from((
        [192, 0, 2, 7],
        4711,
    ))));
    send(
        &app,
        request.body(axum::body::Body::empty()).expect("a request"),
    )
    .await;
    let counted = metrics.counted();
    for (rule, subject) in [
        ("address", "ip"),
        ("both", "header+method"),
        ("either", "header|constant"),
        ("own", "custom"),
        ("said", "tenant\u{fffd}\""),
    ] {
        let labels = [
            ("rule", rule),
            ("subject_type", subject),
            ("decision", "allowed"),
        ];
        let names: Vec<_> = counted.names().filter(|name| name.contains(rule)).collect();
        assert_eq!(
            counted.sum("tollgate_requests_total", &labels),
            1,
            "{rule}: {names:?}"
        );
    }
}

#[tokio::test]
async fn requests_and_units_are_counted_by_decision() {
    let metrics = Metrics::record();
    let rules = [
        all(per_minute("wide", 100)),
        all(per_minute("tight", 10)).cost_by(|_| 4),
    ];
    let app = app(rules);
    send_times(&app, 3).await;
    let counted = metrics.counted();
    requests(&counted, "wide", [("allowed", 2), ("withheld", 1)]);
    requests(&counted, "tight", [("allowed", 2), ("denied", 1)]);
    for (rule, decision, units) in [
        ("wide", "allowed", 2),
        ("wide", "denied", 0),
        ("tight", "allowed", 8),
        ("tight", "denied", 4),
    ] {
        let labels = [("rule", rule), ("decision", decision)];
        let counted = counted.sum("tollgate_cost_units_total", &labels);
        assert_eq!(counted, units, "{rule} {decision}");
    }
    for (name, units) in [
        ("tollgate_near_limit_total{rule=wide}", 0),
        ("tollgate_near_limit_total{rule=tight}", 1),
    ] {
        assert_eq!(counted.count(name), units, "{name}");
    }
    let waits = counted.recorded("tollgate_retry_after_seconds{rule=tight}");
    assert_eq!(waits, [60.0]);
    assert!(
        counted
            .recorded("tollgate_retry_after_seconds{rule=wide}")
            .is_empty()
    );
    let durations = counted.recorded("tollgate_check_duration_seconds{}");
    // Of the first and each sixteenth.
    assert_eq!(durations.len(), 1);
}

#[tokio::test]
async fn skipped_rules_are_counted_by_reason() {
    let metrics = Metrics::record();
    let rules = [
        all(per_minute("exempt", 9)).exempt(|head| head.uri.path() == "/exempt"),
        all(Rule::new("free", Quota::unlimited())),
        per_minute("optional", 9)
            .by(header("x-api-key"))
            .when_missing(Missing::Skip),
        all(per_minute("elsewhere", 9)).when(|_| false),
        all(per_minute("off", 9).off()),
        per_minute("strict", 9)
            .by(header("x-tenant"))
            .when_missing(Missing::Reject(StatusCode::UNAUTHORIZED)),
    ];
    let app = app(rules);
    send(&app, get("/exempt").header("x-tenant", "t")).await;
    assert_eq!(status(&app, get("/")).await, 401);
    let counted = metrics.counted();
    requests(&counted, "exempt", [("skipped", 1)]);
    requests(&counted, "free", [("skipped", 2)]);
    requests(&counted, "optional", [("skipped", 2)]);
    requests(&counted, "elsewhere", []);
    requests(&counted, "off", []);
    requests(&counted, "strict", [("allowed", 1), ("denied", 1)]);
    let no_key = [("rule", "strict"), ("reason", "no_key"), ("source", "none")];
    assert_eq!(counted.sum("tollgate_requests_total", &no_key), 1);
}

#[tokio::test]
async fn preflights_and_mistakes_of_the_set_up_are_counted() {
    let metrics = Metrics::record();
    let app = app([per_minute("per-ip", 9).by(client_ip())]);
    let preflight = Request::options("/")
        .header("origin", "https://example.org")
        .header("access-control-request-method", "POST");
    send(&app, preflight).await;
    for _ in 0..2 {
        send(&app, Request::get("/")).await;
    }
    let counted = metrics.counted();
    assert_eq!(counted.count("tollgate_preflights_total{}"), 1);
    assert_eq!(
        counted.count("tollgate_misconfigured_total{rule=per-ip}"),
        2
    );
    requests(&counted, "per-ip", [("allowed", 2)]);
}

#[tokio::test]
async fn requests_without_a_key_are_counted_whatever_becomes_of_them() {
    let metrics = Metrics::record();
    let by_key = |name, missing| {
        let rule = per_minute(name, 9).by(header("x-api-key"));
        rule.when_missing(missing)
    };
    let rules = [
        by_key("shared", Missing::Shared),
        by_key("skipped", Missing::Skip),
        per_minute("misconfigured", 9).by(client_ip()),
        by_key("rejected", Missing::Reject(StatusCode::UNAUTHORIZED)),
    ];
    let app = app(rules);
    for request in [
        Request::get("/"),
        Request::get("/").header("x-api-key", ""),
        Request::get("/").header("x-api-key", "k"),
        get("/"),
    ] {
        send(&app, request).await;
    }
    let counted = metrics.counted();
    for rule in ["shared", "skipped", "misconfigured", "rejected"] {
        let name = format!("tollgate_keyless_requests_total{{rule={rule}}}");
        assert_eq!(counted.count(&name), 3, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn failed_look_ups_are_counted_by_outcome() {
    let metrics = Metrics::record();
    let lost = |name, answer| {
        let rule = per_minute(name, 9).on_store_error(answer);
        rule.by(look_up(|_| std::future::pending::<Option<String>>()))
    };
    let rules = [
        lost("usual", OnStoreError::LocalShare),
        lost("open", OnStoreError::Allow),
        lost("closed", OnStoreError::Deny),
    ];
    let app = app(rules);
    send_times(&app, 2).await;
    let counted = metrics.counted();
    for rule in ["usual", "open", "closed"] {
        let name = format!("tollgate_look_up_failures_total{{rule={rule}}}");
        assert_eq!(counted.count(&name), 2, "{name}");
        let keyless = format!("tollgate_keyless_requests_total{{rule={rule}}}");
        assert_eq!(counted.count(&keyless), 0, "they may well have one");
    }
    requests(&counted, "open", [("skipped", 2)]);
    requests(&counted, "closed", [("denied", 2)]);
    let failed = [("rule", "closed"), ("reason", "store_failed")];
    assert_eq!(counted.sum("tollgate_requests_total", &failed), 2);
}

#[tokio::test]
async fn the_counters_of_a_rule_begin_at_zero_with_its_first_request() {
    let metrics = Metrics::record();
    let unused = all(per_minute("unused", 9)).when(|_| false);
    let app = app([all(per_minute("used", 9)), unused]);
    send(&app, "/").await;
    let counted = metrics.counted();
    for name in [
        "keyless_requests",
        "look_up_failures",
        "refunded_requests",
        "misconfigured",
    ] {
        for (rule, begins) in [("used", true), ("unused", false)] {
            let series = format!("tollgate_{name}_total{{rule={rule}}}");
            let begun = counted.names().any(|name| *name == series);
            assert_eq!(begun, begins, "{series}");
        }
    }
}

/// The warnings after these requests, in words of each.
async fn warned(app: &Router, requests: usize, words: &[&str]) {
    let events = Events::listen();
    send_times(app, requests).await;
    events.one(Level::WARN, words);
}

#[tokio::test]
async fn the_first_unknown_plan_is_reported() {
    let rule = all(per_minute("planned", 9).plan("gold", Quota::fixed_window(99, MINUTE)));
    let rule = rule.plan_by(|head| match head.uri.path() {
        "/" => Some("golld"),
        "/silver" => Some("silver"),
        _ => None,
    });
    let app = app([rule]);
    let events = Events::listen();
    send(&app, get("/none")).await;
    events.none();
    warned(&app, 3, &["planned", "golld", "\"gold\"", "own quota"]).await;
    let events = Events::listen();
    send(&app, get("/silver")).await;
    events.none();
    // A client may have chosen it: no more than the longest name is reported.
    let rule = all(per_minute("long", 9).plan("gold", Quota::fixed_window(99, MINUTE)));
    let app = self::app([rule.plan_by(|head| head.uri.query().map(str::to_owned))]);
    let events = Events::listen();
    send(&app, get(&format!("/?{}z", "x".repeat(64)))).await;
    let reported = events.at(Level::WARN).concat();
    assert!(
        reported.contains(&"x".repeat(64)) && !reported.contains("xz"),
        "{reported}"
    );
}

#[tokio::test]
async fn a_computed_quota_that_cannot_be_counted_is_reported_once() {
    let rule = all(per_minute("computed", 9)).quota_by(|head| match head.uri.path() {
        "/" => Some(Quota::gcra(99, MINUTE)),
        "/hour" => Some(Quota::fixed_window(99, 60 * MINUTE)),
        _ => Some(Quota::fixed_window(99, MINUTE)),
    });
    let app = app([rule]);
    let events = Events::listen();
    send(&app, get("/counted")).await;
    events.none();
    send_times(&app, 3).await;
    let words = ["computed", "gcra", "fixed_window", "own quota applies"];
    events.one(Level::ERROR, &words);
    // So is another mistake.
    let events = Events::listen();
    for _ in 0..3 {
        send(&app, get("/hour")).await;
    }
    events.one(Level::ERROR, &["computed", "3600s", "own quota applies"]);
}

#[tokio::test]
async fn a_computed_cost_that_never_fits_is_reported_once() {
    for (cost, words) in [
        (6, "returns 6 units"),
        (u64::MAX, "returns more than 999999999999999 units"),
    ] {
        let rule = all(Rule::new("dear", Quota::gcra(100, MINUTE).burst(5)))
            .cost_by(move |head| if head.uri.path() == "/" { cost } else { 5 });
        let layer = layer([rule]);
        let events = Events::listen();
        // To look at it is no request.
        let (head, ()) = get("/").body(()).expect("a request").into_parts();
        layer.inspection().effect(0, &head).await;
        let app = behind(layer);
        send(&app, get("/fits")).await;
        events.none();
        // A balance may pay it.
        let paid = all(per_minute("paid", 5).credits()).cost_by(|_| 6);
        send(&self::app([paid]), "/").await;
        assert!(events.at(Level::WARN).is_empty());
        warned(&app, 3, &["dear", words, "at most 5", "cap the cost"]).await;
    }
}

#[tokio::test]
async fn shadows_and_thresholds_are_counted_and_compared_with_enforced_rules() {
    let metrics = Metrics::record();
    let rules = [
        all(per_minute("old", 3).threshold("soft", Quota::fixed_window(2, MINUTE))),
        all(per_minute("narrow", 1).shadow()),
        all(per_minute("wide", 9).shadow()),
    ];
    let app = app(rules);
    send_times(&app, 5).await;
    let counted = metrics.counted();
    requests(&counted, "old", [("allowed", 3), ("denied", 2)]);
    requests(
        &counted,
        "narrow",
        [("shadow_allowed", 1), ("shadow_denied", 4)],
    );
    requests(&counted, "wide", [("shadow_allowed", 5)]);
    requests(
        &counted,
        "soft",
        [("shadow_allowed", 2), ("shadow_denied", 3)],
    );
    for (rule, enforced, differences) in [
        ("narrow", "allowed", 2),
        ("narrow", "denied", 0),
        ("wide", "allowed", 0),
        ("wide", "denied", 2),
        ("soft", "allowed", 1),
    ] {
        let name = format!("tollgate_shadow_differences_total{{rule={rule},enforced={enforced}}}");
        assert_eq!(counted.count(&name), differences, "{name}");
    }
}

#[tokio::test]
async fn states_that_a_flood_evicts_are_counted() {
    let metrics = Metrics::record();
    let (_, clock) = still();
    let store = tollgate::MemoryStore::builder()
        .clock(&clock)
        .bytes_per_rule(1)
        .build();
    let app = app_on(store, [per_minute("per-key", 9).by(header("x-api-key"))]);
    for key in 0..5_000 {
        send(&app, get("/").header("x-api-key", key)).await;
    }
    // Also without a request of the next second.
    let counted = metrics.counted();
    let evicted = counted.count("tollgate_evicted_live_total{rule=per-key}");
    clock.advance(SECOND);
    send(&app, get("/").header("x-api-key", "last")).await;
    let counted = metrics.counted();
    let tracked = counted.gauge("tollgate_tracked_keys{rule=per-key}");
    assert!(evicted > 1_000 && tracked < 5_000.0, "{evicted} {tracked}");
    assert!(counted.gauge("tollgate_tracked_bytes{rule=per-key}") > tracked);
}

#[tokio::test]
async fn fallback_decisions_are_counted_by_answer_and_in_units() {
    let metrics = Metrics::record();
    let store = SwitchedStore::at_once(still().0);
    let rule = |name, answer| {
        let rule = per_minute(name, 10).on_store_error(answer);
        all(rule).cost_by(|_| 4)
    };
    let rules = [
        ("share", OnStoreError::LocalShare),
        ("cap", OnStoreError::Cap(Quota::fixed_window(3, MINUTE))),
        ("open", OnStoreError::Allow),
        ("closed", OnStoreError::Deny),
    ];
    for fails in [false, true] {
        store.switch(!fails);
        for (name, answer) in rules {
            send_times(&app_on(store.clone(), [rule(name, answer)]), 3).await;
        }
    }
    let counted = metrics.counted();
    for (rule, answer, times, units) in [
        ("share", "allowed", 2, 8),
        ("share", "denied", 1, 8),
        // Four units are above the cap and not above the quota.
        ("cap", "refused", 3, 0),
        ("open", "passed", 3, 12),
        ("closed", "refused", 3, 0),
    ] {
        let policy = match rule {
            "share" => "local_share",
            "open" => "allow",
            "closed" => "deny",
            other => other,
        };
        let name = format!(
            "tollgate_fallback_decisions_total{{rule={rule},answer={answer},policy={policy}}}"
        );
        assert_eq!(counted.count(&name), times, "{name}");
        let name = format!("tollgate_units_admitted_in_fallback_total{{rule={rule}}}");
        assert_eq!(counted.count(&name), units, "{name}");
        let name = format!("tollgate_store_failures_total{{rule={rule}}}");
        assert_eq!(counted.count(&name), 3, "{name}");
    }
    let failed = [("reason", "store_failed"), ("source", "fallback")];
    let failed = |rule| {
        counted.sum(
            "tollgate_requests_total",
            &[&[("rule", rule)], &failed[..]].concat(),
        )
    };
    assert_eq!(
        (failed("open"), failed("closed"), failed("share")),
        (3, 3, 0)
    );
}

/// What a client has sent, in ways that a layer could tell it.
const SECRETS: [&str; 4] = ["k-4711", "192.0.2.1", "tenant-7", "/private"];

#[tokio::test]
async fn labels_and_events_contain_nothing_about_the_client() {
    let metrics = Metrics::record();
    let events = Events::listen();
    let store = SwitchedStore::at_once(still().0);
    let rules = [
        per_minute("per-key", 1).by(header("x-api-key")),
        per_minute("per-ip", 1).by(client_ip()),
        per_minute("per-tenant", 1).by(look_up(|_| async { Some("tenant-7") })),
        per_minute("per-peer", 9)
            .by(header("x-absent"))
            .when_missing(Missing::Skip),
        per_minute("strict", 9)
            .by(header("x-strict"))
            .when_missing(Missing::Reject(StatusCode::UNAUTHORIZED))
            .when(|head| head.method == http::Method::POST),
    ];
    let layer = RateLimitLayer::new(store.clone(), rules)
        .unwrap()
        .attach_decision();
    let shown = format!("{layer:?}");
    let app = Router::new()
        .fallback(|admission: Admission| async move { format!("{admission:?}") })
        .layer(layer);
    let mut bodies = shown;
    for fails in [false, true] {
        store.switch(!fails);
        for method in ["GET", "GET", "POST"] {
            let request = get("/private?key=k-4711")
                .method(method)
                .header("x-api-key", "k-4711");
            let response = send(&app, request).await;
            bodies += &format!("{:?}", response.headers());
            bodies += &format!("{:?}", response.extensions().get::<tollgate::Decision>());
            bodies += &text(response).await;
        }
    }
    let reported = events.recorded();
    assert!(reported.len() > 5, "{reported:?}");
    let counted = metrics.counted();
    for secret in SECRETS {
        let event = reported.iter().find(|event| event.fields.contains(secret));
        assert!(event.is_none(), "{event:?}");
        let metric = counted.names().find(|name| name.contains(secret));
        assert_eq!(metric, None);
        assert!(!bodies.contains(secret), "{bodies}");
    }
}

#[tokio::test]
async fn a_denial_is_a_debug_event_per_denying_rule_with_the_pattern_of_the_route() {
    let events = Events::listen();
    let rules = [
        all(per_minute("wide", 9)),
        all(per_minute("tight", 1)
            .threshold("soft", Quota::fixed_window(1, MINUTE))
            .label(|_| "acme".to_owned())),
        all(per_minute("narrow", 1).shadow()),
    ];
    let app = Router::new()
        .route("/items/{id}", axum::routing::get(|| async {}))
        .layer(layer(rules));
    send(&app, get("/items/4711")).await;
    events.none();
    send(&app, get("/items/4711")).await;
    let words = [
        "request denied",
        "rule=\"tight\"",
        "route=\"/items/{id}\"",
        "retry_after_ms=60000",
        "reason=\"quota\"",
        "subject_type=\"constant\"",
        "tenant=\"acme\"",
    ];
    events.one(Level::DEBUG, &words);
    assert_eq!(events.recorded().len(), 1);
    assert!(!events.recorded()[0].fields.contains("4711"));
}

#[tokio::test]
async fn an_outage_does_not_drown_the_log() {
    let events = Events::listen();
    let store = SwitchedStore::at_once(still().0);
    store.switch(false);
    let app = app_on(store, [all(per_minute("usual", 1_000))]);
    send_times(&app, 500).await;
    // Once a second, however many that were.
    let warnings = events.at(Level::WARN).len();
    assert!((1..250).contains(&warnings), "{warnings}");
    // But each request that it let pass, for those who ask for all.
    let passed = events.at(Level::DEBUG);
    assert_eq!(passed.len(), 500);
    let words = [
        "request passed while the store failed",
        "rule=\"usual\"",
        "answer=\"allowed\"",
    ];
    assert!(
        words.iter().all(|word| passed[0].contains(word)),
        "{}",
        passed[0]
    );
}

/// A log that a test reads.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("whole").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn what_was_decided_is_on_the_span_of_the_request_if_it_has_the_fields() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _subscriber = tracing::subscriber::set_default(subscriber);
    let app = app([all(per_minute("tight", 1))]);
    for _ in 0..2 {
        let span = tracing::info_span!(
            "request",
            tollgate.decision = Empty,
            tollgate.rule = Empty,
            tollgate.reason = Empty
        );
        send(&app, get("/")).instrument(span.clone()).await;
        span.in_scope(|| tracing::info!("is over"));
    }
    let log = log.0.lock().expect("whole").clone();
    let log = String::from_utf8(log).expect("text");
    for said in [
        "request{tollgate.decision=\"allowed\"}",
        "request{tollgate.decision=\"denied\" tollgate.rule=\"tight\" tollgate.reason=\"quota\"}",
    ] {
        assert_eq!(log.matches(said).count(), 1, "{log}");
    }
}
