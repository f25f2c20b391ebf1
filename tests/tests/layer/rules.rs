//! Which rules apply to a request, and what it costs.

use std::sync::{Arc, Mutex};

use axum::{Router, routing};
use http::{Method, Request, request::Parts};
use tollgate::{
    Admission, Decision, HeaderStyle, Key, MINUTE, MemoryStore, Outcome, Quota, RateLimitLayer,
    Reason, RequestRule, Retry, Rule,
    condition::{any_of, grpc_method_is, grpc_service_is, method_in, path, path_under, route_is},
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

#[tokio::test]
async fn a_rule_applies_to_the_route_it_names() {
    let rule = all(per_minute("one-item", 1)).when(route_is("/items/{id}"));
    let layer = layer([rule]);
    let app = Router::new()
        .route("/items/{id}", routing::get(|| async {}))
        .route("/items", routing::get(|| async {}))
        .fallback(|| async {})
        .layer(layer);
    for (path, expected) in [
        ("/items", 200),
        ("/items/1", 200),
        ("/items/2", 429),
        ("/items", 200),
        ("/none", 200),
    ] {
        assert_eq!(status(&app, path).await, expected, "{path}");
    }
}

/// The names of the rules that a request counted against, in order.
async fn counted(app: &Router, request: impl tollgate_tests::app::Sent) -> Vec<String> {
    let answer = send(app, request).await;
    let reported = field(&answer, "ratelimit").split(", ");
    let names = reported.filter_map(|item| Some(item.split('"').nth(1)?.to_owned()));
    names.collect()
}

#[tokio::test]
async fn of_many_rules_on_routes_and_paths_those_of_a_request_apply_in_their_order() {
    let rule =
        |name: String| Rule::new(name, Quota::fixed_window(9, MINUTE)).by(key::constant("all"));
    let mut rules = Vec::new();
    for n in 0..20 {
        let route = format!("/r{n}/{{id}}");
        rules.push(rule(format!("path-{n}")).when(path(&route).expect("a pattern")));
        rules.push(rule(format!("route-{n}")).when(route_is(route)));
    }
    let deletes = rule("deletes".into()).when(method_in([Method::DELETE]));
    rules.insert(10, deletes);
    rules.push(rule("nested".into()).when(path("/outer/inner/{*rest}").expect("a pattern")));
    rules.push(rule("stripped".into()).when(path_under("/inner")));
    let either = any_of(path_under("/r7"), path_under("/inner/deep"));
    rules.push(rule("either".into()).when(either));
    rules.push(rule("service".into()).when(grpc_service_is("inner")));
    rules.push(rule("call".into()).when(grpc_method_is("inner", "Call")));
    let off = all(per_minute("off", 9).off());
    rules.push(off.when(path_under("/r3")));
    rules.push(rule("all".into()));
    let layer = layer(rules);
    let handler = || routing::any(|| async {});
    let inner = Router::new().route("/inner/{*rest}", handler());
    let routed = Router::new()
        .route("/r3/{id}", handler())
        .route("/r7/{id}", handler())
        .nest("/outer", inner.layer(layer.clone()));
    let app = routed.route_layer(layer);
    let delete = get("/r3/1").method(Method::DELETE);
    assert_eq!(counted(&app, "/r3/1").await, ["path-3", "route-3", "all"]);
    assert_eq!(
        counted(&app, delete).await,
        ["path-3", "route-3", "deletes", "all"]
    );
    assert_eq!(
        counted(&app, "/r7/1").await,
        ["path-7", "route-7", "either", "all"]
    );
    // The inner layer sees the path without its prefix, and the path that the client has sent.
    for (path, names) in [
        (
            "/outer/inner/deep/x",
            &["nested", "stripped", "either", "all"][..],
        ),
        (
            "/outer/inner/Call",
            &["nested", "stripped", "service", "call", "all"],
        ),
    ] {
        let nested = counted(&app, path).await;
        for name in names {
            assert!(
                nested.iter().any(|counted| counted == name),
                "{name}: {nested:?}"
            );
        }
    }
}

#[tokio::test]
async fn replaced_rules_are_found_by_their_own_routes() {
    let on = |name: String, path: &str| {
        let rule = Rule::new(name, Quota::fixed_window(9, MINUTE)).by(key::constant("all"));
        rule.when(path_under(path))
    };
    let rules = |moved: &str| {
        let rules = (0..20).map(|n| on(format!("rule-{n}"), &format!("/r{n}")));
        rules.chain([on("moved".into(), moved)]).collect::<Vec<_>>()
    };
    let layer = layer(rules("/old"));
    let handle = layer.handle();
    let app = behind(layer);
    assert_eq!(counted(&app, "/old").await, ["moved"]);
    handle.replace(rules("/new")).unwrap();
    assert_eq!(counted(&app, "/old").await, [""; 0]);
    assert_eq!(counted(&app, "/new").await, ["moved"]);
    // Other numbers on the same routes.
    let mut other = rules("/new");
    let nine = Quota::fixed_window(5, MINUTE);
    let numbers = Rule::new("moved", nine).by(key::constant("all"));
    *other.last_mut().unwrap() = numbers.when(path_under("/new"));
    handle.replace(other).unwrap();
    let answer = send(&app, "/new").await;
    assert_eq!(field(&answer, "ratelimit"), r#""moved";r=2;t=60"#);
    // In another order.
    let mut reversed = rules("/new");
    reversed.reverse();
    handle.replace(reversed).unwrap();
    for n in [0, 7, 19] {
        let expected = [format!("rule-{n}")];
        assert_eq!(counted(&app, &*format!("/r{n}/x")).await, expected);
    }
}

#[tokio::test]
async fn a_rule_applies_if_all_its_conditions_are_true() {
    let writes = all(per_minute("writes", 1))
        .when(|head| head.method == Method::POST)
        .when(|head| head.uri.path() != "/free");
    let app = app([writes]);
    let post = |path: &str| Request::post(path);
    for (request, expected) in [
        (post("/free"), 200),
        (post("/a"), 200),
        (post("/a"), 429),
        (post("/free"), 200),
        (get("/a"), 200),
    ] {
        assert_eq!(status(&app, request).await, expected);
    }
    assert_eq!(field(&send(&app, "/a").await, "ratelimit"), "");
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
async fn what_a_cache_may_give_to_others_has_no_numbers_of_one_client() {
    for (name, value, is_told) in [
        ("expires", "Fri, 01 Jan 2100 00:00:00 GMT", false),
        ("last-modified", "Wed, 21 Oct 2015 07:28:00 GMT", false),
        ("cdn-cache-control", "max-age=60", false),
        ("surrogate-control", "max-age=60", false),
        ("cache-control", "private, max-age=60", true),
    ] {
        let layer = layer([all(per_minute("calls", 9))]);
        let styles = HeaderStyle::DRAFT_11 | HeaderStyle::X_RATELIMIT_DELTA;
        let layer = layer.headers(styles).expect("they go together");
        let answer = move || async move { [(name, value)] };
        let app = Router::new().route("/", routing::get(answer)).layer(layer);
        let answer = send(&app, "/").await;
        for field in ["ratelimit", "ratelimit-policy", "x-ratelimit-remaining"] {
            assert_eq!(
                answer.headers().contains_key(field),
                is_told,
                "{name}: {field}"
            );
        }
    }
}

#[tokio::test]
async fn a_key_that_is_looked_up_has_its_computed_quota() {
    let by_name = key::look_up(|_| async { Some("ann".to_owned()) });
    let rule = per_minute("calls", 1).by(by_name);
    let app = app([rule.quota_by(|_| Some(Quota::fixed_window(3, MINUTE)))]);
    for left in [2, 1, 0] {
        let answer = send(&app, "/").await;
        assert_eq!(
            field(&answer, "ratelimit"),
            format!(r#""calls";r={left};t=60"#)
        );
    }
    assert_eq!(status(&app, "/").await, 429);
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
async fn a_cost_that_never_fits_has_no_retry_after() {
    for cost in [11, u64::MAX] {
        let rule = all(per_minute("ten", 10)).cost_by(move |_| cost);
        let app = app([rule]);
        let denied = send(&app, "/").await;
        assert_eq!(denied.status(), 429);
        assert_eq!(field(&denied, "retry-after"), "");
        assert!(field(&denied, "ratelimit").starts_with(r#""ten";r=10;"#));
        let decision = denied.extensions().get::<tollgate::Decision>().unwrap();
        assert_eq!(decision.reason(), Some(Reason::Never));
        assert_eq!(decision.retry(), Retry::Never);
    }
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
async fn an_unlimited_plan_is_missing_from_the_fields_of_other_rules() {
    let rules = [
        all(Rule::new("free", Quota::unlimited())),
        all(per_minute("off", 1).off()),
        all(per_minute("two", 2)),
    ];
    let app = app(rules);
    let answer = send(&app, "/").await;
    assert_eq!(field(&answer, "ratelimit"), r#""two";r=1;t=60"#);
    assert_eq!(field(&answer, "ratelimit-policy"), r#""two";q=2;w=60"#);
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
async fn a_shadow_with_a_longer_wait_does_not_change_retry_after() {
    let rules = [
        all(per_minute("one", 1)),
        all(Rule::new("hourly", Quota::fixed_window(1, 60 * MINUTE)).shadow()),
    ];
    let app = app(rules);
    send(&app, "/").await;
    assert_eq!(field(&send(&app, "/").await, "retry-after"), "60");
}

#[tokio::test]
async fn one_name_on_two_routes_is_one_budget_whatever_each_costs() {
    let (store, _clock) = still();
    let layer = |cost| {
        let rule = per_minute("shared", 10).cost(cost).by(header("x-api-key"));
        RateLimitLayer::new(store.clone(), [rule]).unwrap()
    };
    let app = Router::new()
        .route("/cheap", routing::get(|| async {}).layer(layer(1)))
        .route("/dear", routing::get(|| async {}).layer(layer(6)));
    let with = |path: &str, key: &str| send(&app, get(path).header("x-api-key", key));
    let left = |response| field(&response, "ratelimit").to_owned();
    assert_eq!(left(with("/dear", "a").await), r#""shared";r=4;t=60"#);
    assert_eq!(left(with("/cheap", "a").await), r#""shared";r=3;t=60"#);
    assert_eq!(with("/dear", "a").await.status(), 429);
    assert_eq!(left(with("/cheap", "a").await), r#""shared";r=2;t=60"#);
    assert_eq!(left(with("/dear", "b").await), r#""shared";r=4;t=60"#);
}

#[tokio::test]
async fn a_rule_that_denies_leaves_the_others_untouched() {
    for store in stores() {
        let rules = [all(per_minute("wide", 5)), all(per_minute("tight", 1))];
        let app = behind(RateLimitLayer::new(store, rules).unwrap());
        assert_eq!(
            field(&send(&app, "/").await, "ratelimit"),
            r#""wide";r=4;t=60, "tight";r=0;t=60"#
        );
        for _ in 0..3 {
            let denied = send(&app, "/").await;
            assert_eq!(denied.status(), 429);
            assert_eq!(
                field(&denied, "ratelimit"),
                r#""wide";r=4;t=60, "tight";r=0;t=60"#
            );
        }
    }
}

#[tokio::test]
async fn the_wait_is_the_longest_of_the_rules_that_deny() {
    let rules = [
        all(per_minute("minutely", 1)),
        all(Rule::new("hourly", Quota::fixed_window(1, 60 * MINUTE))),
        all(Rule::new("daily", Quota::fixed_window(9, 24 * 60 * MINUTE))),
    ];
    let app = app(rules);
    send(&app, "/").await;
    let denied = send(&app, "/").await;
    assert_eq!(field(&denied, "retry-after"), "3600");
    let problem: serde_json::Value = serde_json::from_str(&text(denied).await).unwrap();
    let violated = problem["violated-policies"].to_string();
    assert_eq!(violated, r#"["minutely","hourly"]"#);
}

#[tokio::test]
async fn more_rules_than_fit_without_an_allocation_are_decided_alike() {
    let rules = (0..9).map(|number| {
        let name = format!("r{number}");
        all(Rule::new(name, Quota::fixed_window(9 - number, MINUTE)))
    });
    let app = app(rules);
    let first = send(&app, "/").await;
    assert_eq!(field(&first, "ratelimit").split(", ").count(), 9);
    let denied = send(&app, "/").await;
    assert_eq!(denied.status(), 429);
    assert!(field(&denied, "ratelimit").starts_with(r#""r0";r=8;"#));
}

#[tokio::test]
async fn a_layer_that_is_cloned_and_changed_keeps_its_budget() {
    let layer = RateLimitLayer::new(MemoryStore::new(), [all(per_minute("one", 1))]).unwrap();
    let quiet = layer.clone().hide_quota();
    let (reported, untold) = (behind(layer), behind(quiet));
    assert_eq!(field(&send(&untold, "/").await, "ratelimit"), "");
    let denied = send(&reported, "/").await;
    assert_eq!(denied.status(), 429);
    assert!(field(&denied, "ratelimit").starts_with(r#""one";r=0;"#));
}

#[test]
fn plan_by_without_plans_is_rejected() {
    let chosen = |rule: Rule| all(rule).plan_by(|_| Some("gold"));
    let error = RateLimitLayer::new(MemoryStore::new(), [chosen(per_minute("api", 1))]);
    let error = error.expect_err("there is no plan").to_string();
    for words in ["\"api\"", "plan_by", "plan(name, quota)"] {
        assert!(error.contains(words), "{error}");
    }
    let planned = per_minute("api", 1).plan("gold", Quota::fixed_window(9, MINUTE));
    assert!(RateLimitLayer::new(MemoryStore::new(), [chosen(planned)]).is_ok());
}

#[tokio::test]
async fn a_rule_gets_its_own_denials_alone() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let recording = |name: &'static str, limit| {
        let seen = Arc::clone(&seen);
        (
            per_minute(name, limit),
            move |head: &Parts, _: &Key, _: &Decision| {
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
        move |_: &Parts, key: &Key, decision: &Decision| {
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

fn plan_of(head: &Parts) -> Option<&'static str> {
    (head.uri.path() == "/gold").then_some("gold")
}

#[tokio::test]
async fn closures_are_named_functions_or_variables_or_written_in_place() {
    let of_path = |head: &Parts| head.uri.path().strip_prefix('/').map(str::to_owned);
    let by_key = |_: &tollgate::KeyBuf| Some(Arc::from("gold"));
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

#[test]
fn a_jitter_above_100_percent_is_rejected() {
    let layer = || {
        let rule = all(per_minute("api", 1));
        RateLimitLayer::new(MemoryStore::new(), [rule]).expect("a valid rule")
    };
    let error = layer().retry_after_jitter(255).expect_err("not a share");
    let error = error.to_string();
    assert!(
        error.contains("255 %") && error.contains("0 to 100"),
        "{error}"
    );
    assert!(layer().retry_after_jitter(100).is_ok());
    let error = tollgate_client::ClientRateLimitLayer::new().retry_jitter(101);
    assert!(
        error
            .expect_err("not a share")
            .to_string()
            .contains("101 %")
    );
}

#[test]
fn a_fixed_cost_of_zero_is_rejected() {
    let rule = all(per_minute("api", 1).cost(0));
    let error = RateLimitLayer::new(MemoryStore::new(), [rule]);
    let error = error.expect_err("it limits nothing").to_string();
    assert!(
        error.contains("\"api\"") && error.contains("peek"),
        "{error}"
    );
}

#[tokio::test]
async fn a_key_has_a_plan_of_its_own_and_a_rule_applies_to_some_keys() {
    use tollgate::{Key, KeyBuf, key::look_up};
    use tower::{Layer, ServiceExt};

    fn counted(rule: Rule, looks_up: bool) -> RequestRule {
        if !looks_up {
            return rule.by(header("x-client"));
        }
        rule.by(look_up(|head| {
            let name = head.headers.get("x-client").cloned();
            async move {
                tokio::task::yield_now().await;
                Some(name?.to_str().ok()?.to_owned())
            }
        }))
    }
    async fn key_of(name: &str, looks_up: bool) -> Key {
        let rule = counted(Rule::new("probe", Quota::gcra(1, MINUTE)), looks_up);
        let layer = RateLimitLayer::new(still().0, [rule]).expect("valid");
        let head = get("/").header("x-client", name).body(());
        let head = head.expect("a request").into_parts().0;
        layer.look_up_key_of("probe", &head).await.expect("a key")
    }
    let is_out = |key: &KeyBuf| key.parts().any(|(_, part)| part == b"out");
    let rules = async |looks_up| {
        let rule = Rule::new("per-client", Quota::fixed_window(2, MINUTE))
            .plan("more", Quota::fixed_window(5, MINUTE))
            .plan("all", Quota::unlimited());
        counted(rule, looks_up)
            .plan_for_key(key_of("acme", looks_up).await, "more")
            .plan_for_key(key_of("ops", looks_up).await, "all")
            .when_key(move |key| !is_out(key))
    };
    for looks_up in [false, true] {
        let layer = RateLimitLayer::new(still().0, [rules(looks_up).await]).expect("valid");
        let service = layer.layer(tower::service_fn(|_: Request<String>| async {
            Ok::<_, std::convert::Infallible>(http::Response::new(String::new()))
        }));
        for (client, admitted) in [("ann", 2), ("acme", 5), ("ops", 9), ("out", 9)] {
            let mut passed = 0;
            for _ in 0..9 {
                let request = get("/").header("x-client", client).body(String::new());
                let response = service.clone().oneshot(request.expect("a request")).await;
                passed += u32::from(response.expect("it answers").status().is_success());
            }
            assert_eq!(passed, admitted, "{client}, look-up: {looks_up}");
        }
    }
    let wrong = Rule::new("per-client", Quota::fixed_window(2, MINUTE)).by(header("x-client"));
    let acme = key_of("acme", false).await;
    let error = RateLimitLayer::new(still().0, [wrong.plan_for_key(acme, "gold")]);
    let text = error.expect_err("there is no such plan").to_string();
    assert!(text.contains("unknown plan \"gold\""), "{text}");
}

#[tokio::test]
async fn plans_of_keys_follow_a_replacement() {
    let rule = |plans: &[(&str, &str)]| {
        let rule = Rule::new("per-client", Quota::fixed_window(2, MINUTE))
            .plan("more", Quota::fixed_window(5, MINUTE))
            .plan("most", Quota::fixed_window(9, MINUTE));
        let rule = rule.by(header("x-client"));
        plans.iter().fold(rule, |rule, (client, plan)| {
            let head = get("/").header("x-client", *client).body(());
            let head = head.expect("a request").into_parts().0;
            let made = layer([rule.clone()]).key_of("per-client", &head);
            rule.plan_for_key(made.expect("a key"), *plan)
        })
    };
    let layer = layer([rule(&[("acme", "more")])]);
    let handle = layer.handle();
    let app = behind(layer);
    let limit = async |client: &str| {
        let answer = send(&app, get("/").header("x-client", client)).await;
        let policy = field(&answer, "ratelimit-policy");
        let limit = policy
            .split("q=")
            .nth(1)
            .and_then(|rest| rest.split(';').next());
        limit.expect("a limit").to_owned()
    };
    assert_eq!(
        (&*limit("acme").await, &*limit("umbrella").await),
        ("5", "2")
    );
    // As they were, made anew; others; none.
    let other = || all(per_minute("other", 99)).when(|_| false);
    handle
        .replace([other(), rule(&[("acme", "more")])])
        .unwrap();
    assert_eq!(
        (&*limit("acme").await, &*limit("umbrella").await),
        ("5", "2")
    );
    handle
        .replace([rule(&[("acme", "most"), ("umbrella", "more")])])
        .unwrap();
    assert_eq!(
        (&*limit("acme").await, &*limit("umbrella").await),
        ("9", "5")
    );
    handle.replace([rule(&[])]).unwrap();
    assert_eq!(
        (&*limit("acme").await, &*limit("umbrella").await),
        ("2", "2")
    );
}
