//! Which rules apply to a request, and what it costs.

use std::sync::{Arc, Mutex};

use axum::{Router, extract::MatchedPath, routing};
use http::{Method, Request};
use tollgate::{
    Admission, Decision, Head, Key, MINUTE, MemoryStore, Quota, RateLimitLayer, RequestRule, Rule,
    condition::{any_of, method_in, path, path_under},
    decision::Outcome,
    header::HeaderStyle,
    key,
    key::header,
};
use tollgate_conformance::SwitchedStore;
use tollgate_tests::app::{
    all, behind, field, get, layer, per_minute, send, status, still, stores, text,
};

fn app(rules: impl IntoIterator<Item = RequestRule>) -> Router {
    behind(layer(rules).attach_decision())
}

/// The names of the rules that a request counted against, in order.
async fn counted(app: &Router, request: impl tollgate_tests::app::Sent) -> Vec<String> {
    let answer = send(app, request).await;
    let reported = field(&answer, "ratelimit").split(", ");
    let names = reported.filter_map(|item| Some(item.split('"').nth(1)?.to_owned()));
    names.collect()
}

#[tokio::test]
async fn of_many_rules_on_paths_those_of_a_request_apply_in_their_order() {
    let rule =
        |name: String| Rule::new(name, Quota::fixed_window(9, MINUTE)).by(key::constant("all"));
    let mut rules = Vec::new();
    for n in 0..20 {
        let path = path(&format!("/r{n}/{{id}}"));
        rules.push(rule(format!("path-{n}")).when(path.expect("a pattern")));
    }
    let deletes = rule("deletes".into()).when(method_in([Method::DELETE]));
    rules.insert(10, deletes);
    rules.push(rule("nested".into()).when(path("/outer/inner/{*rest}").expect("a pattern")));
    rules.push(rule("under".into()).when(path_under("/outer/inner")));
    let either = any_of(path_under("/r7"), path_under("/outer/inner/deep"));
    rules.push(rule("either".into()).when(either));
    let off = all(per_minute("off", 9).off());
    rules.push(off.when(path_under("/r3")));
    let is_route = |head: &Head<'_>| {
        let route = head.extensions.get::<MatchedPath>();
        route.is_some_and(|it| it.as_str() == "/r3/{id}")
    };
    rules.push(rule("route".into()).when(is_route));
    rules.push(rule("all".into()));
    let layer = layer(rules);
    let handler = || routing::any(|| async {});
    let inner = Router::new().route("/inner/{*rest}", handler());
    let routed = Router::new()
        .route("/r3/{id}", handler())
        .route("/r3/new", handler())
        .route("/r7/{id}", handler())
        .nest("/outer", inner.layer(layer.clone()));
    let app = routed.route_layer(layer);
    let delete = get("/r3/1").method(Method::DELETE);
    assert_eq!(counted(&app, "/r3/1").await, ["path-3", "route", "all"]);
    assert_eq!(counted(&app, "/r3/new").await, ["path-3", "all"]);
    let deleted = ["path-3", "deletes", "route", "all"];
    assert_eq!(counted(&app, delete).await, deleted);
    assert_eq!(counted(&app, "/r7/1").await, ["path-7", "either", "all"]);
    // The inner layer counts by the path that the client has sent.
    let nested = counted(&app, "/outer/inner/deep/x").await;
    for name in ["nested", "under", "either", "all"] {
        assert!(
            nested.iter().any(|counted| counted == name),
            "{name}: {nested:?}"
        );
    }
}

#[tokio::test]
async fn either_exemption_is_enough() {
    let rule = all(per_minute("one", 1))
        .exempt(|head| head.uri.path() == "/healthz")
        .exempt(|head| head.headers.contains_key("x-internal"));
    let app = app([rule]);
    let internal = || get("/").header("x-internal", "1");
    for _ in 0..2 {
        assert_eq!(status(&app, "/healthz").await, 200);
        assert_eq!(status(&app, internal()).await, 200);
    }
    assert_eq!(status(&app, "/").await, 200);
    assert_eq!(status(&app, "/").await, 429);
    assert_eq!(status(&app, "/healthz").await, 200);
}

#[tokio::test]
async fn an_outer_middleware_selects_the_plan() {
    let rule = all(per_minute("calls", 1)
        .plan("gold", Quota::fixed_window(3, MINUTE))
        .plan("staff", Quota::unlimited()))
    .plan_by(|head| head.extensions.get::<&'static str>().copied());
    let app = app([rule]);
    let with = |plan: &'static str| get("/").extension(plan);
    let gold = send(&app, with("gold")).await;
    assert_eq!(field(&gold, "ratelimit"), r#""calls";r=2;t=60"#);
    assert_eq!(field(&gold, "ratelimit-policy"), r#""calls";q=3;w=60"#);
    // What was used stays used: under the rule's own quota nothing is left, nor for a plan that is none.
    assert_eq!(status(&app, "/").await, 429);
    assert_eq!(send(&app, with("silver")).await.status(), 429);
    let staff = send(&app, with("staff")).await;
    assert_eq!(
        (staff.status().as_u16(), field(&staff, "ratelimit")),
        (200, "")
    );
    assert_eq!(send(&app, with("gold")).await.status(), 200);
}

#[tokio::test]
async fn a_quota_is_computed_for_each_request() {
    let rule = || {
        all(per_minute("calls", 1)).quota_by(|head| {
            let per_minute = *head.extensions.get::<u64>()?;
            Some(Quota::fixed_window(per_minute, MINUTE))
        })
    };
    let with = |limit: u64| get("/").extension(limit);
    let app_with = |style| behind(layer([rule()]).headers(style).unwrap());
    let app = app_with(HeaderStyle::DRAFT_11);
    let three = send(&app, with(3)).await;
    assert_eq!(field(&three, "ratelimit"), r#""calls";r=2;t=60"#);
    assert_eq!(field(&three, "ratelimit-policy"), r#""calls";q=3;w=60"#);
    let nine = send(&app, with(9)).await;
    assert_eq!(field(&nine, "ratelimit"), r#""calls";r=7;t=60"#);
    // Two are used, whatever the quota: the rule's own is used up, and so is one of two.
    assert_eq!(status(&app, "/").await, 429);
    let denied = send(&app, with(2)).await;
    assert_eq!(field(&denied, "ratelimit-policy"), r#""calls";q=2;w=60"#);
    let denied = text(denied).await;
    assert!(denied.contains("allows 2 requests per 60 s"), "{denied}");
    assert_eq!(send(&app, with(3)).await.status(), 200);
    // As 0 in text, it is none and not the rule's own.
    let suspended = send(&app, with(0)).await;
    assert_eq!(field(&suspended, "retry-after"), "");
    let suspended = text(suspended).await;
    assert!(suspended.contains("blocked"), "{suspended}");
    let grpc = with(3).method(Method::POST);
    let denied = send(&app, grpc.header("content-type", "application/grpc")).await;
    assert_eq!(field(&denied, "grpc-status"), "8");
    let app = app_with(HeaderStyle::DRAFT_7);
    let three = send(&app, with(3)).await;
    assert_eq!(field(&three, "ratelimit-policy"), "3;w=60");
}

#[tokio::test]
async fn clients_read_what_a_rule_counts() {
    let api = || Rule::new("api", Quota::fixed_window(10, MINUTE));
    let cases = [
        (all(api()), "requests", ""),
        (all(api().cost(10)), "units", r#"qu="units";"#),
        (all(api()).cost_by(|_| 10), "units", r#"qu="units";"#),
        (
            all(api()).cost_by_response(|_| None),
            "units",
            r#"qu="units";"#,
        ),
        (
            all(api().cost(10).unit("tokens")),
            "tokens",
            r#"qu="tokens";"#,
        ),
        (all(api().unit("requests")).cost_by(|_| 10), "requests", ""),
    ];
    for (rule, unit, qu) in cases {
        let app = app([rule]);
        let first = send(&app, "/").await;
        let policy = format!(r#""api";q=10;{qu}w=60"#);
        assert_eq!(field(&first, "ratelimit-policy"), policy);
        while status(&app, "/").await == 200 {}
        let denied = text(send(&app, "/").await).await;
        assert!(
            denied.contains(&format!("allows 10 {unit} per 60 s.")),
            "{denied}"
        );
        let call = Request::post("/a.B/C").header("content-type", "application/grpc");
        let denied = send(&app, call).await;
        let status = tonic::Status::from_header_map(denied.headers()).expect("a status");
        let details = String::from_utf8_lossy(status.details()).into_owned();
        assert!(
            details.contains(&format!("allows 10 {unit} per 60 s.")),
            "{details}"
        );
    }
    for unit in ["", "2 tokens", "größe", "a\"b", "to\nkens"] {
        let error = RateLimitLayer::new(MemoryStore::new(), [all(api().unit(unit))]);
        let error = error.expect_err("no word").to_string();
        assert!(error.contains("plural"), "{error}");
    }
}

#[tokio::test]
async fn a_computed_cost_is_taken() {
    let rule = all(per_minute("units", 10)).cost_by(|head| {
        let query = head.uri.query().unwrap_or("1");
        query.parse().unwrap_or(1)
    });
    let app = app([rule]);
    assert_eq!(
        field(&send(&app, "/?7").await, "ratelimit"),
        r#""units";r=3;t=60"#
    );
    let denied = send(&app, "/?4").await;
    assert_eq!(denied.status(), 429);
    // What is really left, so that a client knows it may ask for less.
    assert_eq!(field(&denied, "ratelimit"), r#""units";r=3;t=60"#);
    assert_eq!(status(&app, "/?3").await, 200);
    // Nothing is left, and a request that costs nothing passes.
    let free = send(&app, "/?0").await;
    assert_eq!(free.status(), 200);
    assert_eq!(field(&free, "ratelimit"), r#""units";r=0;t=60"#);
}

#[tokio::test]
async fn an_unlimited_plan_calls_no_store_and_writes_no_field() {
    let store = SwitchedStore::at_once(still().0);
    let rules = [
        all(Rule::new("free", Quota::unlimited())),
        all(per_minute("off", 1).off()),
        all(per_minute("elsewhere", 1)).when(|_| false),
    ];
    let app = behind(RateLimitLayer::new(store.clone(), rules).unwrap());
    for _ in 0..3 {
        let answer = send(&app, "/").await;
        assert_eq!(
            (answer.status().as_u16(), field(&answer, "ratelimit")),
            (200, "")
        );
    }
    assert_eq!(store.calls(), 0);
}

#[tokio::test]
async fn shadows_and_thresholds_are_only_in_the_admission() {
    let rules = [
        all(per_minute("three", 3).threshold("three-soft", Quota::fixed_window(1, MINUTE))),
        all(per_minute("new", 1).shadow()),
    ];
    let layer = layer(rules).attach_decision();
    let handler = |admission: Admission| async move {
        let reported = admission.verdicts().map(|verdict| {
            let outcome = match verdict.outcome() {
                Outcome::Allow => "allow",
                _ => "deny",
            };
            format!("{} {outcome}", verdict.name())
        });
        reported.collect::<Vec<_>>().join(", ")
    };
    let app = Router::new().fallback(handler).layer(layer);
    let first = send(&app, "/").await;
    assert_eq!(field(&first, "ratelimit"), r#""three";r=2;t=60"#);
    assert_eq!(field(&first, "ratelimit-policy"), r#""three";q=3;w=60"#);
    assert_eq!(
        text(first).await,
        "three allow, new allow, three-soft allow"
    );
    let second = send(&app, "/").await;
    assert_eq!(field(&second, "ratelimit"), r#""three";r=1;t=60"#);
    assert_eq!(field(&second, "retry-after"), "");
    assert_eq!(text(second).await, "three allow, new deny, three-soft deny");
    send(&app, "/").await;
    let denied = send(&app, "/").await;
    assert_eq!(field(&denied, "ratelimit"), r#""three";r=0;t=60"#);
    let body = text(denied).await;
    assert!(!body.contains("new") && !body.contains("soft"), "{body}");
}

#[tokio::test]
async fn a_rule_gets_its_own_denials_alone() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let recording = |name: &'static str, limit| {
        let seen = Arc::clone(&seen);
        (
            per_minute(name, limit),
            move |head: &Head<'_>, _: &Key, _: &Decision| {
                let mut seen = seen.lock().unwrap();
                seen.push(format!("{name} {}", head.uri.path()));
            },
        )
    };
    let (one, on_one) = recording("one", 1);
    let (nine, on_nine) = recording("nine", 9);
    let (shadow, on_shadow) = recording("shadow", 1);
    let app = app([
        all(nine).on_denied(on_nine),
        all(shadow.shadow()).on_denied(on_shadow),
        all(one).on_denied(on_one),
    ]);
    for (path, expected) in [("/a", 200), ("/b", 429), ("/c", 429)] {
        assert_eq!(status(&app, path).await, expected);
    }
    assert_eq!(*seen.lock().unwrap(), ["one /b", "one /c"]);
}

#[tokio::test]
async fn a_rule_gets_the_key_of_its_denials_as_it_counts_them() {
    let seen: Arc<Mutex<Vec<(Key, bool)>>> = Arc::default();
    let record = {
        let seen = Arc::clone(&seen);
        move |_: &Head<'_>, key: &Key, decision: &Decision| {
            let denied = decision.retry_after().is_some();
            seen.lock().unwrap().push((key.clone(), denied));
        }
    };
    let by_name = key::look_up(|_| async { Some("ann".to_owned()) });
    let [at_once, later] = stores();
    let by_address = per_minute("one", 1)
        .by(key::client_ip())
        .on_denied(record.clone());
    let looked_up = || {
        per_minute("one", 1)
            .by(by_name.clone())
            .on_denied(record.clone())
    };
    let layers = [
        RateLimitLayer::new(at_once.clone(), [by_address]),
        RateLimitLayer::new(
            at_once,
            [per_minute("two", 1)
                .by(header("x-none"))
                .on_denied(record.clone())],
        ),
        RateLimitLayer::new(later, [looked_up()]),
    ];
    let layers = layers.map(|layer| layer.expect("valid rules"));
    let ann = layers[2]
        .look_up_key_of("one", &get("/").body(()).unwrap().into_parts().0)
        .await;
    for layer in layers.clone() {
        let app = behind(layer);
        assert_eq!(
            [status(&app, "/").await, status(&app, "/").await],
            [200, 429]
        );
    }
    let handled = layer([per_minute("handled", 1).by_handler().on_denied(record)]);
    let handler = async |admission: Admission| {
        let _ = admission.acquire("handled", &Key::of("bea")).await?;
        admission
            .acquire("handled", &Key::of("bea"))
            .await
            .map(|_| ())
    };
    let app = Router::new().route("/", routing::get(handler).layer(handled));
    assert_eq!(status(&app, "/").await, 429);
    let address = Key::of(std::net::IpAddr::from([192, 0, 2, 1]));
    let expected = [address, Key::shared(), ann.unwrap(), Key::of("bea")].map(|key| (key, true));
    assert_eq!(*seen.lock().unwrap(), expected);
}

fn plan_of(head: &Head<'_>) -> Option<&'static str> {
    (head.uri.path() == "/gold").then_some("gold")
}

#[tokio::test]
async fn closures_are_named_functions_or_variables_or_written_in_place() {
    let of_path = |head: &Head<'_>| head.uri.path().strip_prefix('/').map(str::to_owned);
    let by_key = |_: &tollgate::key::KeyBuf| Some(Arc::from("gold"));
    let rule = |name| all(per_minute(name, 1).plan("gold", Quota::fixed_window(9, MINUTE)));
    let app = app([
        rule("named").plan_by(plan_of),
        rule("variable").plan_by(of_path),
        rule("variable-again").plan_by(of_path),
        rule("place").plan_by(|head| head.uri.path().ends_with("gold").then_some("gold")),
        rule("key").plan_by_key(by_key),
    ]);
    let gold = send(&app, "/gold").await;
    let left = r#""named";r=8;t=60, "variable";r=8;t=60, "variable-again";r=8;t=60, "place";r=8;t=60, "key";r=8;t=60"#;
    assert_eq!(field(&gold, "ratelimit"), left);
}

#[tokio::test]
async fn a_key_has_its_own_limit_where_the_request_has_none() {
    let unlimited =
        || Rule::new("api", Quota::unlimited()).plan("two", Quota::sliding_log(2, MINUTE));
    let by_name = || {
        key::look_up(|head| {
            let name = head.headers.get("x-a").cloned();
            async move { name }
        })
    };
    let staff = per_minute("api", 9)
        .plan("two", Quota::fixed_window(2, MINUTE))
        .plan("staff", Quota::unlimited());
    let head = get("/")
        .header("x-a", "a2")
        .body(())
        .unwrap()
        .into_parts()
        .0;
    let missing = tollgate::Missing::Reject(http::StatusCode::UNAUTHORIZED);
    for rule in [
        unlimited().by(header("x-a")),
        unlimited().by(by_name()),
        staff.clone().by(header("x-a")).plan_by(|_| Some("staff")),
        staff
            .by(header("x-a"))
            .quota_by(|_| Some(Quota::unlimited())),
    ] {
        let rule = rule.when_missing(missing);
        let key = layer([rule.clone()])
            .look_up_key_of("api", &head)
            .await
            .expect("a key");
        let by_key = key.clone();
        for rule in [
            rule.clone().plan_for_key(key, "two"),
            rule.plan_by_key(move |key| (*key == *by_key.as_ref()).then(|| Arc::from("two"))),
        ] {
            let app = app([rule]);
            for (name, statuses) in [("a2", [200, 200, 429]), ("a1", [200; 3])] {
                for expected in statuses {
                    assert_eq!(status(&app, get("/").header("x-a", name)).await, expected);
                }
            }
            // Without a key there is nothing to find a limit by.
            assert_eq!(status(&app, "/").await, 200);
        }
    }
}

#[tokio::test]
async fn a_rule_applies_to_the_keys_that_it_wants() {
    let out = header("x-client");
    let rule = || per_minute("per-client", 2).by(out.clone());
    let head = get("/").header("x-client", "out").body(()).unwrap();
    let is_out = layer([rule()]).key_of("per-client", &head.into_parts().0);
    let is_out = is_out.expect("a key");
    let app = app([rule().when_key(move |key| *key != *is_out.as_ref())]);
    for (client, expected) in [("ann", [200, 200, 429]), ("out", [200; 3])] {
        for expected in expected {
            let request = get("/").header("x-client", client);
            assert_eq!(status(&app, request).await, expected, "{client}");
        }
    }
    let error = RateLimitLayer::new(still().0, [rule().plan_for_key(Key::of("acme"), "gold")]);
    let text = error.expect_err("there is no such plan").to_string();
    assert!(text.contains("gold"), "{text}");
}
